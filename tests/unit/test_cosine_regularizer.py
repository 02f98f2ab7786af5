import pytest
import torch
from torch.testing import assert_close

from agg_fairseq.functional import cosine_regularizer


def paper(w):
    """Eq. 6: the sum over i and j ≠ i of ŵ_i·ŵ_j, over N²."""
    total = w.new_zeros(())
    for i in range(len(w)):
        for j in range(len(w)):
            if i != j:
                total = total + (w[i] @ w[j]) / (w[i].norm() * w[j].norm())
    return total / len(w) ** 2


def embeddings(v=9, d=4):
    return torch.randn(v, d, dtype=torch.float64).add_(0.3).requires_grad_()


@pytest.mark.parametrize("padding", [None, 1])
def test_equals_the_paper_without_padding_and_rows_of_zeros(padding):
    w = embeddings()
    kept = [k for k in range(len(w)) if k not in (padding, 4)]
    with torch.no_grad():
        w[4] = 0
    found, expected = cosine_regularizer(w, ignore_index=padding), paper(w[kept])
    assert_close(found, expected)
    assert_close(torch.autograd.grad(found, w), torch.autograd.grad(expected, w))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_half_precision_is_computed_in_float32(dtype):
    """Also of float32 under autocast, and the backward pass outside of it, as fairseq runs it."""
    w = embeddings(2000, 8).detach()
    truth = w.to(dtype).double().requires_grad_()
    (expected,) = torch.autograd.grad(cosine_regularizer(truth) * 1e6, truth)
    half = w.to(dtype).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = cosine_regularizer(half)
    assert found.dtype == torch.float32
    assert_close(found.double(), cosine_regularizer(truth), rtol=1e-5, atol=1e-7)
    (gradient,) = torch.autograd.grad(found * 1e6, half)
    assert_close(gradient.double(), expected, rtol=torch.finfo(dtype).eps, atol=1e-3)


def test_rows_that_are_nearly_zero():
    """A row of norm 1e-15, whose inverse to the third power is beyond float32."""
    w = embeddings().detach()
    w[2] *= 1e-15
    truth, single = w.requires_grad_(), w.detach().float().requires_grad_()
    (expected,) = torch.autograd.grad(cosine_regularizer(truth), truth)
    (found,) = torch.autograd.grad(cosine_regularizer(single), single)
    assert_close(found.double(), expected, rtol=1e-4, atol=1e-5)
