"""Norms and inner products from factors against the formed gradients."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmark.contract import Update
from benchmark.toolbox.matching import products
from benchmark.toolbox.matching.ghost import Target
from benchmark.toolbox.matching.gradients import EmbeddingLookup, Product, Trace
from benchmark.toolbox.matching.rank import decompose

KINDS = ["product", "lookup", "tensor", "one row"]


def normal(seed, *shape, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def gradient_of(kind, trials, tokens, outs, ins, seed=0):
    """Return a gradient of this kind, and the same as a matrix, (trials, outs, ins)."""
    if kind == "lookup":
        ids = torch.randint(outs, (trials, tokens), generator=torch.Generator().manual_seed(seed))
        gradient = EmbeddingLookup(ids, normal(seed + 1, trials, tokens, ins), outs)
        matrix = torch.zeros(trials, outs, ins, dtype=torch.float64)
        for trial, token in ((i, t) for i in range(trials) for t in range(tokens)):
            matrix[trial, ids[trial, token]] += gradient.outputs[trial, token]
        return gradient, matrix
    if kind == "tensor":
        matrix = normal(seed, trials, outs, ins)
        return matrix.flatten(1), matrix
    inputs = normal(seed, trials, tokens, ins)
    outputs = normal(seed + 1, trials, tokens, 1 if kind == "one row" else outs)
    return Product(inputs, outputs), torch.einsum("nto,nti->noi", outputs, inputs)


def of_rank(seed, rank, outs=80, ins=70, dtype=torch.float64):
    return normal(seed, outs, rank, dtype=dtype) @ normal(seed + 1, rank, ins, dtype=dtype)


def updates_of(matrices):
    return [Update({"w": matrix}) for matrix in matrices]


def trace_of(gradient):
    return Trace(torch.zeros(1), {"w": gradient})


def check(products, matrix, seen):
    """Compare products with what the formed gradients give, to the norms' precision."""
    dummy, observed = matrix.flatten(1), seen.flatten(1)
    wanted = (dummy.square().sum(1), (dummy * observed).sum(1), observed.square().sum(1))
    scale = (wanted[0] + wanted[2]).max()
    found = (products.dummy, products.inner, products.seen)
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == torch.float64
        assert (one - other).abs().max() <= 1e-12 * scale
    distance = (dummy - observed).square().sum(1)
    assert (products.squared_distance - distance).abs().max() <= 1e-12 * scale


@given(
    trials=st.integers(1, 4),
    tokens=st.integers(1, 12),
    outs=st.integers(1, 9),
    ins=st.integers(1, 9),
    seed=st.integers(0, 99),
)
@pytest.mark.parametrize("kind", KINDS)
def test_products_agree_with_the_formed_gradients(kind, trials, tokens, outs, ins, seed):
    gradient, matrix = gradient_of(kind, trials, tokens, outs, ins, seed)
    seen = normal(seed + 2, *matrix.shape)
    check(Target(updates_of(seen), ["w"]).products(trace_of(gradient), "w"), matrix, seen)


@pytest.mark.parametrize("kind", ["product", "lookup", "tensor"])
def test_products_with_a_decomposed_update_agree_with_the_formed_gradients(kind):
    gradient, matrix = gradient_of(kind, 3, 7, 80, 70)
    seen = torch.stack([of_rank(10 * rank, rank) for rank in (1, 20, 5)])
    target = Target(updates_of(seen), ["w"])
    assert "w" in target.ranks
    check(target.products(trace_of(gradient), "w"), matrix, seen)


def test_images_of_a_convolution_s_kernel_are_matched_flat():
    gradient, matrix = gradient_of("product", 2, 5, 4, 12)
    seen = normal(9, *matrix.shape)
    target = Target(updates_of(seen.view(2, 4, 3, 2, 2)), ["w"])
    check(target.products(trace_of(gradient), "w"), matrix, seen)


@pytest.mark.parametrize(
    ("rank", "tokens", "formed"), [(3, 57, False), (3, 58, True), (80, 20, False), (80, 21, True)]
)
def test_product_is_formed_only_where_that_is_the_smaller_work(monkeypatch, rank, tokens, formed):
    outs = ins = 80  # 2 (tokens + rank) 160 multiplications a token against 3 * 80 * 80
    called = []
    monkeypatch.setattr(products._Formed, "apply", lambda *given: called.append(given))
    gradient, matrix = gradient_of("product", 1, tokens, outs, ins)
    target = Target(updates_of(of_rank(1, rank, outs, ins)[None]), ["w"])
    if formed:
        with pytest.raises(TypeError):  # what stands in its place returns nothing
            target.products(trace_of(gradient), "w")
    else:
        check(target.products(trace_of(gradient), "w"), matrix, of_rank(1, rank, outs, ins)[None])
    assert bool(called) == formed


@pytest.mark.parametrize("tokens", [4, 60])
@pytest.mark.parametrize("rank", [3, 70])
def test_derivatives_of_products_agree_with_autograd(rank, tokens):
    seen = torch.stack([of_rank(10 * i, rank) for i in range(3)])
    inputs, outputs = (normal(i, 3, tokens, n).requires_grad_() for i, n in ((1, 70), (2, 80)))
    vector = normal(3, 3, 9).requires_grad_()
    updates = [Update({"w": w, "v": v}) for w, v in zip(seen, normal(4, 3, 9), strict=True)]
    trace = Trace(torch.zeros(3), {"w": Product(inputs, outputs), "v": vector})
    order, found = Target(updates, ["w", "v"]).compare(trace, ["w", "v"])
    assert order == ["v", "w"]
    formed = outputs.mT @ inputs
    wanted = torch.stack(
        [
            torch.stack([vector.square().sum(1), formed.square().sum((1, 2))]),
            torch.stack([(vector * normal(4, 3, 9)).sum(1), (formed * seen).sum((1, 2))]),
        ]
    )
    factors = normal(5, 2, 2, 3)
    variables = (inputs, outputs, vector)
    for one, other in zip(
        torch.autograd.grad((factors * torch.stack([found.dummy, found.inner])).sum(), variables),
        torch.autograd.grad((factors * wanted).sum(), variables),
        strict=True,
    ):
        assert (one - other).abs().max() <= 1e-12 * other.abs().max()


