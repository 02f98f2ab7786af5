"""Gradients in half precision are no further from a float64 truth than those of fairseq's own
criterions, for a dictionary as large as the paper's, logits up to ±30, and the loss scales of
fairseq's fp16 training."""

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import grad
from torch.testing import assert_close

from agg_fairseq.f2 import TokenClasses, equal_frequency, factorized_cross_entropy, joint_log_prob
from agg_fairseq.functional import (
    SmoothedLikelihood,
    TrainingLoss,
    chunked,
    cosine_regularizer,
)
from tests.losses import summed_nll

PAD, VOCABULARY, POSITIONS, DIMENSION = 1, 44_256, 64, 64
HALF = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])


def problem(largest, dtype=torch.float32):
    """H, W and targets by Zipf's law, a few of them padding; the largest logit is ±`largest`, or
    their deviation 1."""
    generator = torch.Generator().manual_seed(7)
    h = torch.randn(POSITIONS, DIMENSION, generator=generator)
    w = torch.randn(VOCABULARY, DIMENSION, generator=generator) * DIMENSION**-0.5
    if largest is not None:
        h *= largest / (h @ w.t()).abs().max()
    y = (VOCABULARY ** torch.rand(POSITIONS, generator=generator)).long() - 1
    y[torch.randperm(POSITIONS, generator=generator)[:8]] = PAD
    return h.to(dtype), w.to(dtype), y


CLASSES = TokenClasses.of(equal_frequency((1e6 / torch.arange(1, VOCABULARY + 1)).long(), 4))


def likelihood(h, w, y):
    return summed_nll(h, w, y, ignore_index=PAD)


def fairseq_likelihood(h, w, y):
    """fairseq's `cross_entropy`: logits in the dtype of the model, their log-softmax in float32."""
    logits = F.linear(h, w)
    wide = torch.promote_types(logits.dtype, torch.float32)
    log_probs = F.log_softmax(logits, dim=-1, dtype=wide)
    return F.nll_loss(log_probs, y, ignore_index=PAD, reduction="sum")


def factorized(h, w, u, y):
    return factorized_cross_entropy(h, w, u, y, CLASSES, ignore_index=PAD).loss


def factorized_by_autograd(h, w, u, y):
    log_probs = joint_log_prob(h, w, u, CLASSES)
    return F.nll_loss(log_probs, y, ignore_index=PAD, reduction="sum")


def gradients(loss_function, leaves, y, scale=1.0):
    """The gradients of the scaled loss, as the optimizer receives them."""
    leaves = [leaf.detach().requires_grad_() for leaf in leaves]
    return grad(loss_function(*leaves, y) * scale, leaves)


def exact_gradients(loss_function, leaves, y):
    return gradients(loss_function, [leaf.double() for leaf in leaves], y)


def assert_no_worse(our_loss, their_loss, leaves, y, scales):
    """Where fairseq's gradient and the rounded truth are finite, ours is finite and not further
    from the truth, at most and on average; or than one rounding can lead, or the order of a sum
    where a gradient stays in float32."""
    truth = exact_gradients(their_loss, leaves, y)
    for scale in scales:
        ours, theirs = (gradients(loss, leaves, y, scale) for loss in (our_loss, their_loss))
        for our, their, exact in zip(ours, theirs, truth, strict=True):
            kept = their.isfinite() & (exact * scale).to(our.dtype).isfinite()
            our, their, exact = (one.double()[kept] for one in (our / scale, their / scale, exact))
            assert our.isfinite().all(), f"an overflow at scale {scale} that fairseq's has not"
            unit = torch.finfo(ours[0].dtype)
            once = 0.5 * unit.eps * exact.abs().clamp(min=unit.tiny / scale)
            order = 16 * torch.finfo(torch.float32).eps * exact.abs().max()
            for all_columns in (torch.max, torch.mean):
                found = all_columns((our - exact).abs())
                expected = torch.maximum(all_columns((their - exact).abs()), all_columns(once))
                is_float32 = leaves[-1].dtype == torch.float32
                assert found <= (expected.clamp(min=order) if is_float32 else expected)


