"""`gradleak tune`: rates by what an attacker has, on public batches, for every search alike."""

import pytest
import torch
import yaml

from benchmark.contract import Reconstruction
from benchmark.records import read_folder
from benchmark.running import tune
from benchmark.toolbox.matching import Found
from benchmark.tracks import VisionSetting, vision
from benchmark.tunings import choose, next_rate
from benchmark.worker import Outcome

SEARCHED = {"seconds": 30, "memory_mib": 256, "gradient_evaluations": 3}
RATES = [0.022, 0.067, 0.2, 0.6, 1.8]


@pytest.fixture
def file(tiny):
    return tiny(budget=SEARCHED)


@pytest.fixture
def results(tmp_path):
    return tmp_path / "results"


@pytest.fixture
def tuned(results):
    """Return what the file says of an attack."""
    return lambda attack="dlg": yaml.safe_load((results / "tiny/tuning.yaml").read_text())[attack]


@pytest.fixture
def fall(monkeypatch):
    """Let searches fall to a mismatch a rate, and answer what is said; keep the rates tried."""
    tried = []

    def install(mismatch, images=lambda rate, truth: torch.zeros_like(truth)):
        def run_stack(cell, setting, defended, worker, trials):
            tried.append(worker.rate)
            truths = [defended.plain.truth(trial).images for trial in trials]
            made = [
                Found(images=images(worker.rate, truth), mismatch=mismatch[worker.rate])
                for truth in truths
            ]
            return [Outcome(one, "completed", None, 0.0, None) for one in made]

        monkeypatch.setattr(tune, "run_stack", run_stack)
        return tried

    return install


def never(*_, **__):
    raise AssertionError("was looked at")


def test_the_rate_is_chosen_by_the_objective_where_the_truth_would_choose_another(
    file, results, gradleak, fall, tuned, monkeypatch
):
    errors = {}

    def images(rate, truth):
        answer = truth.clone() if rate == 0.067 else torch.full_like(truth, 0.5)
        errors[rate] = float((answer - truth).square().mean())
        return answer

    fall({0.022: 0.9, 0.067: 0.5, 0.2: 0.4, 0.6: 0.1, 1.8: 0.7}, images)
    monkeypatch.setattr(VisionSetting, "score", never)
    assert gradleak("tune", file, "--attack", "dlg", "--results", results).code == 0
    assert min(errors, key=errors.get) == 0.067
    assert tuned()["rate"] == 0.6


def test_only_public_batches_are_drawn_and_only_the_public_split_is_read(
    file, results, gradleak, monkeypatch
):
    drawn, read = [], []
    draw, load = vision.draw_images, vision.load_images

    def watch_draw(name, data, seed, **sizes):
        drawn.append((data.split, seed, sizes["trials"]))
        return draw(name, data, seed, **sizes)

    def watch_load(name, split, *rest):
        read.append(split)
        return load(name, split, *rest)

    monkeypatch.setattr(vision, "draw_images", watch_draw)
    monkeypatch.setattr(vision, "load_images", watch_load)
    ended = gradleak("tune", file, "--attack", "dlg", "--trials", 2, "--results", results)
    assert ended.code == 0
    assert drawn == [("train", 0, 2)]
    assert set(read) == {"train"}


def test_every_rate_starts_where_the_default_does(file, results, gradleak, monkeypatch):
    starts = []
    attempt = tune.attempt

    def watch(attack, stack):
        starts.append((attack.rate, [seen.generator.initial_seed() for seen in stack]))
        return attempt(attack, stack)

    monkeypatch.setattr(tune, "attempt", watch)
    gradleak("tune", file, "--attack", "dlg", "--trials", 2, "--results", results)
    assert [rate for rate, _ in starts][: len(RATES)] == RATES
    assert all(seeds == starts[0][1] for _, seeds in starts)
    assert len(set(starts[0][1])) == 2


