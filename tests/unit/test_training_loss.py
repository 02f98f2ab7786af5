"""The gated loss and its terms against the naive implementation in float64."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import grad
from torch.testing import assert_close

from agg_fairseq.functional import (
    TERMS,
    Gates,
    SmoothedLikelihood,
    TrainingLoss,
    chunked,
    gated_linear,
    label_smoothed_nll,
    naive_chunked,
    naive_gated_cross_entropy,
    previous_tokens,
    repeated_ngrams,
)
from tests.losses import gated

IGNORED = -100


@pytest.fixture(autouse=True)
def several_chunks(monkeypatch):
    monkeypatch.setattr("agg_fairseq.functional.chunks.CHUNK_ELEMENTS", 80)
    monkeypatch.setattr("agg_fairseq.functional.chunks.CHUNK_ROWS", 1)


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
    wanted=st.sampled_from([(), ("g1",), ("g2",), ("g1", "g2")]),
    rare=st.sampled_from(["some", "all", "none"]),
    shift=st.sampled_from([None, 0, -20]),
    weighted=st.booleans(),
    smoothing=st.sampled_from([0.0, 0.1]),
    ul_alpha=st.sampled_from([0.0, 0.7]),
    adv_epsilon=st.sampled_from([0.0, 0.4]),
)
def test_equals_the_naive_implementation(
    sizes, wanted, rare, shift, weighted, smoothing, ul_alpha, adv_epsilon
):
    """In value and gradients, in chunks and from all logits; a gate that is not given is 1, and a
    bias may be as large as log P."""
    h, w, b, y, weights, gates = problem(*sizes)
    bias = None if shift is None else (b + shift * weights[0, 0]).detach().requires_grad_()
    inputs = (h, w) if shift is None else (h, w, bias)
    is_rare = {"some": gates.rare, "all": gates.rare | True, "none": gates.rare & False}[rare]
    gates = Gates(is_rare, **{name: getattr(gates, name) for name in wanted}) if wanted else None
    terms = {"label_smoothing": smoothing, "ul_alpha": ul_alpha, "adv_epsilon": adv_epsilon}
    given_here = {"bias": bias, "gates": gates, "position_weight": weights if weighted else None}
    out = gated(h, w, y, **given_here, **terms)
    candidates = previous_tokens(y, IGNORED) if ul_alpha else None
    options = given_here | terms | {"candidates": candidates}
    expected = naive_gated_cross_entropy(h, w, y, **options)
    right = grad(expected, inputs)
    assert_close([out.loss, out.losses.sum()], [expected, expected.detach()])
    assert_close(grad(out.loss, inputs), right)
    if not adv_epsilon:
        logits = gated_linear(h, w, bias, y, gates)
        other = TrainingLoss(ignore_index=IGNORED, **terms)
        other = other.from_logits(logits, w, y, position_weight=given_here["position_weight"])
        assert_close([other.loss, *other[1:3]], [expected, *out[1:3]])
        assert_close(grad(other.loss, inputs), right)

    logits = F.linear(h, w, bias).detach()  # not lowered
    nll = F.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="none")
    assert_close(out.nll.flatten(), nll)
    bits, alone = math.log(2), options | {"position_weight": 0 * weights, "ul_alpha": 1.0}
    if ul_alpha:
        expected = naive_gated_cross_entropy(h, w, y, **alone).detach()
        assert_close(out.logged["ul_loss"][0] * bits, expected)
    alone |= {"position_weight": None, "candidates": None, "label_smoothing": 0.0}
    if adv_epsilon:
        expected = naive_gated_cross_entropy(h, w, y, **alone).detach()
        assert_close(out.logged["adv_loss"][0] * bits, expected)


def test_any_loss_of_a_chunk_of_logits():
    """A model's own scale and soft cap, and values of any name, which are 0 without a target."""
    h, w, b, y, _, gates = problem()

    def loss(logits, chunk):
        z = 1.5 * torch.tanh(-2.0 * logits)
        losses, nll = label_smoothed_nll(z, chunk.target, 0.1)
        return {"losses": losses, "nll": nll, "at": chunk.positions, "first": logits[:, 0]}

    found, values = chunked(loss, h, w, y, bias=b, gates=gates)
    options = {"bias": b, "gates": gates, "label_smoothing": 0.1, "scale": -3.0, "softcap": 1.5}
    expected = naive_gated_cross_entropy(h, w, y, **options)
    assert_close(found, expected)
    assert_close(grad(found, (h, w, b)), grad(expected, (h, w, b)))
    first = F.linear(h, w[:1], b[:1])[..., 0].detach()  # a view of the logits
    assert_close(values["first"], first.masked_fill(y == IGNORED, 0))
    positions = torch.arange(y.numel()).view(y.shape)
    assert values["at"].equal(positions.masked_fill(y == IGNORED, 0))