@pytest.mark.grid(4)
@pytest.mark.parametrize(
    ("our_loss", "their_loss"),
    [(likelihood, fairseq_likelihood), (factorized, factorized_by_autograd)],
)
@pytest.mark.parametrize(
    ("dtype", "largest", "scales"),  # fairseq's scales of fp16 training
    [
        (torch.float16, None, (1.0,)),
        (torch.float16, 30, (2.0**15,)),
        (torch.float16, 10, (128.0, 2.0**15)),
        (torch.bfloat16, None, (128.0, 2.0**15)),
        (torch.bfloat16, 10, (1.0,)),
        (torch.bfloat16, 30, (1.0, 128.0)),
    ],
)
def test_no_worse_than_fairseq(our_loss, their_loss, dtype, largest, scales):
    *leaves, y = problem(largest, dtype)
    if our_loss is factorized:
        u = torch.randn(4, DIMENSION, generator=torch.Generator().manual_seed(2)) / 8
        leaves.append(u.to(dtype))
    assert_no_worse(our_loss, their_loss, leaves, y, scales)


@pytest.mark.parametrize("kind", ["gated", "factorized"])
def test_the_share_of_label_smoothing_does_not_become_zero(kind):
    """2·10⁻⁸ for a token without probability, in float16, whose smallest number is 6·10⁻⁸."""
    h, w, y = torch.ones(8, 16).half(), torch.zeros(5000, 16).half(), torch.zeros(8).long()
    w[9] = -4
    options, classes = {"label_smoothing": 1e-4}, TokenClasses.of(torch.arange(5000) // 2500)

    def loss(w, y):
        if kind == "gated":
            return summed_nll(h, w, y, **options)
        return factorized_cross_entropy(h, w, w[:2], y, classes, **options).loss

    found = gradients(loss, [w], y, 2.0**15)[0][9]
    assert_close(found.double(), torch.full((16,), -8 * 2e-8 * 2**15).double(), rtol=1e-2, atol=0)


def autocast_loss(loss_function):
    def loss(h, w, y):
        is_truth = h.dtype == torch.float64
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=not is_truth):
            return loss_function(h, w, y)

    return loss


@pytest.mark.parametrize(("dtype", "largest"), [(torch.float32, 10), (torch.bfloat16, 30)])
def test_under_autocast(dtype, largest):
    """What --amp does: float32 parameters, whose products are formed in half precision."""
    h, w, y = problem(largest)
    mixed, theirs = autocast_loss(likelihood), autocast_loss(fairseq_likelihood)
    assert_no_worse(mixed, theirs, (h.to(dtype), w), y, (2.0**15,))
    assert mixed(h, w, y) != likelihood(h, w, y), "else autocast had no effect"


def assert_close_to_truth(loss, leaves, y, tolerance, size=1.0):
    found, exact = gradients(loss, leaves, y), exact_gradients(loss, leaves, y)
    for one, truth in zip(found, exact, strict=True):
        assert_close(one.double() / size, truth / size, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("size", [2.0**-12, -500.0])
def test_weights_of_positions_in_float16(size):
    """They may be so small, as in a mean, that float16 could not hold the residuals, or large and
    negative; and NaN at ignored positions."""
    leaves, y = (torch.randn(13, 5).half(), torch.randn(11, 5).half()), torch.arange(13) % 11
    weights = size * torch.rand(13)
    y[3], weights[3] = -100, torch.nan

    def loss(h, w, y):
        bound = weights.nan_to_num().abs().max()
        return chunked(SmoothedLikelihood(position_weight=weights), h, w, y, bound=bound)[0]

    assert_close_to_truth(loss, leaves, y, 5e-3, size)


@HALF
@pytest.mark.parametrize("ul_alpha", [0.0, 2.0])
def test_small_micro_batches(dtype, ul_alpha):
    """dL/dlogits is multiplied by a scale, and the unlikelihood as well; also of a single position,
    and of none. The vocabulary is no multiple of 16."""
    h, w, y = torch.randn(2, 6, 5).to(dtype), torch.randn(37, 5).to(dtype), torch.randint(3, (2, 6))
    tolerance = 5e-3 if dtype == torch.float16 else 0.02

    def loss(h, w, y):
        return TrainingLoss(ul_alpha=ul_alpha)(h, w, y).loss

    for rows, steps in ((2, 6), (1, 1), (0, 6)):
        assert_close_to_truth(loss, (h[:rows, :steps], w), y[:rows, :steps], tolerance)


def test_cosine_regularizer_under_autocast():
    """In float32 all the same; the backward pass outside of it, as fairseq runs it."""
    w = (torch.randn(2000, 8) + 0.3).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = cosine_regularizer(w)
    expected = cosine_regularizer(w)
    assert_close(found, expected)
    assert_close(grad(found, w), grad(expected, w))