def test_the_file_says_how_and_is_idempotent(file, results, gradleak, tuned, monkeypatch):
    words = ("tune", file, "--attack", "dlg", "--attack", "tag", "--trials", 2)
    first = gradleak(*words, "--results", results)
    assert "tiny x dlg: rate " in first.out
    assert "tuned on 2 public batches by its own objective, of " in first.out
    said = tuned()
    assert (said["version"], said["default"], said["trials"], said["seed"]) == ("1", 0.2, 2, 0)
    assert set(said["mismatch"]) >= set(RATES)
    assert said["command"] == "gradleak tune tiny.yaml --attack dlg --trials 2"
    assert said["provenance"]["versions"]["torch"]
    before = (results / "tiny/tuning.yaml").read_bytes()
    monkeypatch.setattr(tune, "run_stack", never)
    again = gradleak(*words, "--results", results)
    assert (again.code, again.out) == (0, first.out)
    assert (results / "tiny/tuning.yaml").read_bytes() == before


def test_attacks_of_a_protocol_are_tuned_on_as_many_batches(file, results, gradleak, fall, tuned):
    fall(dict.fromkeys(RATES, 0.5))
    gradleak("tune", file, "--attack", "dlg", "--trials", 3, "--results", results)
    gradleak("tune", file, "--attack", "april_optimization", "--results", results)
    assert tuned("april_optimization")["trials"] == tuned()["trials"] == 3
    again = gradleak("tune", file, "--attack", "dlg", "--trials", 4, "--plan", "--results", results)
    assert again.out == "tiny x dlg: due: the tuning is on 3 batches\n"


def test_killed_between_two_rates_it_goes_on_with_the_next(file, results, gradleak, fall, tuned):
    tried = fall({0.022: 0.9, 0.067: 0.5})
    with pytest.raises(KeyError):
        gradleak("tune", file, "--attack", "dlg", "--results", results)
    assert tuned()["rate"] is None
    said = gradleak("run", file, "--attack", "dlg,rate=tuned", "--results", results)
    assert (said.code, "is not finished; make it by" in said.err) == (2, True)
    tried.clear()
    fall({0.2: 0.1, 0.6: 0.3, 1.8: 0.7})
    gradleak("tune", file, "--attack", "dlg", "--results", results)
    assert tried == [0.2, 0.6, 1.8]
    assert tuned()["rate"] == 0.2


def test_a_trial_that_ran_out_of_time_says_nothing_of_a_rate(file, results, gradleak, monkeypatch):
    late = Outcome(None, "timed_out", "passed its limit of 30 s a trial", 30.0, None)
    monkeypatch.setattr(tune, "run_stack", lambda *_: [late] * 8)
    ended = gradleak("tune", file, "--attack", "dlg", "--results", results)
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "at rate 0.022 a trial passed its limit" in ended.err
    assert not (results / "tiny/tuning.yaml").exists()


def test_without_a_tuning_a_run_names_the_command_and_runs_nothing(file, results, gradleak):
    ended = gradleak("run", file, "--attack", "dlg,rate=tuned", "--results", results)
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "the tuning in " in ended.err
    assert f"gradleak tune tiny.yaml --attack dlg --results {results}" in ended.err
    assert not results.exists()


def test_a_tuned_attack_is_the_attack_at_that_rate(file, results, gradleak, fall):
    fall({0.022: 0.9, 0.067: 0.5, 0.2: 0.4, 0.6: 0.1, 1.8: 0.7})
    gradleak("tune", file, "--attack", "dlg,words=searched", "--results", results)
    wanted = ("--attack", "dlg,words=searched,rate=tuned", "--defense", "none", "--trials", 1)
    assert gradleak("run", file, *wanted, "--results", results).code == 0
    assert [one.attack for one in read_folder(results).records] == ["dlg,words=searched,rate=0.6"]