def test_chunks_beside_the_text_to_read_first():
    *inputs, y, _, gates = problem()
    h, w, b = inputs
    loss = TrainingLoss(label_smoothing=0.1, ul_alpha=0.4).of_batch(w, y)
    found, _ = chunked(loss, h, w, y, bias=b, gates=gates)
    expected = naive_chunked(loss, h.flatten(0, 1), w, y.flatten(), bias=b, gates=gates, rows=4)
    assert_close([found, *grad(found, inputs)], [expected, *grad(expected, inputs)])


def test_predictions_are_those_of_the_logits_without_the_margin():
    h, w, _, y, *_ = problem()
    found = TrainingLoss(adv_epsilon=9.0)(h, w, y, predict=True).prediction
    assert found.equal((h @ w.t()).argmax(2).where(y >= 0, 0))


def test_candidates_are_earlier_targets_of_the_same_row():
    y = problem()[3]
    positions = (y >= 0).flatten().nonzero().squeeze(1)
    tokens, is_candidate = previous_tokens(y, IGNORED).at(positions, y.flatten()[positions])
    for position, row, chosen in zip(positions.tolist(), tokens, is_candidate, strict=True):
        batch, step = divmod(position, 7)
        expected = {*y[batch, :step].tolist()} - {IGNORED, y[batch, step].item()}
        assert sorted(row[chosen].tolist()) == sorted(expected)


@pytest.mark.parametrize("wanted", [(True, False), (False, True)])
def test_which_tensors_receive_a_gradient(wanted):
    h, w, _, y, _, gates = problem()
    for tensor, is_wanted in zip((h, w), wanted, strict=True):
        tensor.requires_grad_(is_wanted)
    gates.g1.requires_grad_()
    out = gated(h, w, y, gates=gates)
    out.loss.backward()
    assert (h.grad is not None, w.grad is not None) == wanted and gates.g1.grad is None
    assert not out.nll.requires_grad and not out.losses.requires_grad


def test_ignored_positions_add_nothing():
    """Their features and weights may be NaN, for example where attention had no position to attend
    to. Other weights may be negative."""
    h, w, _, y, weights, gates = problem()
    kept, weights = y >= 0, -weights
    clean = h[kept].detach().requires_grad_()
    spoilt = h.detach().masked_fill(~kept[..., None], torch.nan).requires_grad_()
    loss = SmoothedLikelihood(position_weight=weights[kept])
    expected, _ = chunked(loss, clean, w, y[kept], gates=gates)
    loss = SmoothedLikelihood(position_weight=weights.masked_fill(~kept, torch.nan).flatten())
    found, _ = chunked(loss, spoilt, w, y, gates=gates)
    assert_close(found, expected)
    (grad_h, grad_w), (its_h, its_w) = grad(found, (spoilt, w)), grad(expected, (clean, w))
    assert_close([grad_w, grad_h[kept]], [its_w, its_h])
    assert (grad_h[~kept] == 0).all()


@pytest.mark.parametrize("shape", [(3, 7), (0, 7), (3, 0)])
@pytest.mark.parametrize("ul_alpha", [0.0, 1.0])
def test_nothing_but_padding_and_nothing_at_all(shape, ul_alpha):
    """A mean over nothing has a gradient of 0, as that of F.cross_entropy."""
    rows, steps = shape
    *inputs, _, weights, gates = problem()
    (h, w, b), y = inputs, torch.full(shape, IGNORED)
    loss, options = TrainingLoss(ul_alpha=ul_alpha), {"position_weight": weights[:rows, :steps]}
    out = loss(h[:rows, :steps], w, y, b, gates=gates, **options)
    assert not any(gradient.any() for gradient in grad(out.loss / 0, inputs))
    for output in (out, loss.from_logits(h[:rows, :steps] @ w.t(), w, y, **options)):
        assert output.loss == 0 and output.losses.shape == shape


