import gc
import weakref

import numpy as np
import pytest
import torch

from benchmark.contract import Defense, ImageBatch, Update
from benchmark.data import load_images
from benchmark.errors import DefenseError, PluginError, ProtocolError
from benchmark.federation import DefendedRound, Round, draw_images, fedsgd, kept
from benchmark.seeds import PUBLIC, Key

SMALL = {"width": 32, "depth": 1}


@pytest.fixture
def make_round(make_victim):
    digits = load_images("digits", "test", 28)

    def make(name="here", seed=0, *, trials=3, batch_size=2, **settings):
        sizes = {"trials": trials, "batch_size": batch_size}
        truths = draw_images(name, digits, seed, **sizes, **settings)
        return Round(name, seed, make_victim(**SMALL), truths)

    return make


def same(one, other):
    return list(one) == list(other) and all(torch.equal(one[name], other[name]) for name in one)


def test_trials_are_disjoint_and_follow_from_the_data_and_the_seed(make_round):
    first, other_name, other_seed = make_round(), make_round("there"), make_round(seed=1)
    images = torch.cat([truth.images for truth in first.truths])
    assert images.shape == (6, 1, 28, 28)
    assert torch.unique(images, dim=0).shape == images.shape
    for truth, twin in zip(first.truths, other_name.truths, strict=True):
        assert torch.equal(truth.images, twin.images)
        assert torch.equal(truth.labels, twin.labels)
    assert not torch.equal(first.truths[0].images, other_seed.truths[0].images)


def test_fewer_trials_are_the_first_of_more(make_round):
    few, many = make_round(trials=2), make_round(trials=5)
    assert torch.equal(few.truths[1].images, many.truths[1].images)


def test_more_trials_than_images_are_refused(make_round):
    with pytest.raises(
        ProtocolError, match=r"here: 1000 trials of 2 images wanted, digits has 797"
    ):
        make_round(trials=1000)


def test_distinct_labels_stand_once_in_a_batch_and_no_image_in_two(make_round):
    plain = make_round(trials=20, batch_size=8, distinct_labels=True)
    for truth in plain.truths:
        assert len(truth.labels.unique()) == 8
    images = torch.cat([truth.images for truth in plain.truths]).flatten(1)
    assert len(torch.unique(images, dim=0)) == len(images)


def test_batches_of_more_labels_than_there_are_classes_are_refused(make_round):
    wanted = "here: 3 batches of 11 distinct labels wanted, digits has 0 in its test split"
    with pytest.raises(ProtocolError, match=wanted):
        make_round(batch_size=11, distinct_labels=True)


def test_update_is_the_client_s_and_computed_once(make_round):
    plain = make_round()
    assert same(plain.update(1), fedsgd(plain.victim, plain.truths[1]))
    assert plain.update(1) is plain.update(1)
    assert not same(plain.update(0), plain.update(1))


def test_update_that_was_dropped_for_room_is_computed_again_the_same(make_round, monkeypatch):
    monkeypatch.setattr(kept, "_DEAR", 0)
    plain = make_round()
    first = plain.update(0)
    plain.kept_bytes = first.nbytes
    plain.update(1)
    again = plain.update(0)
    assert again is not first
    assert same(again, first)


def test_updates_that_fit_are_shared_by_who_asks_in_the_same_order(make_round, monkeypatch):
    monkeypatch.setattr(kept, "_DEAR", 0)
    plain = make_round()
    plain.kept_bytes = 2 * plain.update(0).nbytes
    once = [plain.update(trial) for trial in range(3)]
    again = [plain.update(trial) for trial in range(3)]
    assert [a is b for a, b in zip(once, again, strict=True)] == [True, False, False]


def test_round_that_is_let_go_frees_its_updates_at_once(make_round):
    plain = make_round()
    corrupted = DefendedRound(plain.with_parameters(plain.victim.weights()), Defense(), "none")
    freed = [weakref.ref(plain.update(0)), weakref.ref(corrupted.update(0))]
    gc.disable()
    try:
        del plain, corrupted
        assert [update() for update in freed] == [None, None]
    finally:
        gc.enable()


