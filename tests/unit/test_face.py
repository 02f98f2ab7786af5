"""FACE's weights by hand, and its loss against torch's weighted cross-entropy."""

import torch
import torch.nn.functional as F

from agg_fairseq.functional import face_weights, gated_cross_entropy


def test_weights_by_hand():
    """f = (4, 1, 0): 1 − f/4 = (0, 3/4, 1), times 3 / (7/4)."""
    torch.testing.assert_close(face_weights(torch.tensor([4, 1, 0])), torch.tensor([0.0, 9 / 7, 12 / 7]))


def test_no_output_or_equal_output_is_plain_likelihood():
    assert face_weights(torch.zeros(4)).tolist() == [1] * 4
    assert face_weights(torch.full((4,), 3)).tolist() == [1] * 4


def test_loss_equals_class_weighted_cross_entropy():
    generator = torch.Generator().manual_seed(0)
    h = torch.randn(9, 3, dtype=torch.float64, generator=generator).requires_grad_()
    w = torch.randn(5, 3, dtype=torch.float64, generator=generator).requires_grad_()
    y = torch.randint(0, 5, (9,), generator=generator)
    weights = face_weights(torch.tensor([8, 5, 2, 1, 0])).double()
    expected = F.cross_entropy(h @ w.t(), y, weight=weights, reduction="sum")
    out = gated_cross_entropy(h, w, y, position_weight=weights[y], chunk_elements=10)
    torch.testing.assert_close(out.loss, expected)
    torch.testing.assert_close(torch.autograd.grad(out.loss, (h, w)), torch.autograd.grad(expected, (h, w)))