def test_no_tensor_of_all_positions_by_vocabulary(monkeypatch):
    """With eight chunks, no allocation reaches a quarter of N·V elements."""
    n, v = 64, 2048
    h, w, _, y, _, gates = problem(1, n, v, 4)
    monkeypatch.setattr("agg_fairseq.functional.chunks.CHUNK_ELEMENTS", n * v // 8)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profiler:
        gated(h, w, y, gates=gates).loss.backward()
    largest = max(event.self_cpu_memory_usage for event in profiler.events())
    assert 0 < largest <= n * v * h.element_size() // 4


def test_large_logits_stay_finite_and_small_losses_keep_their_digits():
    h = torch.tensor([[200.0, 0.0]], requires_grad=True)
    w = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]], requires_grad=True)
    out = gated(h[None], w, torch.tensor([[1]]))
    assert out.loss.item() == pytest.approx(400.0)
    assert all(gradient.isfinite().all() for gradient in grad(out.loss, (h, w)))
    # the target is the largest logit, at 8,000: −log P is log(1 + e^−2), not the difference of two
    # large numbers
    w = torch.tensor([[8000.0], [7998.0]])
    loss = gated(torch.tensor([[[1.0]]]), w, torch.tensor([[0]])).loss
    assert loss.item() == pytest.approx(0.126928, abs=1e-6)


def test_second_derivatives_and_a_second_backward_are_an_error():
    h, w, _, y, *_ = problem()
    for tensor in (h, w):
        loss = gated(torch.tanh(h), w, y).loss + tensor.square().sum()
        with pytest.raises(RuntimeError, match="no second derivatives"):
            grad(loss, tensor, create_graph=True)
    loss = gated(h, w, y).loss
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="used up"):
        loss.backward()


H, W, Y, RARE = torch.ones(2, 3), torch.ones(4, 3), torch.tensor([0, 1]), torch.ones(4).bool()


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("target", Y[:1], "target of shape"),
        ("target", Y / 2, "whole target of shape .* and torch.float32"),
        ("bias", W[:, :1], r"bias \(4,\), got \(4, 1\)"),
        ("gates", Gates(RARE[1:]), r"gates \(4,\), got \(3,\)"),
        ("gates", Gates(RARE.to("meta")), "on meta, where the weight is on cpu"),
    ],
)
def test_refuses_layers(name, value, words):
    layer = {"input": H, "weight": W, "bias": None, "target": Y, "gates": Gates(RARE)}
    layer[name] = value
    with pytest.raises(ValueError, match=words):
        gated_linear(**layer)
    with pytest.raises(ValueError, match=words):
        chunked(SmoothedLikelihood(), layer.pop("input"), **layer)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: gated(H, W, Y + 3), r"\[0, 4\)"),
        (lambda: gated(H, W, Y - 1), r"\[0, 4\)"),
        (lambda: gated(H, W, Y, ul_alpha=1.0), r"targets \(B, T\) .* for ul_alpha, got \(2,\)"),
        (lambda: gated(H, W, Y, position_weight=H), "position_weight and target of one shape"),
        (lambda: TrainingLoss(ul_alhpa=1.0), "the terms ul_alpha, adv_epsilon, cosreg_gamma"),
        (lambda: TrainingLoss(ul_alpha=-1.0), "ul_alpha of at least 0, got -1"),
        (lambda: TrainingLoss(adv_epsilon=math.nan), "adv_epsilon of at least 0"),
        (lambda: TrainingLoss(label_smoothing=1.1), r"\[0, 1\]"),
        (lambda: Gates(RARE, W), r"g1 and rare of one shape, got \(4, 3\)"),
        (lambda: Gates(RARE.long()), "rare of torch.bool, got torch.int64"),
        (lambda: Gates(RARE, -torch.ones(4)), r"g1 of at least 0, and finite, got -1"),
        (
            lambda: Gates(RARE, None, torch.zeros(4) ** -0.5),
            "g2 of at least 0, and finite, got inf",
        ),
    ],
)
def test_refuses_arguments(call, words):
    with pytest.raises((ValueError, TypeError, RuntimeError), match=words):
        call()


