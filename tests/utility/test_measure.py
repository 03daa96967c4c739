from dataclasses import replace

import pytest
import torch
import yaml

from benchmark.data import Tokenizer, TokenSet
from benchmark.errors import ProtocolError, RecordError
from benchmark.prices import Prices
from benchmark.protocol import load_utility, utility_files
from benchmark.registry import Registry
from benchmark.utility import Order, measure, tasks
from benchmark.utility.measure import Bench

TINY = {
    "name": "tiny",
    "version": 1,
    "title": "Tiny",
    "description": "As small as it gets.",
    "data": {"name": "digits", "size": 8},
    "victim": {"architecture": "april_b", "patch": 4, "width": 16, "depth": 1},
    "training": {"clients": 2, "rounds": 2, "batch_size": 8, "rates": [1e-9, 0.1]},
    "seeds": [0, 1],
    "defenses": ["none", "withhold_position"],
    "leakage": ["quick_digits_search"],
}
TEXT = {
    "track": "text",
    "data": {"name": "pydoc", "tokenizer": "pydoc", "length": 8},
    "victim": {"architecture": "transformer3", "width": 8, "depth": 1, "heads": 2, "mlp": 16},
    "leakage": ["quick_pydoc_transformer3"],
}
VOCABULARY = 12


@pytest.fixture
def order(tmp_path):
    def make(results=None, **changes):
        path = tmp_path / "tiny.yaml"
        path.write_text(yaml.safe_dump(TINY | changes))
        place = results or tmp_path / "results"
        return Order(load_utility(str(path)), place, (), None, (), None, torch.device("cpu"))

    return make


@pytest.fixture
def counted(monkeypatch):
    """Text that counts: each token but the first is one more than the one before it."""

    def load_tokens(name, split, tokenizer, mirror, *, skip_lines):
        text = torch.arange(163) % VOCABULARY
        return TokenSet(name, split, {"long": text, "short": text[:3]}, "users")

    made = Tokenizer("pydoc", VOCABULARY, mask_token=0, model=None)
    monkeypatch.setattr(tasks, "load_tokenizer", lambda name, mirror: made)
    monkeypatch.setattr(tasks, "load_tokens", load_tokens)


def run(order):
    return list(measure(order))


def upto(best, sign=1):
    """Return held-out figures that grow with the rate, or fall, up to the best one."""

    def held_out(self, submission, seed, rate):
        return sign * min(rate, best**2 / rate)

    return held_out


@pytest.mark.parametrize(
    ("best", "rates"), [(0.3, [0.01, 0.1]), (0.003, [0.03, 0.01]), (0.01, [0.01, 0.03])]
)
def test_where_the_best_rate_is_at_an_end_others_beyond_it_are_tried(
    order, monkeypatch, best, rates
):
    monkeypatch.setattr(Bench, "_held_out", upto(best))
    protocol = order(training={**TINY["training"], "rates": rates}).protocol
    bench = Bench(protocol, tasks.load_task(protocol, Registry(), None, torch.device("cpu")))
    assert bench.best_rate(Registry().find("defense", "none")[0]) == best


def test_where_nothing_learns_a_few_rates_beyond_are_all_that_is_tried(order, monkeypatch):
    tried = []
    monkeypatch.setattr(Bench, "_held_out", lambda *given: tried.append(given[-1]) or 0.0)
    run(order(defenses=["none"], seeds=[0]))
    assert tried == [1e-9, 0.1, 3e-10, 9e-11, 3e-11, 9e-12]


def test_a_price_is_recorded_for_each_defense_and_seed_and_not_again(order):
    first = run(order())
    assert first[0] == "tiny: 2 defenses, 4 trainings due"
    assert first[1].startswith("none: ")
    found = Prices(order().results).found.values()
    assert {(p.defense, p.seed) for p in found} == {
        (name, seed) for name in TINY["defenses"] for seed in (0, 1)
    }
    assert all(0 <= p.accuracy <= 1 and p.rate > 0 and p.sent > 0 for p in found)
    assert run(order()) == ["tiny: 2 defenses, 0 trainings due"]