def test_a_default_that_the_tuning_chose_keeps_its_name(file, results, gradleak, fall):
    fall({0.022: 0.9, 0.067: 0.5, 0.2: 0.1, 0.6: 0.4, 1.8: 0.7})
    gradleak("tune", file, "--attack", "dlg", "--results", results)
    wanted = ("--attack", "dlg,rate=tuned", "--defense", "none", "--trials", 1)
    gradleak("run", file, *wanted, "--results", results)
    assert [one.attack for one in read_folder(results).records] == ["dlg"]


def test_a_stale_tuning_is_told_and_made_anew(file, results, gradleak, tuned):
    words = ("tune", file, "--attack", "dlg", "--trials", 2, "--results", results)
    gradleak(*words)
    path = results / "tiny/tuning.yaml"
    path.write_text(path.read_text().replace("version: '1'", "version: '0'"))
    told = gradleak(*words, "--plan")
    assert told.out == "tiny x dlg: due: the tuning is of version 0, the attack is of 1\n"
    ended = gradleak("run", file, "--attack", "dlg,rate=tuned", "--results", results)
    assert (ended.code, "is of version 0, the attack is of 1" in ended.err) == (2, True)
    gradleak(*words)
    assert tuned()["version"] == "1"


def test_plan_runs_and_writes_nothing(file, results, gradleak, monkeypatch):
    monkeypatch.setattr(tune, "run_stack", never)
    ended = gradleak("tune", file, "--plan", "--results", results)
    assert "tiny x dlg: due\n" in ended.out
    assert "dlg_lbfgs" not in ended.out  # a line search has no rate
    assert not results.exists()


def test_no_gradient_granted_is_no_rate_to_tune(tiny, results, gradleak):
    ended = gradleak("tune", tiny(), "--results", results)
    assert (ended.code, ended.out) == (0, "")
    assert gradleak("run", tiny(), "--attack", "dlg,rate=tuned", "--results", results).code == 0
    assert {one.status for one in read_folder(results).records} == {"not_applicable"}


def test_an_attack_without_a_rate_is_refused_in_one_line(file, results, gradleak):
    ended = gradleak("tune", file, "--attack", "prior_only", "--results", results)
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "prior_only: has no rate to tune" in ended.err


def test_a_tuned_rate_outside_a_protocol_is_one_line(gradleak):
    ended = gradleak("show", "dlg,rate=tuned")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "a rate is tuned in a protocol" in ended.err


def test_a_spoilt_file_is_one_line_with_its_place(file, results, gradleak):
    (results / "tiny").mkdir(parents=True)
    (results / "tiny/tuning.yaml").write_text("dlg: {version: '1'}\n")
    ended = gradleak("run", file, "--attack", "dlg,rate=tuned", "--results", results)
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "tuning.yaml: dlg.protocol_digest: " in ended.err


def test_rates_go_on_beyond_the_factors_while_the_outermost_is_best():
    rising = dict(zip(RATES, [0.9, 0.8, 0.7, 0.6, 0.5], strict=True))
    assert next_rate(rising, 0.2) == 5.4
    assert next_rate({**rising, 5.4: 0.9}, 0.2) is None
    falling = dict(zip(RATES, [0.1, 0.8, 0.7, 0.6, 0.5], strict=True))
    assert next_rate(falling, 0.2) == 0.0073
    endless = {0.2 * 3.0**n: 1.0 - 0.1 * n for n in range(6)}
    assert next_rate({**rising, **endless}, 0.2) is None


def test_of_rates_that_rounding_cannot_tell_apart_the_nearest_to_the_default_is_chosen():
    assert choose({0.067: -4e-8, 0.2: 3e-8, 0.6: 1e-9, 1.8: 0.5}, 0.2) == 0.2
    assert choose({0.067: 1e-9, 0.2: 3e-5, 0.6: 1e-3}, 0.2) == 0.067


def test_a_plain_answer_has_no_mismatch_to_choose_by():
    assert not hasattr(Reconstruction(), "mismatch")
    assert Found().mismatch == float("inf")
