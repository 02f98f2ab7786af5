"""Gated cross-entropy against Eqs. 6–10 written out in float64."""

import re

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import grad
from torch.testing import assert_close

from agg_fairseq.functional import (
    Gates,
    gated_cross_entropy,
    gated_likelihood,
    naive_gated_cross_entropy,
)
from tests.conftest import ROOT

PAD = 1


@pytest.fixture(autouse=True)
def several_chunks(monkeypatch):
    """Of seven positions or fewer."""
    monkeypatch.setattr("agg_fairseq.functional.softmax_layer.CHUNK_ELEMENTS", 80)


def paper_loss(h, w, b, y, weights, gates, smoothing, change):
    """Eqs. 9–10 position by position, with the detach of Eq. 6: the sum of the first term, and the
    sum of all."""
    plain, everything = h.new_zeros(()), h.new_zeros(())
    for i in range(len(y)):
        if y[i] == PAD:
            continue
        gate = gates.g2 if gates.rare[y[i]] else gates.g1
        g = (
            torch.ones_like(b)
            if gate is None
            else torch.where(gates.rare, gate, torch.ones_like(gate))
        )
        g[y[i]] = 1
        zl = h[i].detach() @ w.t() + b
        zl = g * zl + (1 - g) * zl.detach()
        q = torch.full_like(b, smoothing / len(b))  # torch's label smoothing
        q[y[i]] += 1 - smoothing
        logits = (h[i] @ w.detach().t() + b.detach(), zl)
        first, second = (-weights[i] * (q * F.log_softmax(change(z), 0)).sum() for z in logits)
        plain, everything = plain + first, everything + first + second
    return plain, everything


def problem(n=13, v=11, d=5, pads=3, rare=None):
    """H, W, b, y with padding, ω; and gates, which are random also where they do not count."""
    generator = torch.Generator().manual_seed(n * v)
    h, w, b = (torch.randn(size, generator=generator).double() for size in ((n, d), (v, d), (v,)))
    y = torch.randint(2, v, (n,), generator=generator)
    y[torch.randperm(n, generator=generator)[:pads]] = PAD
    g1, g2, weights = (torch.rand(size, generator=generator).double() for size in (v, v, n))
    rare = torch.arange(v) >= v // 2 if rare is None else torch.full((v,), rare)
    return *(t.requires_grad_() for t in (h, w, b)), y, weights, Gates(rare, g1, g2)


BOTH = ("g1", "g2")


