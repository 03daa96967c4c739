import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmark.seeds import Key, derive_seed, generator

parts = st.lists(st.one_of(st.integers(), st.text("ab1", max_size=3)), max_size=4)


@given(st.integers(), parts)
def test_derived_seed_fits_63_bits_and_depends_on_its_parts_alone(base, names):
    seed = derive_seed(base, *names)
    assert 0 <= seed < 2**63
    assert seed == derive_seed(base, *names)


@given(st.integers(), parts, st.text("ab1", max_size=3))
def test_another_part_is_another_stream(base, names, extra):
    assert derive_seed(base, *names, extra) != derive_seed(base, *names)
    assert derive_seed(base + 1, *names) != derive_seed(base, *names)


def test_parts_are_kept_apart():
    assert derive_seed(0, "ab", "c") != derive_seed(0, "a", "bc")
    assert derive_seed(1, 2) != derive_seed(12)


def test_seeds_stay_what_they_were_when_results_were_recorded():
    assert derive_seed(0, "trial", 3) == 8394941653368513228


def test_generator_draws_what_its_seed_says_and_leaves_the_global_stream_alone():
    state = torch.get_rng_state()
    drawn = torch.rand(3, generator=generator(0, "a"))
    assert torch.equal(drawn, torch.rand(3, generator=generator(0, "a")))
    assert not torch.equal(drawn, torch.rand(3, generator=generator(0, "b")))
    assert torch.equal(state, torch.get_rng_state())


def test_secret_draws_depend_on_the_key_and_every_part_and_on_nothing_else():
    drawn = Key().draws(0, "a").random(3)
    assert (drawn == Key().draws(0, "a").random(3)).all()
    for other in (Key().draws(0, "b"), Key().draws(1, "a"), Key(b"mine").draws(0, "a")):
        assert not (drawn == other.random(3)).any()


def test_secret_draws_are_keyed_by_128_bits():
    keys = [Key().draws(i).bit_generator.state["state"]["key"] for i in range(4)]
    assert all(word >= 2**32 for key in keys for word in key)


def test_draws_of_the_public_key_stay_what_they_were_when_results_were_recorded():
    assert Key().draws(0, "trial", 3).integers(10**9) == 578860278


def test_key_tells_its_digest_and_never_itself():
    key = Key(b"sixteen bytes 16")
    assert key.digest is not None
    assert key.digest != Key(b"sixteen bytes 17").digest
    assert "sixteen" not in repr(key) + key.digest
    assert Key().digest is None
