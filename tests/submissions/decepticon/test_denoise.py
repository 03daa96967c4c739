import pytest
import torch

from benchmark.seeds import generator
from submissions.attacks.decepticon.denoise import jumps, noise_of


def ladder(noise, tokens=12, rows=300, width=40):
    draw = generator(0, "ladder")
    edges = torch.randperm(rows // 5, generator=draw)[:tokens].sort().values * 5 + 2
    vectors = torch.randn(tokens, width, generator=draw)
    clean = torch.stack([vectors[edges >= row].sum(0) for row in range(rows)])
    return clean + noise * torch.randn(rows, width, generator=draw), edges, vectors


def test_noise_is_measured_beside_the_jumps():
    assert noise_of(ladder(0.2)[0]) == pytest.approx(0.2, rel=0.1)


def test_jumps_are_found_beneath_the_noise_of_neighbouring_rows():
    rows, edges, vectors = ladder(0.5)
    found, lost = jumps(rows, 12)
    assert len(found) == len(edges)
    assert (found - edges).abs().max() <= 1
    single = (rows[edges] - rows[edges + 1] - vectors).norm()
    assert (lost - vectors).norm() < 0.8 * single


def test_noise_alone_has_no_jump():
    noise = torch.randn(300, 40, generator=generator(0, "noise"))
    found, lost = jumps(noise, 12)
    assert len(found) == len(lost) == 0


def test_too_many_jumps_sought_are_given_up():
    rows, edges, _ = ladder(0.1)
    assert jumps(rows, 30)[0].tolist() == edges.tolist()
