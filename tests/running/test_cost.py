import json

import pytest

from benchmark.records import append, file_of, write_protocol
from benchmark.running.cost import Cost, Prediction, table
from benchmark.running.plan import groups, survey

SEARCH = {"seconds": 5, "memory_mib": 256, "gradient_evaluations": 100}


@pytest.fixture
def results(tmp_path):
    return tmp_path / "results"


@pytest.fixture
def keep(results, provenance):
    """Write records of a cell, one for each of some seconds, and its protocol."""

    def write(cell, *seconds, status="completed", spent=0):
        path = file_of(results, cell.protocol.name, cell.attack.label)
        made = [
            cell.record(
                provenance,
                trial=trial,
                status=status,
                seconds=each,
                gradient_evaluations=spent,
            )
            for trial, each in enumerate(seconds)
        ]
        append(path, made)
        write_protocol(results, cell.protocol.name, cell.protocol.frozen())

    return write


@pytest.fixture
def cost(results):
    """Return what a cell's trials would cost, all of them due."""

    def estimate(cell, device="cpu", cores=1):
        (group,) = groups([cell.protocol], [cell.defense], [cell.attack], None, None)
        known = survey([group], results).records
        due = [(cell, list(group.trials))]
        found = Prediction(due, known, results, device=device, cores=cores)
        return found.costs[cell.protocol.name]

    return estimate


def test_recorded_seconds_of_the_protocol_are_taken_at_their_median(bench, keep, cost):
    cell = bench().cell("random")
    keep(cell, 100.0, 300.0, 900.0)
    found = cost(cell)
    assert (found.seconds, found.trials) == (900.0, {"recorded": 3})
    assert str(found) == "0:15"


def test_verdict_of_not_applicable_is_recorded_to_cost_nothing(bench, keep, cost):
    cell = bench().cell("random")
    keep(cell, None, status="not_applicable")
    assert (cost(cell).seconds, cost(cell).trials) == (0.0, {"recorded": 3})


def test_another_protocol_of_the_victim_is_scaled_by_batch(bench, keep, cost):
    keep(bench(name="other").cell("span_closed_form"), 2.0)
    found = cost(bench(federation={"batch_size": 4}).cell("span_closed_form"))
    assert (found.seconds, found.trials) == (3 * 4 * 2.0, {"estimated": 3})


def test_another_protocol_of_the_victim_is_scaled_by_gradients(bench, keep, cost):
    keep(bench(name="other").cell("dlg"), 2.0, spent=50)
    assert cost(bench(budget=SEARCH).cell("dlg")).seconds == 3 * 2 * 2.0
    longer = bench(budget=SEARCH | {"gradient_evaluations": 99999}).cell("dlg")
    assert cost(longer).seconds == 3 * 2.0 * 1500 / 50  # DLG takes 1500 steps, whatever is granted


def test_verdict_of_another_protocol_tells_nothing_of_this_one(bench, keep, cost):
    keep(bench(name="other").cell("dlg"), None, status="not_applicable")
    assert cost(bench(budget=SEARCH).cell("dlg")).seconds > 0


def test_another_victim_tells_nothing_but_of_controls(bench, keep, cost):
    wider = {"architecture": "april_b", "width": 64, "depth": 1, "patch": 4}
    other = bench(name="other", victim=wider)
    keep(other.cell("span_closed_form"), 2.0)
    keep(other.cell("oracle"), 3.0)
    assert str(cost(bench().cell("span_closed_form"))) == "unknown"
    assert cost(bench().cell("oracle")).seconds == 9.0


def test_search_without_a_record_is_counted_in_operations(bench, cost):
    def seconds(**changes):
        found = cost(bench(**{"budget": SEARCH, **changes}).cell("dlg"))
        assert found.trials == {"estimated": found.trials.total()}
        return found.seconds

    once = seconds()
    # 4 patches of 48 colours, 12 width^2 parameters and 5 tokens, what they attend to, the head
    products = 4 * 48 * 32 + 5 * 12 * 32**2 + 2 * 5**2 * 32 + 32 * 10
    # two operations each, 8 passes, 100 gradients, 3 trials
    assert once == pytest.approx(2 * products * 8 * 100 * 3 / 6e10)
    assert seconds(federation={"batch_size": 2}) == pytest.approx(2 * once)
    assert seconds(budget=SEARCH | {"gradient_evaluations": 300}) == pytest.approx(3 * once)
    assert seconds(trials=6) == pytest.approx(2 * once)
    assert cost(bench(budget=SEARCH).cell("dlg"), cores=2).seconds == pytest.approx(once / 2)
    assert cost(bench(budget=SEARCH).cell("dlg"), "cuda").seconds < once / 10


@pytest.mark.parametrize(
    ("victim", "operations"),
    [
        ("timm/vit_base_patch32_224", 8.7e9),
        ("timm/deit_small_distilled_patch16_224.fb_in1k", 9.2e9),
        ("timm/resnet50.tv_in1k", 8.2e9),
    ],
)
def test_published_networks_are_counted_as_published(
    bench, cost, make_protocol, victim, operations
):
    cell = make_protocol(bench, victim)
    assert cost(cell).seconds == pytest.approx(operations * 8 * 100 * 3 / 6e10, rel=0.1)


@pytest.fixture
def make_protocol():
    """Make a cell of DLG on a network of timm that is not built."""

    def make(bench, architecture):
        cell = bench(budget=SEARCH).cell("dlg")
        made = cell.protocol
        changed = made.model_copy(
            update={
                "victim": type(made.victim)(architecture=architecture),
                "data": made.data.model_copy(update={"size": 224}),
            }
        )
        return type(cell)(changed, cell.defense, cell.attack, cell.seed)

    return make


def test_what_no_one_knows_is_unknown_and_the_rest_is_said(bench, keep, cost, make_protocol):
    strange = cost(make_protocol(bench, "timm/nonesuch"))
    assert (str(strange), strange.trials) == ("unknown", {"unknown": 3})
    whole = Cost()
    whole.add(2, None, "unknown")
    whole.add(1, 3700.0, "recorded")
    assert str(whole) == "1:02 and more"
    assert str(Cost(59.0, whole.trials)) == "< 0:01 and more"


def test_attack_from_outside_is_not_imported_to_be_estimated(bench, plugin, cost):
    folder = plugin("mine", source="raise SystemExit(1)")
    assert str(cost(bench(folder).cell("mine"))) == "unknown"


def test_foreign_files_among_the_results_are_passed_over(bench, cost, results):
    for name, text in (("a", "no json"), ("b", "[]"), ("c", json.dumps({"victim": {}}))):
        (results / name).mkdir(parents=True)
        (results / name / "protocol.json").write_text(text)
    assert str(cost(bench().cell("oracle"))) == "unknown"


def test_table_has_a_line_a_protocol_and_a_total():
    one, other = Cost(), Cost()
    one.add(2, 1800.0, "recorded")
    other.add(4, None, "unknown")
    lines = [line.split() for line in table({"one": one, "other": other}).splitlines()]
    assert lines[2:] == [
        ["one", "2", "1:00", "2", "recorded"],
        ["other", "4", "unknown", "4", "unknown"],
        ["total", "6", "1:00", "and", "more", "2", "recorded,", "4", "unknown"],
    ]
    assert "total" not in table({"one": one})
