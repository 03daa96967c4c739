import pytest
import torch
from torch.nn import functional

from benchmark.errors import ProtocolError

B_PARAMETERS = 7_123_210  # APRIL, Table 2
B_WITHOUT_POSITIONS = 7_116_682
B_WITHOUT_ONE_ATTENTION = 6_533_002


def count(tensors):
    return sum(tensor.numel() for tensor in tensors)


def test_architecture_b_has_the_parameters_of_the_paper(make_victim):
    assert count(make_victim("april_b").weights().values()) == B_PARAMETERS


def test_architecture_b_without_positions_has_the_parameters_of_the_paper(make_victim):
    fixed = make_victim("april_b", position="sincos_1d")
    assert count(fixed.weights().values()) == B_WITHOUT_POSITIONS


def test_architecture_b_without_one_attention_has_the_parameters_of_the_paper(make_victim):
    weights = make_victim("april_b").weights()
    rest = [tensor for name, tensor in weights.items() if not name.startswith("blocks.2.attn.")]
    assert count(rest) == B_WITHOUT_ONE_ATTENTION


def test_architecture_a_lacks_only_the_norm_before_each_attention(make_victim):
    a, b = (count(make_victim(name).weights().values()) for name in ("april_a", "april_b"))
    assert b - a == 4 * 2 * 384


def inputs_of_first_attention(victim, images):
    seen = []
    attention = victim.network.blocks[0].attn
    with attention.register_forward_pre_hook(lambda _, given: seen.append(given[0])):
        victim(images)
    return seen[0]


def embedded(victim, images):
    network = victim.network
    patches = functional.unfold((images - 0.4) / 0.25, 7, stride=7).transpose(1, 2)
    tokens = network.patch_embed(patches)
    return torch.cat([network.cls_token.expand(len(images), 1, -1), tokens], 1) + network.pos_embed


def test_first_attention_of_a_reads_the_positions_directly(make_victim, draw):
    images = torch.rand(2, 1, 28, 28, generator=draw)
    start = {"position_std": 1.0, "class_token_std": 1.0}
    victim = make_victim("april_a", initialisation=start)
    torch.testing.assert_close(inputs_of_first_attention(victim, images), embedded(victim, images))


def test_first_attention_of_b_reads_them_through_a_norm(make_victim, draw):
    images = torch.rand(2, 1, 28, 28, generator=draw)
    victim = make_victim("april_b")
    wanted = functional.layer_norm(embedded(victim, images), [384])
    torch.testing.assert_close(inputs_of_first_attention(victim, images), wanted)


def test_only_b_adds_the_attention_s_input_to_its_output(make_victim, draw):
    x = torch.randn(1, 5, 384, generator=draw)
    for name, passes in (("april_a", False), ("april_b", True)):
        block = make_victim(name).network.blocks[0]
        for part in (block.attn.proj, block.mlp.fc2):
            torch.nn.init.zeros_(part.weight)
            torch.nn.init.zeros_(part.bias)
        assert torch.equal(block(x), x) == passes
        assert torch.equal(block(x), torch.zeros_like(x)) != passes


def test_heads_can_be_chosen_where_they_divide_the_width(make_victim):
    assert make_victim("april_b", width=24, heads=3).network.blocks[0].attn.num_heads == 3
    with pytest.raises(ProtocolError, match="5 heads 24"):
        make_victim("april_b", width=24, heads=5)
