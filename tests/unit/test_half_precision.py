"""Gradients in half precision are no further from a float64 truth than those of fairseq's own
criterions, for a dictionary as large as the paper's, logits up to ±30, and the loss scales of
fairseq's fp16 training."""

import contextlib

import pytest
import torch
import torch.nn.functional as F

from agg_fairseq.f2 import (
    TokenClasses,
    cross_entropy,
    equal_frequency,
    factorized_cross_entropy,
    joint_log_prob,
)
from agg_fairseq.functional import Gates, gated_likelihood, naive_gated_cross_entropy

PAD, VOCABULARY, POSITIONS, DIMENSION = 1, 44_256, 128, 64


def problem(largest):
    """H, W and targets by Zipf's law, a few of them padding; the largest logit is ±`largest`, or
    their deviation 1."""
    generator = torch.Generator().manual_seed(7)
    h = torch.randn(POSITIONS, DIMENSION, generator=generator)
    w = torch.randn(VOCABULARY, DIMENSION, generator=generator) * DIMENSION**-0.5
    if largest is not None:
        h *= largest / (h @ w.t()).abs().max()
    y = (VOCABULARY ** torch.rand(POSITIONS, generator=generator)).long() - 1
    y[torch.randperm(POSITIONS, generator=generator)[:8]] = PAD
    return h, w, y


def fairseq_loss(logits, y):
    """fairseq's `cross_entropy`: logits in the dtype of the model, their log-softmax in float32."""
    log_probs = F.log_softmax(
        logits, dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32)
    )
    return F.nll_loss(log_probs, y, ignore_index=PAD, reduction="sum")


def gradients(loss_of, leaves, dtypes, scale=1.0):
    """Of the scaled loss, as the optimizer receives them, in the dtypes of the leaves."""
    copies = [
        leaf.detach().to(dtype).requires_grad_() for leaf, dtype in zip(leaves, dtypes, strict=True)
    ]
    return torch.autograd.grad(loss_of(*copies) * scale, copies)


def largest_and_mean(errors, truth):
    return torch.stack([errors.max(), errors.mean()]) / truth.abs().max()


def assert_no_worse(ours_of, theirs_of, leaves, dtypes, scales):
    """Where fairseq's gradient and the rounded truth are finite, ours is finite and not further
    from the truth, at most and on average; or than one rounding can lead, or the order of a sum
    where a gradient stays in float32."""
    leaves = [leaf.to(kind) for leaf, kind in zip(leaves, dtypes, strict=True)]
    truth = gradients(theirs_of, leaves, (torch.float64,) * len(leaves))
    for scale in scales:
        ours, theirs = (
            gradients(loss_of, leaves, dtypes, scale) for loss_of in (ours_of, theirs_of)
        )
        for name, our, their, exact in zip(("dH", "dW", "dU"), ours, theirs, truth, strict=False):
            kept = their.isfinite() & (exact * scale).to(our.dtype).isfinite()
            assert our[kept].isfinite().all(), (
                f"{name}: an overflow at scale {scale} that fairseq's has not"
            )
            found, expected = (
                largest_and_mean((gradient.double() / scale - exact).abs()[kept], exact)
                for gradient in (our, their)
            )
            unit = torch.finfo(our.dtype)
            exponent = (exact[kept] * scale).abs().clamp(min=unit.tiny).log2().floor()
            # half a unit in the last place
            once = largest_and_mean(0.5 * unit.eps * 2.0**exponent / scale, exact)
            order = 16 * torch.finfo(torch.float32).eps if our.dtype == torch.float32 else 0.0
            assert (found <= torch.maximum(expected, once).clamp(min=order)).all(), (
                name, scale, found, expected, once,
            )  # fmt: skip


GRID = [  # each dtype with each size of the logits; scales of fairseq's fp16 training
    (torch.float16, None, (1.0,)),
    (torch.float16, 30, (2.0**15,)),
    (torch.float16, 10, (128.0, 2.0**15)),
    (torch.bfloat16, None, (128.0, 2.0**15)),
    (torch.bfloat16, 10, (1.0,)),
    (torch.bfloat16, 30, (1.0, 128.0)),
]


