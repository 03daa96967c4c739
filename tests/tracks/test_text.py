"""Text through the same cell as images: a tiny language model, honest and corrupted."""

import json

import pytest
import torch

from benchmark.errors import PluginError
from benchmark.records import read_folder
from benchmark.running.sandbox import Sandbox

TEXT = {
    "track": "text",
    "data": {"name": "pydoc", "tokenizer": "pydoc", "length": 8},
    "victim": {"architecture": "transformer3", "width": 16, "heads": 2, "depth": 1, "mlp": 32},
    "threat": {"server": "malicious", "grants": ["batch_size", "length", "public_text"]},
    "metrics": ["total_accuracy", "tokens_leaked"],
    "primary": "total_accuracy",
    "budget": {"seconds": 30, "memory_mib": 512},
}
MALICIOUS = """
from dataclasses import dataclass
import torch
from benchmark.api import MaliciousAttack, NotApplicable, Reconstruction

@dataclass(frozen=True)
class Plugin(MaliciousAttack):
    def corrupt(self, model, known, generator):
        {corrupt}
        return model

    def reconstruct(self, seen):
        zeroed = float(seen.model.weights()["decoder.bias"].detach().abs().max())
        guess = int(zeroed == 7) * int(seen.update["decoder.bias"].argmin())
        return Reconstruction(tokens=torch.full((seen.batch_size, seen.length), guess))
"""


@pytest.fixture
def text(bench):
    return lambda plugins=None, **changes: bench(plugins, **TEXT | changes)


@pytest.fixture
def malicious(plugin):
    """Write a malicious attack whose corruption is this line."""

    def write(name, corrupt):
        return plugin(name, source=MALICIOUS.format(corrupt=corrupt), server="malicious")

    return write


def test_oracle_reads_all_and_noise_and_prior_next_to_nothing(text):
    made = text()
    mean = {}
    for name in ("oracle", "prior_only", "random"):
        records = made.run(name)
        assert [record.status for record in records] == ["completed"] * 3
        mean[name] = sum(record.metrics["total_accuracy"] for record in records) / 3
    assert mean["oracle"] == 1
    assert mean["random"] < 0.1
    assert mean["prior_only"] < 0.5


def test_what_fails_scores_as_the_most_frequent_public_token(text, plugin):
    made = text(plugin("crash", "raise RuntimeError('no')"))
    failed, prior = made.run("crash"), made.run("prior_only")
    assert {record.status for record in failed} == {"failed"}
    assert [r.metrics for r in failed] == [r.metrics for r in prior]
    assert all(record.excerpt is None for record in failed)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            "Reconstruction(tokens=torch.zeros(1, 9, dtype=torch.int64))",
            "tokens (1, 9); wanted (1, 8)",
        ),
        ("Reconstruction(tokens=torch.full((1, 8), 4096))", "4096 to 4096; wanted -1 to 4095"),
        ("Reconstruction(tokens=torch.zeros(1, 8))", "tokens of torch.float32; wanted torch.int64"),
        ("Reconstruction()", "tokens of type NoneType"),
        (
            "Reconstruction(tokens=torch.ones(1, 8).long(), certain=torch.zeros(8).bool())",
            "certain (8,); wanted (1, 8)",
        ),
    ],
)
def test_answer_that_cannot_be_scored_is_a_failed_trial(text, plugin, answer, said):
    record = text(plugin("wrong", f"return {answer}")).run("wrong", trials=1)[0]
    assert record.status == "failed"
    assert said in record.reason


def test_missing_tokens_are_answered_by_minus_one_and_earn_nothing(text, plugin):
    made = text(plugin("silent", "return Reconstruction(tokens=torch.full((1, 8), -1))"))
    record = made.run("silent", trials=1)[0]
    assert (record.status, record.metrics["tokens_leaked"]) == ("completed", 0)
    assert record.excerpt.answer == ("",) * 8


@pytest.mark.parametrize(
    "attack", ["april_closed_form", "span_closed_form", "position_closed_form"]
)
def test_attack_on_images_is_not_applicable(text, attack):
    (record,) = text().run(attack)
    assert record.status == "not_applicable"


@pytest.mark.parametrize("defense", ["fixed_position", "narrow_width"])
def test_defense_of_images_is_not_applicable(text, defense):
    (record,) = text().run("oracle", defense)
    assert record.status == "not_applicable"


def test_position_gradient_is_withheld_from_text_too(text, plugin):
    said = (
        "assert not [name for name in seen.update if 'position' in name]\n"
        "return Reconstruction(tokens=torch.zeros(1, 8).long())"
    )
    records = text(plugin("looks", said)).run("looks", "withhold_position")
    assert {record.status for record in records} == {"completed"}


