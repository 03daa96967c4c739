import yaml

from benchmark.published import Ours, published
from benchmark.published.judged import counted, judged, ranked

TABLE = {
    "name": "paper",
    "title": "A paper",
    "source": "Someone",
    "tables": {
        "table": {
            "place": "Table 1",
            "title": "Two attacks",
            "setting": "One image.",
            "answer": {"protocol": "quick_digits_a", "defense": "none", "metric": "psnr"},
            "columns": [{"name": "PSNR", "better": "higher"}],
            "rows": [
                {"name": "one", "answer": {"attack": "random"}, "values": ["9 ± 1"]},
                {"name": "two", "answer": {"attack": "prior_only"}, "values": ["5 ± 1"]},
                {
                    "name": "two, by another",
                    "again": "two",
                    "answer": {"attack": "oracle"},
                    "values": ["5 ± 1"],
                },
            ],
        }
    },
}


class Found:
    """What of ours each attack's number is."""

    def __init__(self, **means):
        self.means = means

    def ours(self, one):
        return Ours(self.means[one.answer.attack], 1.0, 0.0, 10, None, False)


def numbers(folder, **means):
    (folder / "paper.yaml").write_text(yaml.safe_dump(TABLE))
    return judged(published("laptop", folder), Found(**means))


def test_row_beside_another_attack_stands_in_no_order_and_is_not_counted(tmp_path):
    found = numbers(tmp_path, random=20, prior_only=2, oracle=40)
    assert ranked(found).reproduced
    assert ranked(found).ours == (("one",), ("two",))
    assert [each.one.row.name for each in counted(found)] == ["one", "two"]
    kinds = [each.verdict.kind for each in found]
    assert kinds == ["better", "order reproduced", "better"]


def test_row_beside_another_attack_is_judged_among_the_others_and_not_its_own(tmp_path):
    found = numbers(tmp_path, random=20, prior_only=2, oracle=3)
    assert found[2].verdict.kind == "order reproduced"