def test_distance_of_equal_gradients_is_zero_to_float32_s_rounding():
    product = Product(
        normal(0, 4, 17, 200, dtype=torch.float32), normal(1, 4, 17, 200, dtype=torch.float32)
    )
    found = Target(updates_of(product.form()), ["w"]).products(trace_of(product), "w")
    assert found.dummy.dtype == found.inner.dtype == found.seen.dtype == torch.float64
    assert (found.squared_distance.abs() < 1e-6 * found.seen).all()


def test_update_of_low_rank_is_decomposed_at_its_rank():
    target = Target([Update({"w": of_rank(0, 5), "v": normal(0, 80)})], ["w", "v"])
    assert target.ranks == {"w": 5}


@pytest.mark.parametrize("rank", [1, 31, 32, 40, 100])
@pytest.mark.parametrize("smallest", [1.0, 1e-4])
def test_decomposition_holds_the_update_to_float32_s_rounding(rank, smallest):
    left = torch.linalg.qr(normal(0, 384, rank, dtype=torch.float32))[0]
    right = torch.linalg.qr(normal(1, 300, rank, dtype=torch.float32))[0]
    scale = torch.logspace(0, torch.tensor(smallest).log10().item(), rank)
    seen = (left * scale) @ right.mT
    target = Target(updates_of([seen]), ["w"])
    low = target._low["w"]
    assert rank <= target.ranks["w"] <= 1.25 * rank + 2  # rounding may look like rank
    assert torch.linalg.norm(low.left[0] @ low.right[0].mT - seen) < 6e-6 * seen.norm()


def test_decomposition_at_the_size_of_its_sketch_is_as_exact_as_below():
    away = {}
    for rank in (24, 32):
        seen = [of_rank(i, rank, 384, 300, torch.float32) for i in range(0, 40, 2)]
        pairs = [decompose(one) for one in seen]
        errors = [(u @ v.mT - g).norm() / g.norm() for (u, v), g in zip(pairs, seen, strict=True)]
        away[rank] = max(errors)
    assert away[32] < 3 * away[24]


def test_trials_of_lower_rank_are_filled_up():
    seen = torch.stack([of_rank(0, 3), of_rank(10, 9), torch.zeros(80, 70, dtype=torch.float64)])
    target = Target(updates_of(seen), ["w"])
    assert target.ranks == {"w": 9}
    gradient, matrix = gradient_of("product", 3, 4, 80, 70)
    check(target.products(trace_of(gradient), "w"), matrix, seen)


@pytest.mark.parametrize("noised", [[True], [False, True, False]])
def test_noised_update_is_matched_as_it_came(noised):
    seen = torch.stack([of_rank(i, 3) + 1e-2 * y * normal(i, 80, 70) for i, y in enumerate(noised)])
    target = Target(updates_of(seen), ["w"])
    assert target.ranks == {}
    gradient, matrix = gradient_of("product", len(noised), 4, 80, 70)
    check(target.products(trace_of(gradient), "w"), matrix, seen)


def test_small_matrices_and_vectors_are_not_decomposed():
    update = Update(
        {"small": of_rank(0, 1, 64, 80), "bias": normal(0, 90), "positions": normal(0, 1, 90, 80)}
    )
    assert Target([update], list(update)).ranks == {}


@pytest.mark.parametrize("rows", [[2, 0], [1], [0, 1, 2], [1, 1, 2]])
@pytest.mark.parametrize("rank", [3, 70])
def test_kept_rows_are_those_asked_for_in_their_order(rows, rank):
    seen = torch.stack([of_rank(10 * i, rank) for i in range(3)])
    vectors = normal(5, 3, 9)
    target = Target(
        [Update({"w": w, "v": v}) for w, v in zip(seen, vectors, strict=True)], ["w", "v"]
    )
    kept = target.keep(torch.tensor(rows))
    assert len(kept) == len(rows)
    gradient, matrix = gradient_of("product", len(rows), 4, 80, 70)
    dummy = normal(6, len(rows), 9)
    trace = Trace(torch.zeros(len(rows)), {"w": gradient, "v": dummy})
    check(kept.products(trace, "w"), matrix, seen[rows])
    check(kept.products(trace, "v"), dummy, vectors[rows])
    absolute = (matrix - seen[rows]).abs().sum((1, 2))
    torch.testing.assert_close(kept.absolute(trace, "w"), absolute, rtol=1e-12, atol=0)


def test_keeping_every_row_copies_nothing():
    target = Target(updates_of([of_rank(0, 3), of_rank(1, 3)]), ["w"])
    assert target.keep(torch.arange(2)) is target


def test_updates_of_the_target_are_not_copied():
    seen = normal(0, 3, 80, 70)
    assert Target(updates_of(seen), ["w"])._updates[0]["w"].data_ptr() == seen.data_ptr()


def test_decomposition_draws_nothing_from_the_global_generator():
    before = torch.get_rng_state()
    first, second = (decompose(of_rank(0, 5)) for _ in range(2))
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))