def test_adversarial_training_of_certain_targets():
    """In float32, P' of the target rounds to 1, and a margin beyond the range of exp: the
    likelihood stays exact."""
    h = torch.tensor([[40.0, 0.0], [200.0, 0.0]])
    w = torch.tensor([[5.0, 0.0], [0.0, 5.0], [-5.0, 0.0]])
    out = gated(h[None], w, torch.tensor([[0, 0]]), adv_epsilon=0.5)
    truth = gated(h[None].double(), w.double(), torch.tensor([[0, 0]]))
    assert_close(out.nll.double(), truth.nll, atol=1e-4, rtol=0)
    assert out.loss.isfinite()


@pytest.mark.parametrize("gap", [-2.0, 5.0, 9.0, 12.0, 60.0])
def test_a_candidate_that_is_nearly_certain(gap):
    """In float32, where 1 − P loses its digits, the gradient is no further from float64 than that
    of autograd; where 1 − P rounds to zero, it is finite."""
    h, y = torch.ones(1, 2, 1), torch.tensor([[2, 0]])  # token 2 should not come again
    w = torch.tensor([0.0, 0.0, gap, -1.0])[:, None]

    def gradient(loss, dtype):
        weight = w.to(dtype).requires_grad_()
        return grad(loss(h.to(dtype), weight, y).loss, weight)[0].double()

    def by_autograd(h, w, y):
        return TrainingLoss(ul_alpha=1.0).from_logits(F.linear(h, w), w, y)

    exact, own, other = (
        gradient(loss, dtype)
        for loss, dtype in (
            (by_autograd, torch.float64),
            (TrainingLoss(ul_alpha=1.0), torch.float32),
            (by_autograd, torch.float32),
        )
    )
    error = (own - exact).abs().max()
    assert error <= (other - exact).abs().max().clamp(min=1e-5) or gap == 60
    assert own.isfinite().all() and error <= 1


def test_every_term_has_its_own_name_and_unit(monkeypatch):
    """A term is one entry, here a z-loss: its option, its value in the log, and the gradient."""
    z_loss = TERMS[0]._replace(
        option="z_gamma", logged="z_loss", in_bits=False, prepare=lambda target, ignore_index: None,
        of_logits=lambda logits, chunk, prepared: logits.logsumexp(1).square(),
    )  # fmt: skip
    monkeypatch.setattr("agg_fairseq.functional.training_loss.TERMS", (*TERMS, z_loss))
    h, w, b, y, *_ = problem()
    out = TrainingLoss(z_gamma=0.1, ul_alpha=0.3)(h, w, y, b)
    log_z = F.linear(h, w, b).logsumexp(2).masked_fill(y == IGNORED, 0)
    total, number = out.logged["z_loss"]
    assert_close(total, log_z.square().sum().detach())
    assert number == (y != IGNORED).sum() and out.logged.keys() == {"ul_loss", "z_loss"}
    plain = TrainingLoss(ul_alpha=0.3)(h, w, y, b)
    expected = grad(plain.loss + 0.1 * log_z.square().sum(), (h, w, b))
    assert_close(grad(out.loss, (h, w, b)), expected)


@pytest.mark.parametrize("terms", [{"ul_alpha": 0.5}, {"cosreg_gamma": 1.0, "adv_epsilon": 0.1}])
def test_measured_without_gradients(terms):
    """Without the margin, which is no measure."""
    h, w, b, y, *_ = problem()
    loss = TrainingLoss(**terms)
    expected = loss.eval()(h, w, y, b)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            found = loss.train()(h, w, y, b)
        assert_close(found.loss, expected.loss.detach())
        assert "adv_loss" not in found.logged and found.logged.keys() == expected.logged.keys()


def test_a_learned_temperature_is_refused():
    h, w, _, y, *_ = problem()
    temperature = torch.ones(1, dtype=torch.float64, requires_grad=True)

    def loss(logits, chunk):
        return {"losses": logits[:, 0] / temperature}

    with pytest.raises(ValueError, match="such as a learned temperature"):
        chunked(loss, h, w, y)
    with torch.no_grad():
        chunked(loss, h, w, y)


def test_repeated_ngrams():
    for line, n, expected in (
        ([1, 2, 3, 1, 2, 3], 3, [0, 0, 0, 1, 1, 1]),  # the last n-gram counts
        ([1, 1, 1, 1], 2, [0, 1, 1, 1]),
        ([1, 2, 3, 4], 2, [0, 0, 0, 0]),
        ([5, 6, 5], 1, [0, 0, 1]),
        ([7], 4, [0]),
    ):
        assert repeated_ngrams(torch.tensor([line]), n).int().tolist() == [expected]