def test_the_rate_is_the_one_that_does_best_on_the_held_out_part(order):
    longer = {**TINY["training"], "rounds": 30, "rates": [1e-9, 0.03, 1e4]}
    run(order(training=longer, defenses=["none"], seeds=[0]))
    (price,) = Prices(order().results).found.values()
    assert price.rate == 0.03


def test_the_rate_is_chosen_over_all_seeds_even_where_one_is_measured(order, monkeypatch):
    tried = []

    def held_out(self, submission, seed, rate):
        tried.append((seed, rate))
        known = {(0, 1e-9): 0.5, (1, 1e-9): 0.5, (0, 0.1): 0.9, (1, 0.1): 0.0}
        return known.get((seed, rate), 0.0)

    monkeypatch.setattr(Bench, "_held_out", held_out)
    run(replace(order(defenses=["none"]), seeds=(0,)))
    run(order(defenses=["none"]))
    assert tried == [(s, rate) for rate in (1e-9, 0.1, 3e-10) for s in (0, 1)]  # and not again
    assert {p.rate for p in Prices(order().results).found.values()} == {1e-9}


def test_other_seeds_take_the_rate_that_was_chosen_not_one_that_a_seed_went_down_to(
    order, monkeypatch
):
    monkeypatch.setattr(Bench, "_held_out", upto(0.1))
    settled = Bench._settled

    def diverging(self, submission, seed, rate):
        return settled(self, submission, seed, 1e-9 if seed == 0 else rate)

    monkeypatch.setattr(Bench, "_settled", diverging)
    run(order(defenses=["none"]))
    run(replace(order(defenses=["none"]), seeds=(2,)))
    rates = {price.seed: price.rate for price in Prices(order().results).found.values()}
    assert rates == {0: 1e-9, 1: 0.1, 2: 0.1}


def test_a_training_that_diverges_is_done_again_at_the_next_lower_rate(order, monkeypatch):
    monkeypatch.setattr(Bench, "_held_out", upto(1e30))
    steep = {**TINY["training"], "rounds": 30, "rates": [1e-9, 0.03, 1e30]}
    run(order(training=steep, defenses=["none"], seeds=[0]))
    (price,) = Prices(order().results).found.values()
    assert price.rate == 0.03
    assert price.accuracy > 0.2


def test_what_a_trained_victim_makes_of_shuffled_images_stands_in_the_price(order):
    wide = {**TINY["victim"], "patch": 2}
    run(order(defenses=["none"], seeds=[0], shuffled_by="mjp,gamma=0.5", victim=wide))
    (price,) = Prices(order().results).found.values()
    told = price.diagnostics
    assert 0 <= told["consistency"] <= 1
    assert told["difference"] > 0
    assert told["position_error_2d"] > 0
    assert 0 < told["explained_variance_3"] < told["explained_variance_7"] <= 1 + 1e-9


def test_a_title_makes_nothing_due_and_another_round_everything(order):
    run(order(defenses=["none"]))
    assert run(order(defenses=["none"], title="Other")) == ["tiny: 1 defenses, 0 trainings due"]
    longer = {**TINY["training"], "rounds": 3}
    assert run(order(defenses=["none"], training=longer))[0].endswith("2 trainings due")


def test_a_defense_that_does_not_fit_says_why_and_has_no_accuracy(order):
    lines = run(order(defenses=["withhold,blocks=5-8"], seeds=[0]))
    assert lines[1].startswith("withhold,blocks=5-8: n/a: ")
    (price,) = Prices(order().results).found.values()
    assert price.accuracy is None


def test_epsilon_of_differential_privacy_stands_in_the_price(order):
    run(order(defenses=["dp_sgd,noise=1.0,rounds=2,sampling_rate=0.1"], seeds=[0]))
    (price,) = Prices(order().results).found.values()
    assert 0 < price.description["epsilon"] < 10


