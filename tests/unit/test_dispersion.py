"""Sliced dispersion against its definition in float64, row by row."""

import math

import pytest
import torch

from agg_fairseq.functional import sliced_dispersion


def plane_of(d, seed):
    """The orthonormal p and q that a seed draws: Gram and Schmidt's of two Gaussian vectors."""
    a, b = torch.randn(d, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).unbind(1)
    p = a / a.norm()
    q = b - (b @ p) * p
    return p, q / q.norm()


def paper(w, seed):
    """½ mean (θ − θ*)², where θ* are the evenly spaced angles of the same mean in the order of θ."""
    p, q = plane_of(w.size(1), seed)
    theta = [torch.atan2(row @ q, row @ p) for row in w]
    order = sorted(range(len(w)), key=lambda k: theta[k].item())
    mean, n, total = sum(theta) / len(w), len(w), 0
    for rank, k in enumerate(order, start=1):
        phi = -math.pi - math.pi / n + 2 * math.pi * rank / n
        total = total + (theta[k] - (mean + phi)) ** 2 / 2
    return total / n


def embeddings(v=11, d=5):
    return torch.randn(v, d, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).add_(0.4).requires_grad_()


@pytest.mark.parametrize("seed", [0, 7])
def test_equals_the_paper(seed):
    w = embeddings()
    found, expected = sliced_dispersion(w, seed=seed), paper(w, seed)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.autograd.grad(found, w), torch.autograd.grad(expected, w))
    assert torch.autograd.gradcheck(lambda w: sliced_dispersion(w, seed=seed), w)


def test_padding_and_zero_rows_are_left_out():
    w = embeddings()
    with torch.no_grad():
        w[4] = 0
    kept = [k for k in range(len(w)) if k not in (1, 4)]
    found = sliced_dispersion(w, seed=3, ignore_index=1)
    torch.testing.assert_close(found, paper(w[kept], 3))
    gradient = torch.autograd.grad(found, w)[0]
    assert gradient.isfinite().all() and not gradient[[1, 4]].any() and gradient[kept].any(1).all()


def test_its_range_and_the_rows_lengths():
    p, q = plane_of(6, 0)
    angles = 2 * math.pi * (torch.arange(8, dtype=torch.float64) + 0.25) / 8 - math.pi
    even = angles.cos()[:, None] * p + angles.sin()[:, None] * q
    assert sliced_dispersion(even, seed=0) < 1e-25
    together = torch.ones(8, 6, dtype=torch.float64)
    assert sliced_dispersion(together, seed=0).item() == pytest.approx(math.pi**2 / 6 * (1 - 1 / 64))
    w = embeddings()
    scaled = w * torch.rand(len(w), 1, dtype=w.dtype).add(0.1)
    torch.testing.assert_close(sliced_dispersion(scaled, seed=1), sliced_dispersion(w, seed=1))


def test_descent_disperses():
    """From a narrow cone: the mean cosine falls."""
    w = (torch.randn(40, 6, generator=torch.Generator().manual_seed(0)) + 4).requires_grad_()
    optimizer = torch.optim.Adam([w], lr=0.05)

    def mean_cosine():
        unit = w.detach() / w.detach().norm(dim=1, keepdim=True)
        return (unit @ unit.t()).mean().item()

    before = mean_cosine()
    for seed in range(200):
        optimizer.zero_grad()
        sliced_dispersion(w, seed=seed).backward()
        optimizer.step()
    assert before > 0.9 and mean_cosine() < 0.5


def test_half_precision_and_bad_shapes():
    w = embeddings(50, 8).detach().half().requires_grad_()
    value = sliced_dispersion(w, seed=2)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value.double(), paper(w.detach().double(), 2), rtol=1e-5, atol=1e-6)
    assert torch.autograd.grad(value, w)[0].dtype == torch.float16
    with pytest.raises(ValueError, match="D >= 2"):
        sliced_dispersion(torch.ones(3, 1), seed=0)
