"""Names chosen by a victim's anatomy."""

from itertools import pairwise

import pytest

from benchmark.errors import NotApplicable
from benchmark.toolbox.matching import select

APRIL = {"architecture": "april_b", "width": 16, "depth": 3}
TIMM = {"patch": 7, "depth": 3, "width": 24}
VICTIMS = [
    APRIL,
    {**APRIL, "architecture": "april_a"},
    {"architecture": "timm/vit_tiny_patch16_224", **TIMM},
    {"architecture": "timm/deit_tiny_distilled_patch16_224", **TIMM},
]


@pytest.fixture(scope="module", params=VICTIMS, ids=lambda settings: settings["architecture"])
def victim(make_victim, request):
    return make_victim(**request.param)


def names_with(victim, *parts):
    return frozenset(name for name in victim.weights() if any(part in name for part in parts))


def test_blocks_are_counted_from_1_with_both_ends(victim):
    found = select.in_blocks(victim, victim.weights(), 2, 3)
    assert found == names_with(victim, "blocks.1.", "blocks.2.")


def test_block_10_is_not_block_1(make_victim):
    victim = make_victim(width=4, depth=11)
    assert select.in_blocks(victim, victim.weights(), 2, 2) == names_with(victim, "blocks.1.")
    assert select.in_blocks(victim, victim.weights(), 11, 11) == names_with(victim, "blocks.10.")


def test_attention_is_its_matrices_and_its_projection(victim):
    found = select.of_attention(victim, victim.weights())
    assert found == names_with(victim, "attn.qkv", "attn.proj")
    assert found


def test_mlp_is_its_two_layers(victim):
    found = select.of_mlp(victim, victim.weights())
    assert found == names_with(victim, "mlp.fc")
    assert len(found) == 12


def test_positions_are_one_name(victim):
    assert select.of_positions(victim, victim.weights()) == {"pos_embed"}


@pytest.mark.parametrize("rule", [select.of_attention, select.of_mlp, select.of_positions])
def test_only_names_that_were_sent_are_chosen(victim, rule):
    sent = [name for name in victim.weights() if "pos_embed" not in name and "bias" not in name]
    assert rule(victim, sent) == rule(victim, victim.weights()) & set(sent)


def test_fixed_positions_are_not_chosen(make_victim):
    victim = make_victim(**APRIL, position="sincos_1d")
    assert select.of_positions(victim, victim.weights()) == frozenset()


def test_weights_by_depth_fall_at_each_block_and_once_more_behind_them(victim):
    found = select.by_depth(victim, victim.weights(), 0.5)
    assert list(found) == list(victim.weights())
    for name, weight in found.items():
        block = name.split(".")[1] if name.startswith("blocks.") else None
        before = name.startswith(("patch_embed", "cls_token", "dist_token", "pos_embed"))
        depth = 0 if before else 4 if block is None else int(block) + 1
        assert weight == 0.5**depth, name


def test_weights_by_order_fall_on_a_line(victim):
    names = list(victim.weights())
    found = select.by_order(names)
    assert list(found) == names
    assert found[names[0]] == 1
    assert found[names[-1]] == pytest.approx(1 / len(names))
    falls = [found[a] - found[b] for a, b in pairwise(names)]
    assert falls == pytest.approx([1 / len(names)] * len(falls))


@pytest.mark.parametrize(
    "rule",
    [
        select.of_attention,
        select.of_mlp,
        select.of_positions,
        lambda victim, names: select.in_blocks(victim, names, 1, 2),
        lambda victim, names: select.by_depth(victim, names, 0.5),
    ],
)
def test_victim_whose_parts_are_not_known_is_not_applicable(make_victim, rule):
    victim = make_victim("cifar/resnet20", channels=3, size=8)
    with pytest.raises(NotApplicable, match="parts"):
        rule(victim, victim.weights())


def test_a_victim_s_own_parts_bear_the_names_chosen(victim):
    parts = victim.anatomy
    chosen = select.of_attention(victim, victim.weights()) | select.of_mlp(victim, victim.weights())
    for block in parts.blocks:
        assert {block.query.name, block.key.name, block.value.name} <= chosen
        assert {f"{layer}.weight" for layer in (*block.mlp, block.attention_projection)} <= chosen