@pytest.mark.usefixtures("counted")
def test_text_is_priced_by_its_perplexity_at_the_rate_where_that_is_lowest(order):
    longer = {**TINY["training"], "rounds": 40, "rates": [1e-9, 0.1, 1e4]}
    lines = run(order(**TEXT, training=longer, defenses=["none", "mjp,defaults"], seeds=[0]))
    plain, unfit = Prices(order().results).found.values()
    assert 1 < plain.perplexity < VOCABULARY / 2
    assert (plain.rate, plain.accuracy) == (0.1, None)
    assert lines[1].startswith(f"none: {plain.perplexity:.1f} at rate 0.1, ")
    assert lines[2].startswith("mjp: n/a: ")
    assert (unfit.perplexity, unfit.rate) == (None, None)


@pytest.mark.usefixtures("counted")
def test_text_that_a_masked_victim_reads_is_priced_by_its_hidden_tokens(order):
    victim = {"architecture": "bert_base", "width": 8, "depth": 1, "heads": 2}
    run(order(**TEXT | {"victim": victim}, defenses=["none"], seeds=[0]))
    (price,) = Prices(order().results).found.values()
    assert 1 < price.perplexity < 10 * VOCABULARY


@pytest.mark.usefixtures("counted")
def test_training_on_text_that_diverges_is_done_again_at_the_next_lower_rate(order, monkeypatch):
    monkeypatch.setattr(Bench, "_held_out", upto(1e30, sign=-1))
    steep = {**TINY["training"], "rounds": 40, "rates": [0.1, 1e30]}
    run(order(**TEXT, training=steep, defenses=["none"], seeds=[0]))
    (price,) = Prices(order().results).found.values()
    assert price.rate == 0.1
    assert price.perplexity < VOCABULARY / 2


@pytest.mark.usefixtures("counted")
def test_of_trainings_that_all_diverge_the_best_stands(order, monkeypatch):
    monkeypatch.setattr(Bench, "_held_out", upto(1e30, sign=-1))
    slow = {**TINY["training"], "rates": [1e-9, 1e-3, 1e30]}
    run(order(**TEXT, training=slow, defenses=["none"], seeds=[0]))
    run(order(**TEXT, training={**slow, "rates": [1e30]}, defenses=["none"], seeds=[0]))
    slowest, never = Prices(order().results).found.values()
    assert slowest.rate == 1e-3
    assert slowest.perplexity > VOCABULARY / 2
    assert (never.perplexity, never.reason) == (None, "diverged at every rate")


def test_damaged_line_is_an_error_that_names_it(order):
    path = order().results / "utility.jsonl"
    path.parent.mkdir()
    path.write_text('{"protocol": 1}\n')
    with pytest.raises(RecordError, match=r"utility\.jsonl:1: not a price"):
        run(order())


@pytest.mark.parametrize(
    ("training", "said"),
    [
        ({"split": "dirichlet"}, "split: dirichlet and concentration stand together"),
        ({"local_steps": 3}, "local_steps above 1 and local_rate stand together"),
        ({"rates": [-1.0]}, "rates are above 0"),
        ({"rounds": 0}, "training.rounds"),
    ],
)
def test_wrong_training_is_refused(order, training, said):
    with pytest.raises(ProtocolError, match=said):
        order(training={**TINY["training"], **training})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"training": {**TINY["training"], "split": "dirichlet", "concentration": 1.0}},
            "dirichlet shares out classes, and text has none; wanted iid",
        ),
        ({"shuffled_by": "mjp"}, "shuffled_by"),
        ({"data": {"name": "digits", "size": 8}}, "data"),
        ({"track": "sound"}, "track: wanted vision or text, got 'sound'"),
    ],
)
def test_what_does_not_fit_text_is_refused(order, changes, said):
    with pytest.raises(ProtocolError, match=said):
        order(**TEXT | changes)


@pytest.mark.parametrize(
    ("name", "digest"),
    [("digits_small_b", "3471b09ea98e045d"), ("digits_small_b_long", "fb9c2bd2b38f21bf")],
)
def test_digest_is_the_one_that_recorded_prices_hang_on(name, digest):
    assert load_utility(name).digest == digest


@pytest.mark.parametrize("name", utility_files())
def test_shipped_utility_protocol_names_what_there_is(name):
    protocol, registry = load_utility(name), Registry()
    assert all(registry.find("defense", one) for one in protocol.defenses)
    from benchmark.protocol import load_protocol

    assert all(load_protocol(name) for name in protocol.leakage)