def test_round_of_parameters_that_one_attack_sent_keeps_no_more_than_its_newest(make_round):
    plain = make_round()
    corrupted = plain.with_parameters(plain.victim.weights())
    first, second = corrupted.update(0), corrupted.update(1)
    assert corrupted.kept(0) is None
    assert corrupted.update(1) is second
    assert same(corrupted.update(0), first)


def test_no_defense_shares_victim_and_update(make_round):
    plain = make_round()
    defended = DefendedRound(plain, Defense(), "none")
    assert defended.model is defended.server_model is plain.victim
    assert defended.update(2) is plain.update(2)


class Noise(Defense):
    def protect_update(self, update, model, draws):
        drawn = {name: draws.random(t.shape, dtype=np.float32) for name, t in update.items()}
        return Update({name: t + torch.from_numpy(drawn[name]) for name, t in update.items()})


def test_draws_of_a_defense_are_its_own_and_every_trial_s(make_round):
    plain = make_round()

    def drawn(label, trial, key=PUBLIC):
        defended = DefendedRound(plain, Noise(), label, key)
        return defended.update(trial)["head.bias"] - plain.update(trial)["head.bias"]

    assert torch.equal(drawn("a", 0), drawn("a", 0))
    assert not torch.allclose(drawn("a", 0), drawn("a", 1))
    assert not torch.allclose(drawn("a", 0), drawn("b", 0))
    assert not torch.allclose(drawn("a", 0), drawn("a", 0, Key(b"another")))


def test_truth_is_frozen_before_a_defense_meets_the_batch(make_round):
    class Blackens(Defense):
        def protect_batch(self, batch, model, draws):
            batch.images.zero_()
            batch.labels.zero_()
            return batch

    plain = make_round()
    before = [(truth.images.clone(), truth.labels.clone()) for truth in plain.truths]
    DefendedRound(plain, Blackens(), "blackens").update(0)
    for truth, (images, labels) in zip(plain.truths, before, strict=True):
        assert torch.equal(truth.images, images)
        assert torch.equal(truth.labels, labels)


def test_hooks_are_met_in_the_order_of_the_data(make_round, make_victim):
    other = make_victim(**SMALL, seed=5)

    class Replaces(Defense):
        def harden(self, model, generator):
            return other

        def protect_batch(self, batch, model, draws):
            assert model is other
            return ImageBatch(1 - batch.images, batch.labels)

        def protect_update(self, update, model, draws):
            assert model is other
            return update.without("pos_embed")

        def server_view(self, model):
            assert model is other
            return plain.victim

    plain = make_round()
    defended = DefendedRound(plain, Replaces(), "replaces")
    truth = plain.truths[0]
    wanted = fedsgd(other, ImageBatch(1 - truth.images, truth.labels)).without("pos_embed")
    assert same(defended.update(0), wanted)
    assert torch.equal(defended.batch(0).images, 1 - truth.images)
    assert defended.model is other
    assert defended.server_model is plain.victim


@pytest.mark.parametrize(
    "hook", ["harden", "protect_batch", "protect_update", "server_view", "client_keys"]
)
def test_hook_that_fails_is_named_in_one_line(make_round, hook):
    def fails(*_):
        raise ValueError("boom\nand more")

    broken = type("Broken", (Defense,), {hook: fails})()
    defended = DefendedRound(make_round(), broken, "broken")
    with pytest.raises(PluginError, match=r"^defense broken: ValueError: boom$"):
        defended.update(0), defended.server_model, defended.client_keys


def sends(**tensors):
    return lambda _self, update, *_: Update({**update, **tensors})


