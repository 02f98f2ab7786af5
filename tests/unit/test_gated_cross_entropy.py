"""Gated cross-entropy and its terms against the naive implementation in float64."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import grad
from torch.testing import assert_close

from agg_fairseq.functional import (
    Gates,
    gated_cross_entropy,
    gated_likelihood,
    given_tokens,
    naive_gated_cross_entropy,
    previous_tokens,
    repeated_ngrams,
)
from agg_fairseq.functional.gated_cross_entropy import order_positions

IGNORED = -100


@pytest.fixture(autouse=True)
def several_chunks(monkeypatch):
    monkeypatch.setattr("agg_fairseq.functional.softmax_layer.CHUNK_ELEMENTS", 80)


def problem(batch=3, steps=7, v=11, d=5):
    """H, W, b, y with ignored positions on both sides, as the sources of translations have them, ω,
    and gates, which are random also where they do not count."""
    generator = torch.Generator().manual_seed(batch * steps * v)
    sizes = (batch, steps, d), (v, d), (v,), (v,), (v,), (batch, steps)
    h, w, b, g1, g2, weights = (torch.rand(size, generator=generator).double() for size in sizes)
    h, w, b = (4 * one - 2 for one in (h, w, b))
    y = torch.randint(v, (batch, steps), generator=generator)
    if batch > 1:
        y[0, 4:] = y[1, :2] = IGNORED
        h[2, 3] = 0
    return *(one.requires_grad_() for one in (h, w, b)), y, weights, Gates(w[:, 0] > 0, g1, g2)


@settings(max_examples=60)
@given(
    sizes=st.sampled_from([(3, 7, 11, 5), (1, 1, 3, 1), (1, 7, 3, 2), (3, 6, 101, 17)]),
    gated=st.sampled_from([(), ("g1",), ("g2",), ("g1", "g2")]),
    rare=st.sampled_from(["some", "all", "none"]),
    shift=st.sampled_from([None, 0, -20]),
    weighted=st.booleans(),
    softcap=st.sampled_from([None, 1.5, 30.0]),
    options=st.fixed_dictionaries({
        "label_smoothing": st.sampled_from([0.0, 0.1]), "scale": st.sampled_from([1.0, 0.25, -3.0]),
        "ul_alpha": st.sampled_from([0.0, 0.7]), "adv_epsilon": st.sampled_from([0.0, 0.4]),
    }),
)  # fmt: skip
def test_equals_the_naive_implementation(sizes, gated, rare, shift, weighted, softcap, options):
    """In value and gradients; a gate that is not given is 1, and a bias may be as large as log P."""
    h, w, b, y, weights, gates = problem(*sizes)
    if shift is not None:
        b = options["bias"] = (b + shift * weights[0, 0]).detach().requires_grad_()
    inputs = (h, w) if shift is None else (h, w, b)
    given_gates = {name: getattr(gates, name) for name in gated}
    is_rare = {"some": gates.rare, "all": gates.rare | True, "none": gates.rare & False}[rare]
    options["gates"] = Gates(is_rare, **given_gates) if gated else None
    options["position_weight"] = weights if weighted else None
    options["candidates"] = previous_tokens(y, IGNORED) if options["ul_alpha"] else None
    options["softcap"] = softcap = None if options["adv_epsilon"] else softcap
    out = gated_likelihood(h, w, y, predict=True, **options)
    expected = naive_gated_cross_entropy(h, w, y, **options)
    assert_close([out.loss, out.losses.sum()], [expected, expected.detach()])
    assert_close(grad(out.loss, inputs), grad(expected, inputs))

    logits = ((h @ w.t() + (0 if shift is None else b)) * options["scale"]).detach()
    assert torch.equal(out.prediction[y >= 0], logits.argmax(-1)[y >= 0])
    capped = softcap * torch.tanh(logits / softcap) if softcap else logits
    nll = F.cross_entropy(capped.flatten(0, 1), y.flatten(), reduction="none")
    assert_close(out.nll.flatten(), nll)  # of the logits that are not lowered, as the arg-max
    alone = options | {"position_weight": 0 * weights, "ul_alpha": 1.0}
    if options["ul_alpha"]:
        assert_close(out.ul_loss.sum(), naive_gated_cross_entropy(h, w, y, **alone).detach())
    alone |= {"position_weight": None, "candidates": None, "label_smoothing": 0.0}
    if options["adv_epsilon"]:
        assert_close(out.adv_loss.sum(), naive_gated_cross_entropy(h, w, y, **alone).detach())


def test_candidates_are_earlier_targets_of_the_same_row():
    y = problem()[3]
    positions = (y >= 0).flatten().nonzero().squeeze(1)
    tokens, is_candidate = previous_tokens(y, IGNORED).at(positions, y.flatten()[positions])
    for position, row, chosen in zip(positions.tolist(), tokens, is_candidate, strict=True):
        batch, step = divmod(position, 7)
        expected = {*y[batch, :step].tolist()} - {IGNORED, y[batch, step].item()}
        assert sorted(row[chosen].tolist()) == sorted(expected)


@pytest.mark.parametrize(
    ("with_bias", "reduction", "smoothing"),
    [(False, "mean", 0.1), (True, "mean", 0.0), (True, "sum", 0.1), (False, "none", 0.1), (True, "none", 1.0)],
)  # fmt: skip
def test_takes_the_place_of_the_function_of_torch(with_bias, reduction, smoothing):
    h, w, b, y, factors, _ = problem()
    linear_bias = b if with_bias else None
    options = {"reduction": reduction, "label_smoothing": smoothing}
    expected = F.cross_entropy(F.linear(h, w, linear_bias).flatten(0, 1), y.flatten(), **options)
    found = gated_cross_entropy(h, w, y, linear_bias=linear_bias, **options)
    assert_close(found, expected.view(found.shape))
    wanted = (h, w, b) if with_bias else (h, w)
    into = [grad((loss * factors.view_as(loss)).sum() if reduction == "none" else loss, wanted)
            for loss in (found, expected)]  # fmt: skip
    assert_close(*into)
    one = F.cross_entropy(F.linear(h[0, 0], w, linear_bias), y[0, 0], **options)
    assert_close(gated_cross_entropy(h[0, 0], w, y[0, 0], linear_bias=linear_bias, **options), one)


def test_losses_without_reduction_are_gated_too():
    """A second run of backward is no error, since the gradients are formed there."""
    h, w, b, y, factors, gates = problem()
    factors -= 0.5
    losses = gated_cross_entropy(h, w, y, linear_bias=b, reduction="none", gates=gates)
    expected = gated_likelihood(h, w, y, bias=b, position_weight=factors, gates=gates).loss
    right = grad(expected, (h, w, b))
    for _ in range(2):
        assert_close(grad((losses * factors).sum(), (h, w, b), retain_graph=True), right)
    with pytest.raises(RuntimeError, match="no second derivatives"):
        grad(losses.sum(), w, create_graph=True)


@pytest.mark.parametrize("wanted", [(True, False), (False, True)])
def test_which_tensors_receive_a_gradient(wanted):
    h, w, _, y, _, gates = problem()
    for tensor, is_wanted in zip((h, w), wanted, strict=True):
        tensor.requires_grad_(is_wanted)
    gates.g1.requires_grad_()
    out = gated_likelihood(h, w, y, gates=gates)
    out.loss.backward()
    assert (h.grad is not None, w.grad is not None) == wanted and gates.g1.grad is None
    assert not out.nll.requires_grad and not out.losses.requires_grad
    assert out.prediction is out.ul_loss is out.adv_loss is None


def test_ignored_positions_add_nothing():
    """Their features and weights may be NaN, for example where attention had no position to attend
    to. Other weights may be negative."""
    h, w, _, y, weights, gates = problem()
    kept, weights = y >= 0, -weights
    clean = h[kept].detach().requires_grad_()
    spoilt = h.detach().masked_fill(~kept[..., None], torch.nan).requires_grad_()
    expected = gated_likelihood(clean, w, y[kept], position_weight=weights[kept], gates=gates).loss
    weights = weights.masked_fill(~kept, torch.nan)
    found = gated_likelihood(spoilt, w, y, position_weight=weights, gates=gates).loss
    assert_close(found, expected)
    (into_h, into_w), (its_h, its_w) = grad(found, (spoilt, w)), grad(expected, (clean, w))
    assert_close([into_w, into_h[kept]], [its_w, its_h])
    assert (into_h[~kept] == 0).all()


def test_nothing_but_padding_and_nothing_at_all():
    h, w, b, y, weights, gates = problem()
    for features, target in ((h, torch.full_like(y, IGNORED)), (h[:0].half(), y[:0])):
        # 0: a mean over nothing, whose gradient is 0 as that of F.cross_entropy is
        for number in (1, 0):
            options = {"bias": b, "gates": gates, "position_weight": weights[: len(target)]}
            loss = gated_likelihood(features, w, target, **options).loss
            assert loss == 0 and not any(t.any() for t in grad(loss / number, (h, w, b)))


def test_a_kernel_gets_targets_that_lie_side_by_side(monkeypatch):
    found = []
    name = "agg_fairseq.functional.softmax_kernel.likelihood"
    monkeypatch.setattr("agg_fairseq.functional.softmax_kernel.can_run", lambda logits: True)
    monkeypatch.setattr(name, lambda logits, target, *_: found.append(target.stride()))
    (h, w, *_), y = problem(), torch.arange(42).view(7, 6) % 11
    gated_likelihood(h[0], w, y[:, 1])
    gated_likelihood(h, w, y.t()[:3])
    assert {*found} == {(1,)}


def test_no_tensor_of_all_positions_by_vocabulary(monkeypatch):
    """With eight chunks, no allocation reaches a quarter of N·V elements."""
    n, v = 64, 2048
    h, w, _, y, _, gates = problem(1, n, v, 4)
    monkeypatch.setattr("agg_fairseq.functional.softmax_layer.CHUNK_ELEMENTS", n * v // 8)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profiler:
        gated_likelihood(h, w, y, gates=gates).loss.backward()
    largest = max(event.self_cpu_memory_usage for event in profiler.events())
    assert 0 < largest <= n * v * h.element_size() // 4


def test_large_logits_stay_finite_and_small_losses_keep_their_digits():
    h = torch.tensor([[200.0, 0.0]], requires_grad=True)
    w = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]], requires_grad=True)
    out = gated_likelihood(h, w, torch.tensor([1]))
    assert out.loss.item() == pytest.approx(400.0)
    assert all(gradient.isfinite().all() for gradient in grad(out.loss, (h, w)))
    # the target is the largest logit, at 8,000: −log P is log(1 + e^−2), not the difference of two
    # large numbers
    loss = gated_likelihood(
        torch.tensor([[1.0]]), torch.tensor([[8000.0], [7998.0]]), torch.tensor([0])
    ).loss
    assert loss.item() == pytest.approx(0.126928, abs=1e-6)


def test_second_derivatives_and_a_second_backward_are_an_error():
    h, w, _, y, *_ = problem()
    for tensor in (h, w):
        loss = gated_likelihood(torch.tanh(h), w, y).loss + tensor.square().sum()
        with pytest.raises(RuntimeError, match="no second derivatives"):
            grad(loss, tensor, create_graph=True)
    loss = gated_likelihood(h, w, y).loss
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="used up"):
        loss.backward()


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"target": torch.tensor([0])}, ValueError, r"target of shape"),
        ({"target": torch.tensor([0, 4])}, RuntimeError, r"\[0, 4\)"),
        ({"target": torch.tensor([0, -1])}, RuntimeError, r"\[0, 4\)"),
        ({"position_weight": torch.ones(3)}, ValueError, r"position_weight \(2,\), got \(3,\)"),
        ({"bias": torch.ones(1, 4)}, ValueError, r"bias \(4,\), got \(1, 4\)"),
        ({"label_smoothing": 1.1}, ValueError, r"\[0, 1\]"),
        ({"order": order_positions(torch.zeros(3).long(), 4)}, ValueError, "2 targets, got .* 3"),
        ({"scale": 0.0}, ValueError, "finite scale that is not 0, got 0.0"),
        ({"adv_epsilon": float("nan")}, ValueError, "adv_epsilon of at least 0"),
        ({"softcap": 0.0}, ValueError, "softcap above 0"),
        ({"softcap": 3.0, "adv_epsilon": 0.1}, ValueError, "without adv_epsilon"),
    ],
)
def test_refuses_arguments(change, error, words):
    h, w, y = torch.ones(2, 3), torch.ones(4, 3), torch.tensor([0, 1])
    with pytest.raises(error, match=words):
        gated_likelihood(**({"features": h, "weight": w, "target": y} | change))


def test_adversarial_training_of_certain_targets():
    """In float32, P' of the target rounds to 1, and a margin beyond the range of exp: the
    likelihood stays exact."""
    h = torch.tensor([[40.0, 0.0], [200.0, 0.0]])
    w = torch.tensor([[5.0, 0.0], [0.0, 5.0], [-5.0, 0.0]])
    out = gated_likelihood(h, w, torch.tensor([0, 0]), adv_epsilon=0.5)
    truth = gated_likelihood(h.double(), w.double(), torch.tensor([0, 0]))
    assert_close(out.nll.double(), truth.nll, atol=1e-4, rtol=0)
    assert out.loss.isfinite()


@pytest.mark.parametrize(
    ("gap", "alpha", "target"),
    [(21.0, 1.0, 0), (60.0, 10.0, 0), (200.0, 10.0, 0), (21.0, 1.0, 2), (-2.0, 1.0, 2)],
)
def test_a_certain_candidate_gives_a_bounded_gradient(gap, alpha, target):
    """In float32, `1 − P` rounds to zero, and so do the probabilities of the others at the larger
    gaps. At the sequence level it may be the target."""
    logits = torch.tensor([0.0, 0.0, gap, -1.0], dtype=torch.float64, requires_grad=True)
    penalty = logits.logsumexp(0) - logits[[0, 1, 3]].logsumexp(0)
    (expected,) = torch.autograd.grad(alpha * penalty - F.log_softmax(logits, 0)[target], logits)
    h = torch.ones(1, 1, 1, requires_grad=True)
    w = logits.detach().float()[:, None].requires_grad_()
    candidates = given_tokens(torch.tensor([[2]]), torch.tensor([[True]]))
    out = gated_likelihood(h, w, torch.tensor([[target]]), candidates=candidates, ul_alpha=alpha)
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
