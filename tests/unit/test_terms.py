"""The terms of likelihood against their definitions in float64, position by position, and all pairs
of options."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from agg_fairseq.functional import (
    Gates,
    gated_likelihood,
    given_tokens,
    naive_gated_cross_entropy,
    previous_tokens,
    repeated_ngrams,
)

PAD = 1


@pytest.fixture(autouse=True)
def several_chunks(monkeypatch):
    monkeypatch.setattr("agg_fairseq.functional.softmax_layer.CHUNK_ELEMENTS", 40)


def problem(batch=3, steps=7, v=9, d=4):
    """H, W, b, y with padding on both sides, as the sources of translations have it, and ω."""
    generator = torch.Generator().manual_seed(0)
    h = torch.randn(batch, steps, d, dtype=torch.float64, generator=generator)
    w = torch.randn(v, d, dtype=torch.float64, generator=generator)
    b = torch.randn(v, dtype=torch.float64, generator=generator)
    y = torch.randint(2, v, (batch, steps), generator=generator)
    y[0, 4:] = y[1, :2] = PAD
    h[2, 3] = 0
    weights = torch.rand(y.shape, dtype=h.dtype, generator=generator)
    return h.requires_grad_(), w.requires_grad_(), b.requires_grad_(), y, weights


def paper_loss(h, w, b, y, weights, ul_alpha=0.0, adv_epsilon=0.0):
    """−ω log p(y) − α Σ_{c ∈ {y_1…y_{t−1}} ∖ {y_t}} log(1 − p(c)), with w_y + δ in place of w_y:
    the worst δ of length ε ‖w_y‖, held fixed."""
    total = h.new_zeros(())
    for i, t in (y != PAD).nonzero().tolist():
        target, features = y[i, t], h[i, t]
        rows = list(w)
        if adv_epsilon and w[target] @ features > 0:
            rows[target] = (
                w[target] - (adv_epsilon * w[target].norm() * features / features.norm()).detach()
            )
        z = torch.stack(rows) @ features + b
        log_z, p = z.exp().sum().log(), z.softmax(0)
        total = total - weights[i, t] * (z[target] - log_z)
        for candidate in set(y[i, :t].tolist()) - {target.item(), PAD}:
            total = total - ul_alpha * (1 - p[candidate]).log()
    return total


def arguments_of(y, ul_alpha=0.0, adv_epsilon=0.0):
    """The keyword arguments of the operation."""
    candidates = previous_tokens(y, PAD) if ul_alpha else None
    return {"candidates": candidates, "ul_alpha": ul_alpha, "adv_epsilon": adv_epsilon}


@pytest.mark.parametrize(("term", "weight"), [("ul_alpha", 2.0), ("adv_epsilon", 0.5)])
def test_equals_its_definition(term, weight):
    h, w, b, y, weights = problem()
    above = ((w[y] * h).sum(-1) > 0)[y != PAD]
    assert 3 < above.sum() < len(above) - 3, (
        "adversarial training lowers the logits of some targets only"
    )
    expected = paper_loss(h, w, b, y, weights, **{term: weight})
    given = {
        "bias": b,
        "position_weight": weights,
        "ignore_index": PAD,
        **arguments_of(y, **{term: weight}),
    }
    out = gated_likelihood(h, w, y, predict=True, **given)
    for found in (out.loss, out.losses.sum(), naive_gated_cross_entropy(h, w, y, **given)):
        assert_close(found, expected)
    assert_close(*(torch.autograd.grad(loss, (h, w, b)) for loss in (out.loss, expected)))
    plain = gated_likelihood(h, w, y, bias=b, ignore_index=PAD)
    # of the logits that are not lowered, as is the arg-max
    assert_close(out.nll, plain.nll)
    assert torch.equal(out.prediction[y != PAD], (h @ w.t() + b).argmax(-1)[y != PAD])
    logged = (out.ul_loss if term == "ul_alpha" else out.adv_loss).sum()
    none = torch.zeros_like(weights)
    before_weight = paper_loss(h, w, b, y, none, **{term: 1.0})
    if term == "adv_epsilon":  # in place of the likelihood
        before_weight = paper_loss(h, w, b, y, none + 1, adv_epsilon=weight)
    assert_close(logged, before_weight.detach())


# Strength 2: among the eight rows, each two columns have all four pairs of values.
PAIRS = [(a, b, a ^ b, c, a ^ c, b ^ c) for a in (0, 1) for b in (0, 1) for c in (0, 1)]


@pytest.mark.parametrize(
    ("ul", "adversarial", "smoothing", "gated", "with_bias", "weighted"), PAIRS
)
def test_terms_and_options_together(ul, adversarial, smoothing, gated, with_bias, weighted):
    """All are those of the lowered logits, scaled and capped, and the gates act on the gradient of
    the sum."""
    h, w, b, y, weights = problem()
    given = {
        "bias": b if with_bias else None,
        "gates": Gates(torch.arange(len(w)) >= 5, *torch.rand(2, len(w), dtype=w.dtype))
        if gated
        else None,
        "label_smoothing": 0.1 * smoothing,
        "position_weight": weights if weighted else None,
        "scale": -0.25 if smoothing else 1.0,
        "softcap": None if adversarial else 1.5,
        "ignore_index": PAD,
        **arguments_of(y, ul_alpha=0.7 * ul, adv_epsilon=0.4 * adversarial),
    }
    naive = naive_gated_cross_entropy(h, w, y, **given)
    fast = gated_likelihood(h, w, y, **given)
    assert_close(fast.loss, naive)
    inputs = (h, w, b) if with_bias else (h, w)
    assert_close(*(torch.autograd.grad(loss, inputs) for loss in (fast.loss, naive)))


def test_adversarial_training_of_certain_targets():
    """In float32, P' of the target rounds to 1, and a margin beyond the range of exp: the
    likelihood stays exact."""
    h = torch.tensor([[40.0, 0.0], [200.0, 0.0]])
    w = torch.tensor([[5.0, 0.0], [0.0, 5.0], [-5.0, 0.0]])
    out = gated_likelihood(h, w, torch.tensor([0, 0]), adv_epsilon=0.5)
    truth = gated_likelihood(h.double(), w.double(), torch.tensor([0, 0]))
    assert_close(out.nll.double(), truth.nll, atol=1e-4, rtol=0)
    assert out.loss.isfinite()


@pytest.mark.parametrize(("gap", "alpha"), [(21.0, 1.0), (60.0, 10.0), (89.0, 1.0), (200.0, 10.0)])
def test_a_certain_candidate_gives_a_bounded_gradient(gap, alpha):
    """In float32, `1 − P` rounds to zero, and so do the probabilities of the others at the larger
    gaps."""
    logits = torch.tensor([0.0, 0.0, gap, -1.0], dtype=torch.float64, requires_grad=True)
    penalty = logits.logsumexp(0) - logits[[0, 1, 3]].logsumexp(0)
    (expected,) = torch.autograd.grad(alpha * penalty - F.log_softmax(logits, 0)[0], logits)
    h = torch.ones(1, 1, 1, requires_grad=True)
    w = logits.detach().float()[:, None].requires_grad_()
    candidates = given_tokens(torch.tensor([[2]]), torch.tensor([[True]]))
    out = gated_likelihood(h, w, torch.tensor([[0]]), candidates=candidates, ul_alpha=alpha)
    assert out.ul_loss.item() == pytest.approx(penalty.item(), rel=1e-6)
    into_h, into_w = torch.autograd.grad(out.loss, (h, w))
    assert_close(into_w[:, 0].double(), expected, rtol=1e-5, atol=1e-6)
    assert into_h.isfinite()


def test_repeated_ngrams():
    for line, n, expected in (
        ([1, 2, 3, 1, 2, 3], 3, [0, 0, 0, 1, 1, 1]),  # the last n-gram counts
        ([1, 1, 1, 1], 2, [0, 1, 1, 1]),
        ([1, 2, 3, 4], 2, [0, 0, 0, 0]),
        ([5, 6, 5], 1, [0, 0, 1]),
        ([7], 4, [0]),
    ):
        assert repeated_ngrams(torch.tensor([line]), n).int().tolist() == [expected]