@pytest.mark.grid(2)
@pytest.mark.parametrize(("dtype", "largest", "scales"), GRID)
def test_gated_likelihood(dtype, largest, scales):
    h, w, y = problem(largest)
    assert_no_worse(
        lambda h, w: gated_likelihood(h, w, y, ignore_index=PAD).loss,
        lambda h, w: fairseq_loss(F.linear(h, w), y),
        (h, w), (dtype, dtype), scales,
    )  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_gated_gradients_in_half_precision(dtype):
    """Residuals are rounded to the dtype, so the error of an entry is that of the largest ones,
    rounded."""
    h, w, y = problem(10)
    gates = Gates(torch.arange(VOCABULARY) > 200, *torch.rand(2, VOCABULARY))
    assert 30 < gates.rare[y].sum() < 100
    leaves = [leaf.to(dtype) for leaf in (h, w)]
    options = {"gates": gates, "ignore_index": PAD}
    found = gradients(
        lambda h, w: gated_likelihood(h, w, y, **options).loss, leaves, (dtype, dtype)
    )
    exact = gradients(
        lambda h, w: naive_gated_cross_entropy(h, w, y, **options), leaves, (torch.float64,) * 2
    )
    for one, other in zip(found, exact, strict=True):
        torch.testing.assert_close(
            one, other.to(dtype), rtol=2 * torch.finfo(dtype).eps, atol=torch.finfo(dtype).eps
        )


@pytest.fixture(params=[False, True], ids=["float32 products", "half products"])
def half_products(request, monkeypatch):
    """The products of half precision that are summed in float32, as a GPU has them."""
    if not request.param:
        return

    def product(left, right, out):
        return out.copy_(left.to(out.dtype) @ right.to(out.dtype))

    def add_product(total, left, right, alpha):
        total.add_(left.to(total.dtype) @ right.to(total.dtype), alpha=alpha)

    monkeypatch.setattr(cross_entropy, "sums_in_float32", lambda dtype, device: True)
    monkeypatch.setattr(cross_entropy, "product", product)
    monkeypatch.setattr(cross_entropy, "add_product_", add_product)


@pytest.mark.grid(4)
@pytest.mark.parametrize(("dtype", "largest", "scales"), GRID)
def test_factorized_cross_entropy(dtype, largest, scales, half_products):
    """Against fairseq's criterion over the joint log-probabilities of the same model."""
    h, w, y = problem(largest)
    counts = (1e6 / torch.arange(1, VOCABULARY + 1)).long()
    classes = TokenClasses.of(equal_frequency(counts, 4))
    u = torch.randn(4, DIMENSION, generator=torch.Generator().manual_seed(2)) / 8
    assert_no_worse(
        lambda h, w, u: factorized_cross_entropy(h, w, u, y, classes, ignore_index=PAD).loss,
        lambda h, w, u: F.nll_loss(joint_log_prob(h, w, u, classes), y, ignore_index=PAD, reduction="sum"),
        (h, w, u), (dtype, dtype, dtype), scales,
    )  # fmt: skip


def under_autocast(loss_of):
    def loss(h, *leaves):
        enabled = h.dtype != torch.float64
        with torch.autocast("cpu", dtype=torch.bfloat16) if enabled else contextlib.nullcontext():
            return loss_of(h, *leaves)

    return loss


@pytest.mark.parametrize(("features", "largest"), [(torch.float32, 10), (torch.bfloat16, 30)])
def test_under_autocast(features, largest):
    """What --amp does: float32 parameters, whose products are formed in half precision."""
    h, w, y = problem(largest)
    assert_no_worse(
        under_autocast(lambda h, w: gated_likelihood(h, w, y, ignore_index=PAD).loss),
        under_autocast(lambda h, w: fairseq_loss(F.linear(h, w), y)),
        (h, w), (features, torch.float32), (2.0**15,),
    )  # fmt: skip
