import sys

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import grad
from torch.testing import assert_close

from agg_fairseq.functional import cosine_regularizer


def paper(w):
    """Eq. 6: the sum over i and j ≠ i of ŵ_i·ŵ_j, over N²."""
    cosines = F.cosine_similarity(w[:, None], w[None], dim=2)
    return (cosines.sum() - cosines.trace()) / len(w) ** 2


@pytest.mark.parametrize("padding", [None, 1])
def test_equals_the_paper_without_padding_and_rows_of_zeros(padding, monkeypatch):
    monkeypatch.setattr(
        sys.modules["agg_fairseq.functional.cosine_regularizer"], "BLOCK_ELEMENTS", 8
    )
    w = torch.randn(9, 4, dtype=torch.float64).add_(0.3).requires_grad_()
    kept = [k for k in range(len(w)) if k not in (padding, 4)]
    with torch.no_grad():
        w[4] = 0
    found, expected = cosine_regularizer(w, padding_row=padding), paper(w[kept])
    assert_close(found, expected)
    assert_close(grad(found, w), grad(expected, w))
    assert cosine_regularizer(0 * w) == 0


def test_rows_that_are_nearly_zero():
    """A row of norm 1e-15, whose inverse to the third power is beyond float32."""
    w = torch.randn(9, 4, dtype=torch.float64)
    w[2] *= 1e-15
    truth, found = w.requires_grad_(), w.detach().float().requires_grad_()
    for leaf in (truth, found):
        cosine_regularizer(leaf).backward()
    assert_close(found.grad.double(), truth.grad, rtol=1e-4, atol=1e-5)