@pytest.mark.parametrize(
    ("sizes", "given", "shift", "options"),
    [
        ({}, BOTH, 0, {"label_smoothing": 0.1}),
        ({"rare": False}, BOTH, 0, {}),
        ({"rare": True}, BOTH, -5, {"label_smoothing": 0.1}),
        ({}, BOTH[:1], -20, {"scale": 0.25}),
        ({}, BOTH[1:], 0, {"scale": -3.0, "softcap": 1.5, "label_smoothing": 0.1}),
        ({}, None, 0, {"softcap": 30.0}),
        ({"n": 1, "v": 3, "d": 1, "pads": 0}, BOTH, 0, {}),
        ({"n": 7, "v": 3, "d": 2, "pads": 0}, BOTH, -5, {"softcap": 2.0}),
        ({"n": 257, "v": 101, "d": 17}, BOTH, -20, {}),
        ({"pads": 0}, BOTH, 0, {}),
    ],
)
def test_equals_the_paper(sizes, given, shift, options):
    """In value and gradients, as does the naive one; a gate that is not given is 1, and a bias as
    large as log P."""
    h, w, b, y, weights, gates = problem(**sizes)
    b = (b + shift * torch.rand_like(b)).detach().requires_grad_()
    vectors = {name: getattr(gates, name) for name in given or ()}
    group = None if given is None else Gates(gates.rare, **vectors)
    out = gated_likelihood(
        h, w, y, bias=b, gates=group, position_weight=weights, ignore_index=PAD, predict=True,
        **options,
    )  # fmt: skip
    found = [out.loss, out.losses.sum(), out.nll, *grad(out.loss, (h, w, b))]

    gates = Gates(gates.rare, **vectors)
    scale, cap, smoothing = (options.get(name) for name in ("scale", "softcap", "label_smoothing"))

    def change(z):
        z = z * (scale or 1)
        return z if cap is None else cap * torch.tanh(z / cap)

    plain, everything = paper_loss(h, w, b, y, weights, gates, smoothing or 0, change)
    logits = change(h @ w.t() + b)
    nll = F.cross_entropy(logits, y, ignore_index=PAD, reduction="none")
    expected = [plain, plain, nll, *grad(everything, (h, w, b))]
    assert_close(found, expected)
    assert torch.equal(out.prediction[y != PAD], logits.argmax(1)[y != PAD])
    naive = naive_gated_cross_entropy(
        h, w, y, bias=b, gates=gates, position_weight=weights, ignore_index=PAD, **options
    )
    assert_close([naive, *grad(naive, (h, w, b))], [plain, *expected[3:]])


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("with_bias", [False, True])
def test_takes_the_place_of_the_function_of_torch(with_bias, reduction, smoothing):
    """With the same arguments, in value and gradients, also with a vector of features and where
    each loss has a factor of its own; torch 2.13 has `F.linear_cross_entropy`."""
    h, w, b, y, factors, _ = problem()
    linear_bias = b if with_bias else None
    options = {"reduction": reduction, "ignore_index": PAD, "label_smoothing": smoothing}
    wanted = (h, w, b) if with_bias else (h, w)
    if hasattr(F, "linear_cross_entropy"):
        expected = F.linear_cross_entropy(h, w, y, linear_bias=linear_bias, **options)
        one = F.linear_cross_entropy(h[0], w, y[2], linear_bias=linear_bias, **options)
    else:
        expected = F.cross_entropy(F.linear(h, w, linear_bias), y, **options)
        one = F.cross_entropy(F.linear(h[0], w, linear_bias), y[2], **options)
    found = gated_cross_entropy(h, w, y, linear_bias=linear_bias, **options)
    assert_close(found, expected)
    into = [grad((loss * factors).sum(), wanted) for loss in (found, expected)]
    assert_close(*into)
    assert_close(gated_cross_entropy(h[0], w, y[2], linear_bias=linear_bias, **options), one)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_losses_without_reduction_are_gated_too(dtype):
    """With small factors, as of a mean, whose residuals float16 could not hold; the second run of
    backward is no error, since the gradients are formed there."""
    h, w, b, y, factors, gates = problem()
    h, w, b = (one.detach().to(dtype).requires_grad_() for one in (h, w, b))
    given = {"gates": gates, "ignore_index": PAD}
    losses = gated_cross_entropy(h, w, y, linear_bias=b, reduction="none", **given)
    expected = gated_likelihood(h, w, y, bias=b, position_weight=factors, **given).loss
    right = grad(expected, (h, w, b))
    for _ in range(2):
        total = (losses * factors.to(losses) / 2**12).sum() * 2**12
        assert_close(grad(total, (h, w, b), retain_graph=True), right)
    with pytest.raises(RuntimeError, match="no second derivatives"):
        grad(losses.sum(), w, create_graph=True)


@pytest.mark.parametrize("wanted", [(True, False), (False, True)])
def test_which_tensors_receive_a_gradient(wanted):
    """Of H and W, those that ask for it; gates and the other outputs never."""
    h, w, _, y, _, gates = problem()
    for tensor, is_wanted in zip((h, w), wanted, strict=True):
        tensor.requires_grad_(is_wanted)
    gates.g1.requires_grad_()
    out = gated_likelihood(h, w, y, gates=gates, ignore_index=PAD)
    out.loss.backward()
    assert (h.grad is not None, w.grad is not None) == wanted and gates.g1.grad is None
    assert not out.nll.requires_grad and not out.losses.requires_grad


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_padding_adds_nothing(dtype):
    """Whatever its features and weights: they may be NaN, for example where attention had no
    position to attend to. Other weights may be below 0, and large."""
    h, w, _, y, weights, gates = problem()
    h, w = (t.detach().to(dtype).requires_grad_() for t in (h, w))
    clean = h[y != PAD].detach().requires_grad_()
    spoilt = h.detach().clone()
    weights = -500 * weights
    spoilt[y == PAD] = float("nan")
    spoilt.requires_grad_()
    options = {"gates": gates, "ignore_index": PAD}
    expected = gated_likelihood(
        clean, w, y[y != PAD], position_weight=weights[y != PAD], **options
    ).loss
    weights[y == PAD] = float("nan")
    found = gated_likelihood(
        spoilt[None], w, y[None], position_weight=weights[None], **options
    ).loss
    assert_close(found, expected)
    (into_h, into_w), (its_h, its_w) = grad(found, (spoilt, w)), grad(expected, (clean, w))
    assert_close(into_w, its_w)
    assert_close(into_h[y != PAD], its_h)
    assert (into_h[y == PAD] == 0).all() and into_w.isfinite().all()