CORRUPT = 'model.weights()["decoder.bias"].data.fill_(7)'


FAILING = [
    ("raise RuntimeError('cannot')", "failed", "corrupt: RuntimeError: cannot"),
    ("raise NotApplicable('no such victim')", "not_applicable", "no such victim"),
    ("model = None", "failed", "the model sent is no victim"),
]
BY_FILE = """import pathlib
        space = {"model": model, "NotApplicable": NotApplicable}
        exec(pathlib.Path(__file__).with_name("case.txt").read_text(), space)
        model = space["model"]"""


def test_clients_of_a_malicious_server_compute_on_the_parameters_it_chose(text, malicious):
    made = text(malicious("seven", CORRUPT))
    honest = made.round.update(0)
    records = made.run("seven")
    assert [record.reason for record in records] == [None] * 3
    # the most frequent next token is named: the attack saw its own bias and a gradient by it
    assert all("" not in record.excerpt.answer for record in records)
    assert len({record.excerpt.answer for record in records}) > 1
    assert made.round.victim.weights()["decoder.bias"].abs().max() < 1  # others' victim is honest
    assert torch.equal(honest["decoder.bias"], made.round.update(0)["decoder.bias"])


def test_malicious_attack_is_not_applicable_to_an_honest_server(text, malicious):
    made = text(malicious("seven", CORRUPT), threat={"grants": ["batch_size", "length"]})
    (record,) = made.run("seven")
    assert record.status == "not_applicable"
    assert "needs a malicious server" in record.reason


@pytest.mark.parametrize(("corrupt", "status", "said"), FAILING)
def test_corruption_that_fails_is_told_in_the_record(text, malicious, corrupt, status, said):
    records = text(malicious("bad", corrupt)).run("bad")
    assert {record.status for record in records} == {status}
    assert said in records[0].reason


def test_malicious_server_does_in_another_process_what_it_does_in_this_one(text, malicious):
    plugins = malicious("told", BY_FILE)
    made = text(plugins)
    with Sandbox(torch.device("cpu")) as other:
        for case, status, said in [(CORRUPT, "completed", ""), *FAILING]:
            (plugins / "told/case.txt").write_text(case)
            here, there = made.run("told"), made.run("told", worker=other)
            assert {record.status for record in there} == {status}
            assert said in (there[0].reason or "")
            assert [r.metrics for r in there] == [r.metrics for r in here]
            assert [r.excerpt for r in there] == [r.excerpt for r in here]


def test_only_parameters_of_a_corrupted_model_count(text, malicious):
    made = text(
        malicious("larger", "model.network.decoder = torch.nn.Linear(16, 5)"),
    )
    records = made.run("larger")
    assert {record.status for record in records} == {"failed"}
    assert "decoder.weight sent as (5, 16)" in records[0].reason


def test_manifest_and_class_agree_on_the_server(text, plugin):
    folder = plugin("liar", source=MALICIOUS.format(corrupt="pass"))
    with pytest.raises(PluginError, match=r"Plugin and submission\.yaml differ on the server"):
        text(folder).cell("liar").attack.build()


def test_dropout_at_the_client_follows_from_the_seed(text):
    on = text(victim={**TEXT["victim"], "dropout": 0.5})
    off = text()
    update = on.round.update(0)["decoder.bias"]
    again = on.setting.round(0).update(0)["decoder.bias"]
    assert torch.equal(update, again)
    assert not torch.allclose(update, off.round.update(0)["decoder.bias"])
    assert not on.round.victim.training


def test_records_show_truth_beside_reconstruction(text):
    record = text().run("oracle", trials=1)[0]
    assert record.excerpt.truth == record.excerpt.answer
    assert all(record.excerpt.exact)
    assert len(record.excerpt.truth) == 8


def test_run_says_who_the_users_are_and_writes_pages(tiny, gradleak, tmp_path):
    file, results, board = tiny(**TEXT), tmp_path / "results", tmp_path / "board.md"
    words = ("--attack", "oracle", "--attack", "prior_only", "--defense", "none")
    assert gradleak("run", file, *words, "--results", results).code == 0
    said = json.loads((results / "tiny/protocol.json").read_text())
    assert (said["users_are"], said["users_skipped"]) == ("help topics", 0)
    assert gradleak("leaderboard", "--results", results, "--output", board).code == 0
    page = tmp_path / "board/tiny_text.md"
    assert "<ins><b>" in page.read_text()
    assert "tiny_text.md" in (tmp_path / "board/tiny.md").read_text()
    written = board.read_bytes(), page.read_bytes()
    assert gradleak("leaderboard", "--results", results, "--output", board).code == 0
    assert (board.read_bytes(), page.read_bytes()) == written
    assert len(read_folder(results).records) == 6