@pytest.mark.parametrize(
    ("hooks", "said"),
    [
        ({"protect_update": lambda *_: None}, "returned a NoneType; wanted an Update"),
        ({"protect_update": sends(tail=torch.zeros(1))}, "returned tail, which is no parameter"),
        (
            {"protect_update": sends(**{"head.bias": torch.zeros(3)})},
            "returned head.bias (3,); wanted (10,)",
        ),
        (
            {"protect_update": sends(**{"head.bias": torch.zeros(10).double()})},
            "returned head.bias of torch.float64; wanted torch.float32",
        ),
        (
            {"protect_update": sends(**{"head.bias": [0.0] * 10})},
            "returned head.bias of type list; wanted a tensor",
        ),
        (
            {"protect_update": sends(**{"head.bias": torch.full((10,), torch.nan)})},
            "returned head.bias with values that are not finite",
        ),
        ({"protect_update": lambda *_: exit(0)}, "SystemExit: 0"),
        ({"compute_update": lambda *_: None}, "returned a NoneType; wanted an Update"),
        ({"protect_batch": lambda *_: None}, "protect_batch returned a NoneType; wanted a Image"),
        ({"harden": lambda *_: None}, "harden returned a NoneType; wanted a Victim"),
        ({"server_view": lambda *_: None}, "server_view returned a NoneType; wanted a Victim"),
        ({"client_keys": lambda *_: {"a": 1}}, "client_keys returned a int; wanted a Tensor"),
        ({"describe": lambda *_: 1 / 0}, "ZeroDivisionError: division by zero"),
    ],
    ids=" ".join,
)
def test_defense_that_breaks_the_contract_is_named_with_the_parameter(make_round, hooks, said):
    broken = DefendedRound(make_round(), type("Broken", (Defense,), hooks)(), "broken")
    with pytest.raises(DefenseError) as raised:
        broken.update(0), broken.server_model, broken.client_keys, broken.description
    assert str(raised.value).startswith("defense broken: ")
    assert said in str(raised.value)


def test_update_whose_sum_alone_is_not_finite_is_no_fault(make_round):
    large = sends(**{"head.bias": torch.full((10,), 3e38)})
    sent = DefendedRound(make_round(), type("Large", (Defense,), {"protect_update": large})(), "a")
    assert sent.update(0)["head.bias"].sum().isinf()


def test_update_that_was_not_finite_before_is_not_laid_to_the_defense(make_round):
    plain = make_round()
    plain.victim.weights()["head.bias"].data.fill_(torch.nan)
    for defense in (Defense(), Noise()):
        assert DefendedRound(plain, defense, "a").update(0)["head.bias"].isnan().any()


def test_defense_may_compute_the_update_from_parts_of_the_batch(make_round):
    class Halves(Defense):
        def compute_update(self, batch, model, gradient, draws):
            first = ImageBatch(batch.images[:1], batch.labels[:1])
            return gradient(first)

    plain = make_round()
    truth = plain.truth(0)
    wanted = fedsgd(plain.victim, ImageBatch(truth.images[:1], truth.labels[:1]))
    assert same(DefendedRound(plain, Halves(), "halves").update(0), wanted)


def test_later_rounds_hold_the_same_batch_under_other_draws(make_round, draw):
    plain = make_round()
    plain.answers = 3

    class Noise(Defense):
        def protect_update(self, update, model, draws):
            return Update(
                {
                    n: t + torch.from_numpy(draws.standard_normal(t.shape)).float()
                    for n, t in update.items()
                }
            )

    defended = DefendedRound(plain, Noise(), "noise")
    later = defended.later(0)
    assert len(later) == 2
    assert not same(later[0], later[1])
    assert not same(later[0], defended.update(0))
    assert same(DefendedRound(plain, Noise(), "noise").later(0)[1], later[1])
    bare = DefendedRound(plain, Defense(), "none")
    assert all(same(each, bare.update(0)) for each in bare.later(0))


def test_a_defense_makes_every_gradient_of_local_training(make_round):
    from benchmark.contract import LocalTraining
    from benchmark.federation import Client

    plain = make_round()
    plain.client = Client(local=LocalTraining(3, 1, 0.1))
    asked = []

    class Halves(Defense):
        def compute_update(self, batch, model, gradient, draws):
            asked.append(len(batch))
            return Update({name: tensor / 2 for name, tensor in gradient(batch).items()})

    sent = DefendedRound(plain, Halves(), "halves").update(0)
    assert asked == [1, 1, 1]
    assert sent.norm() < 0.7 * plain.update(0).norm()
