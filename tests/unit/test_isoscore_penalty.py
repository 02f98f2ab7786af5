"""The IsoScore penalty against IsoScore's own algorithm, in float64."""

import pytest
import torch

from agg_fairseq.functional import isoscore_penalty
from agg_fairseq.metrics import isoscore


def embeddings(v=13, d=5):
    return torch.randn(v, d, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).add_(0.4).requires_grad_()


def paper(w):
    """1 − IsoScore by the seven steps of Algorithm 1, differentiable."""
    dimension = w.size(1)
    variances = torch.linalg.eigvalsh(torch.cov(w.t()))
    scaled = dimension**0.5 * variances / variances.norm()
    defect = (scaled - 1).norm() / (2 * (dimension - dimension**0.5)) ** 0.5
    used = (dimension - defect**2 * (dimension - dimension**0.5)) ** 2 / dimension**2
    return 1 - (dimension * used - 1) / (dimension - 1)


@pytest.mark.parametrize("ignored", [None, 4])
def test_equals_the_algorithm(ignored):
    w = embeddings()
    kept = [k for k in range(len(w)) if k != ignored]
    found, expected = isoscore_penalty(w, ignore_index=ignored), paper(w[kept])
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=0)
    assert found.item() == pytest.approx(1 - isoscore(w.detach()[kept]), abs=1e-12)
    torch.testing.assert_close(torch.autograd.grad(found, w), torch.autograd.grad(expected, w))
    assert torch.autograd.gradcheck(lambda w: isoscore_penalty(w, ignore_index=ignored), w)


def test_shift_and_scale_change_nothing():
    w, shift = embeddings().detach(), torch.arange(5.0)
    torch.testing.assert_close(isoscore_penalty(3 * w + shift), isoscore_penalty(w))


def test_its_range():
    even = torch.cat([torch.eye(4), -torch.eye(4)]).requires_grad_()
    value = isoscore_penalty(even)
    assert value.item() == pytest.approx(0, abs=1e-6)
    assert torch.autograd.grad(value, even)[0].abs().max() < 1e-6
    line = torch.outer(torch.arange(6.0), torch.arange(1.0, 4.0))
    assert isoscore_penalty(line).item() == pytest.approx(1)
    equal = torch.full((7, 3), 0.1, requires_grad=True)  # whose mean in float32 is not exactly 0.1
    value = isoscore_penalty(equal)
    assert value.item() == 1 and not torch.autograd.grad(value, equal)[0].any()


def test_descent_spreads_the_variance():
    """From a narrow ellipsoid far from the origin: IsoScore rises to nearly 1, and the mean stays."""
    w = (
        torch.randn(60, 6, generator=torch.Generator().manual_seed(0)) * torch.tensor([9, 1, 1, 1, 1, 1]) + 20
    ).double()
    mean = w.mean(0)
    w.requires_grad_()
    optimizer = torch.optim.SGD([w], lr=2000.0)
    assert isoscore(w.detach()) < 0.2
    for _ in range(300):
        optimizer.zero_grad()
        isoscore_penalty(w).backward()
        optimizer.step()
    assert isoscore(w.detach()) > 0.99
    torch.testing.assert_close(w.detach().mean(0), mean)


def test_half_precision_and_bad_shapes():
    w = (20 + embeddings(50, 8).detach()).half().requires_grad_()
    value = isoscore_penalty(w)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value.double(), paper(w.detach().double()), rtol=1e-5, atol=1e-6)
    assert torch.autograd.grad(value, w)[0].dtype == torch.float16
    for shape in ((3, 1), (3,)):
        with pytest.raises(ValueError, match="D >= 2"):
            isoscore_penalty(torch.ones(shape))