def test_nothing_but_padding_and_nothing_at_all():
    h, w, b, y, weights, gates = problem()
    for features, target in ((h, torch.full_like(y, PAD)), (h[:0].half(), y[:0])):
        # 0: a mean over nothing, whose gradient is 0 as that of F.cross_entropy is
        for number in (1, 0):
            loss = gated_likelihood(
                features, w, target, bias=b, gates=gates, position_weight=weights[: len(target)],
                ignore_index=PAD,
            ).loss  # fmt: skip
            assert loss == 0 and not any(t.any() for t in grad(loss / number, (h, w, b)))


def test_a_kernel_gets_targets_that_lie_side_by_side(monkeypatch):
    """It reads them from the address of the first, also those of one column of a batch."""
    found = []
    name = "agg_fairseq.functional.softmax_kernel.likelihood"
    monkeypatch.setattr("agg_fairseq.functional.softmax_kernel.can_run", lambda logits: True)
    monkeypatch.setattr(name, lambda logits, target, *_: found.append(target.stride()))
    (h, w, *_), y = problem(), torch.arange(26).view(13, 2) % 11
    gated_likelihood(h, w, y[:, 1])
    gated_likelihood(h[:, None], w, y[:, 1:])
    assert {*found} == {(1,)}


def test_no_tensor_of_all_positions_by_vocabulary(monkeypatch):
    """With eight chunks, no allocation reaches a quarter of N·V elements."""
    n, v = 64, 2048
    h, w, _, y, _, gates = problem(n, v, 4)
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
    """Without one, they would lack the part of this operation."""
    h, w, _, y, *_ = problem()
    for tensor in (h, w):
        loss = gated_likelihood(torch.tanh(h), w, y, ignore_index=PAD).loss + tensor.square().sum()
        with pytest.raises(RuntimeError, match="no second derivatives"):
            grad(loss, tensor, create_graph=True)
    loss = gated_likelihood(h, w, y, ignore_index=PAD).loss
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="used up"):
        loss.backward()


def test_a_vocabulary_of_one_token():
    h = torch.randn(3, 2, requires_grad=True)
    w = torch.randn(1, 2, requires_grad=True)
    y = torch.zeros(3).long()
    loss = gated_likelihood(h, w, y, label_smoothing=0.1).loss
    assert loss == 0 and not any(gradient.any() for gradient in grad(loss, (h, w)))


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"target": torch.tensor([0])}, ValueError, r"target of shape"),
        ({"target": torch.tensor([0, 4])}, RuntimeError, r"\[0, 4\)"),
        ({"target": torch.tensor([0, -1])}, RuntimeError, r"\[0, 4\)"),
        ({"position_weight": torch.ones(3)}, ValueError, r"position_weight \(2,\), got \(3,\)"),
        ({"bias": torch.ones(1, 4)}, ValueError, r"bias \(4,\), got \(1, 4\)"),
        ({"label_smoothing": 1.1}, ValueError, r"\[0, 1\]"),
        ({"scale": 0.0}, ValueError, "finite scale that is not 0, got 0.0"),
        ({"adv_epsilon": float("nan")}, ValueError, "adv_epsilon of at least 0"),
        ({"softcap": 0.0}, ValueError, "softcap above 0"),
        ({"softcap": 3.0, "adv_epsilon": 0.1}, ValueError, "without adv_epsilon"),
    ],
)
def test_refuses_arguments(change, error, words):
    arguments = {
        "features": torch.ones(2, 3),
        "weight": torch.ones(4, 3),
        "target": torch.tensor([0, 1]),
    } | change
    with pytest.raises(error, match=words):
        gated_likelihood(**arguments)


def test_the_gates_over_a_fused_loss_of_the_page():
    """The program of docs/method.md, over torch's own loss."""
    page = (ROOT / "docs" / "method.md").read_text(encoding="utf-8")
    [program] = [
        text for text in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "fused" in text
    ]
    exec(program, names := {})
    h, w, _, y, _, gates = problem(n=40, pads=0)

    def fused(features, weight, target):
        return F.cross_entropy(features @ weight.t(), target, reduction="none")

    loss = names["gated"](fused, h, w, y, gates)
    expected = naive_gated_cross_entropy(h, w, y, gates=gates)
    for mine, paper in zip(
        [loss, *grad(loss, (h, w))], [expected, *grad(expected, (h, w))], strict=True
    ):
        assert_close(mine, paper, rtol=1e-12, atol=1e-12)
