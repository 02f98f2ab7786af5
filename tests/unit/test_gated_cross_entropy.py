"""The gated loss against Eqs. 6–10 written out in float64."""

import pytest
import torch
import torch.nn.functional as F

from agg_fairseq.functional import (
    Gates,
    Unlikelihood,
    gated_cross_entropy,
    naive_gated_cross_entropy,
    previous_tokens,
)

PAD = 1


def paper_loss(h, w, y, rare, g1, g2, smoothing=0.0, bias=None, change=lambda z: z):
    """Eqs. 9–10 position by position, with the detach of Eq. 6: the sum of the first term, and the sum of all."""
    plain, everything = h.new_zeros(()), h.new_zeros(())
    for i in range(len(y)):
        if y[i] == PAD:
            continue
        z0 = h[i] @ w.detach().t() + (0 if bias is None else bias.detach())
        g = torch.where(rare, g2 if rare[y[i]] else g1, torch.ones_like(g1))
        g = g.clone()
        g[y[i]] = 1
        zl = h[i].detach() @ w.t() + (0 if bias is None else bias)
        zl = g * zl + (1 - g) * zl.detach()
        z0, zl = change(z0), change(zl)
        plain = plain + smoothed_nll(z0, y[i], smoothing)
        everything = everything + smoothed_nll(z0, y[i], smoothing) + smoothed_nll(zl, y[i], smoothing)
    return plain, everything


def smoothed_nll(z, y, epsilon):
    """fairseq's label smoothing: 1 − ε on the target, ε/(V−1) on each of the others."""
    q = torch.full_like(z, epsilon / (len(z) - 1))
    q[y] = 1 - epsilon
    return -(q * F.log_softmax(z, 0)).sum()


def problem(n=13, v=11, d=5, pads=3, dtype=torch.float64, rare=None):
    generator = torch.Generator().manual_seed(n * v)
    h = torch.randn(n, d, dtype=dtype, generator=generator)
    w = torch.randn(v, d, dtype=dtype, generator=generator)
    y = torch.randint(2, v, (n,), generator=generator)
    y[torch.randperm(n, generator=generator)[:pads]] = PAD
    rare = torch.arange(v) >= v // 2 if rare is None else rare
    g1, g2 = torch.rand(2, v, dtype=dtype, generator=generator)
    return h.requires_grad_(), w.requires_grad_(), y, rare, g1, g2


def gradients(loss, *tensors):
    return torch.autograd.grad(loss, tensors)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("chunk_elements", [1, 40, 2**20])
@pytest.mark.parametrize("group", ["half", "none", "all"])
def test_equals_the_paper(group, chunk_elements, smoothing):
    rare = {"half": None, "none": torch.zeros(11, dtype=torch.bool), "all": torch.ones(11, dtype=torch.bool)}[group]
    h, w, y, rare, g1, g2 = problem(rare=rare)
    plain, everything = paper_loss(h, w, y, rare, g1, g2, smoothing)
    expected = gradients(everything, h, w)
    out = gated_cross_entropy(
        h, w, y, gates=Gates(rare, g1, g2), label_smoothing=smoothing, ignore_index=PAD, chunk_elements=chunk_elements
    )
    torch.testing.assert_close(out.loss, plain)
    torch.testing.assert_close(out.terms.sum(), plain)
    torch.testing.assert_close(gradients(out.loss, h, w), expected)


@pytest.mark.parametrize("shift", [0.0, -5.0, -20.0])  # a log-unigram bias is as large as log frequencies are
@pytest.mark.parametrize("size", [(1, 3, 1), (7, 3, 2), (257, 101, 17)])
def test_odd_sizes_and_bias(size, shift):
    h, w, y, rare, g1, g2 = problem(*size, pads=0)
    y = y.clamp(max=size[1] - 1)
    bias = (torch.randn(size[1], dtype=torch.float64) + shift * torch.rand(size[1])).requires_grad_()
    plain, everything = paper_loss(h, w, y, rare, g1, g2, bias=bias)
    kept = y != PAD
    assert kept.any()
    out = gated_cross_entropy(h, w, y, bias=bias, gates=Gates(rare, g1, g2), ignore_index=PAD, chunk_elements=300)
    torch.testing.assert_close(out.loss, plain)
    torch.testing.assert_close(gradients(out.loss, h, w, bias), gradients(everything, h, w, bias))


@pytest.mark.parametrize(("scale", "softcap"), [(0.25, None), (1.0, 2.0), (-3.0, 1.5)])
def test_scaled_and_capped_logits(scale, softcap):
    """Against the literal formula, and with the other terms against the naive form."""
    h, w, y, rare, g1, g2 = problem()
    bias = torch.randn(11, dtype=torch.float64).requires_grad_()

    def change(z):
        return scale * z if softcap is None else softcap * torch.tanh(scale * z / softcap)

    plain, everything = paper_loss(h, w, y, rare, g1, g2, smoothing=0.1, bias=bias, change=change)
    expected = gradients(everything, h, w, bias)
    options = {
        "bias": bias, "gates": Gates(rare, g1, g2), "scale": scale, "softcap": softcap, "label_smoothing": 0.1,
        "ignore_index": PAD,
    }  # fmt: skip
    loss = gated_cross_entropy(h, w, y, **options, chunk_elements=40).loss
    torch.testing.assert_close(loss, plain)
    torch.testing.assert_close(gradients(loss, h, w, bias), expected)
    terms = {"unlikelihood": Unlikelihood(0.5, previous_tokens(y[None], PAD)), "z_loss": 0.1}
    terms |= {"adversarial": 0.2} if softcap is None else {}
    loss, naive = (
        gated_cross_entropy(h, w, y, **options, **terms).loss,
        naive_gated_cross_entropy(h, w, y, **options, **terms),
    )
    torch.testing.assert_close(loss, naive)
    torch.testing.assert_close(gradients(loss, h, w, bias), gradients(naive, h, w, bias))


def test_naive_form_is_the_paper():
    h, w, y, rare, g1, g2 = problem()
    plain, everything = paper_loss(h, w, y, rare, g1, g2, smoothing=0.1)
    naive = naive_gated_cross_entropy(h, w, y, gates=Gates(rare, g1, g2), label_smoothing=0.1, ignore_index=PAD)
    torch.testing.assert_close(naive, plain)
    torch.testing.assert_close(gradients(naive, h, w), gradients(everything, h, w))


@pytest.mark.parametrize("missing", ["gate_common", "gate_rare"])
def test_a_missing_gate_is_one(missing):
    h, w, y, rare, g1, g2 = problem()
    vectors = {"gate_common": g1, "gate_rare": g2}
    ones = {**vectors, missing: torch.ones_like(g1)}
    without = {name: vector for name, vector in vectors.items() if name != missing}
    expected = gated_cross_entropy(h, w, y, gates=Gates(rare, **ones), ignore_index=PAD)
    found = gated_cross_entropy(h, w, y, gates=Gates(rare, **without), ignore_index=PAD)
    torch.testing.assert_close(gradients(found.loss, w), gradients(expected.loss, w))


def test_gates_outside_the_rare_group_are_one():
    h, w, y, rare, g1, g2 = problem()
    nonsense = torch.where(rare, g1, torch.full_like(g1, 77.0))
    expected = gradients(gated_cross_entropy(h, w, y, gates=Gates(rare, g1, g2), ignore_index=PAD).loss, w)
    found = gradients(gated_cross_entropy(h, w, y, gates=Gates(rare, nonsense, g2), ignore_index=PAD).loss, w)
    torch.testing.assert_close(found, expected)


def test_ungated_is_cross_entropy():
    h, w, y, *_ = problem(dtype=torch.float32)
    expected = F.cross_entropy(h @ w.t(), y, ignore_index=PAD, reduction="none")
    out = gated_cross_entropy(h, w, y, ignore_index=PAD)
    torch.testing.assert_close(out.nll, expected)
    torch.testing.assert_close(gradients(out.loss, h, w), gradients(expected.sum(), h, w))


def test_which_tensors_receive_a_gradient():
    h, w, y, rare, g1, g2 = problem()
    gates = Gates(rare, g1.requires_grad_(), g2)
    out = gated_cross_entropy(h, w.detach(), y, gates=gates, ignore_index=PAD)
    assert not out.nll.requires_grad and not out.terms.requires_grad
    out.loss.backward()
    assert h.grad is not None and w.grad is None and g1.grad is None
    with torch.no_grad():
        assert not gated_cross_entropy(h, w, y, ignore_index=PAD).loss.requires_grad
    out = gated_cross_entropy(h.detach(), w, y, ignore_index=PAD)
    out.loss.backward()
    assert w.grad is not None


def test_padding_adds_nothing():
    """The loss of a padded batch is the sum over its unpadded sentences, in value and in gradient."""
    h, w, y, rare, g1, g2 = problem(n=12, pads=0)
    lengths = (4, 1, 3)
    batch = torch.full((3, 4), PAD)
    features = torch.zeros(3, 4, h.size(1), dtype=h.dtype)
    total, start = 0, 0
    for row, length in enumerate(lengths):
        piece = slice(start, start + length)
        batch[row, :length], features[row, :length] = y[piece], h.detach()[piece]
        features[row, length:] = 1e3  # whatever stands at padding
        total = total + gated_cross_entropy(h[piece], w, y[piece], gates=Gates(rare, g1, g2)).loss
        start += length
    features.requires_grad_()
    out = gated_cross_entropy(features, w, batch, gates=Gates(rare, g1, g2), ignore_index=PAD)
    torch.testing.assert_close(out.loss, total)
    torch.testing.assert_close(gradients(out.loss, w), gradients(total, w))
    out = gated_cross_entropy(features, w, batch, gates=Gates(rare, g1, g2), ignore_index=PAD)
    assert (gradients(out.loss, features)[0][batch == PAD] == 0).all()


def test_nothing_but_padding():
    h, w, y, rare, g1, g2 = problem()
    out = gated_cross_entropy(h, w, torch.full_like(y, PAD), gates=Gates(rare, g1, g2), ignore_index=PAD)
    assert out.loss == 0
    for gradient in gradients(out.loss, h, w):
        assert (gradient == 0).all()


def test_large_logits_stay_finite():
    h = torch.tensor([[200.0, 0.0]], requires_grad=True)
    w = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]], requires_grad=True)
    out = gated_cross_entropy(h, w, torch.tensor([1]))
    assert out.loss.item() == pytest.approx(400.0)
    assert all(gradient.isfinite().all() for gradient in gradients(out.loss, h, w))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_gated_half_precision(dtype):
    """Compared with float64 on the same rounded inputs, the error is that of rounding the result once."""
    h, w, y, rare, g1, g2 = problem(n=40, v=301, d=16, pads=5)
    h, w = (t.detach().to(dtype) for t in (h, w))
    truth = [t.double().requires_grad_() for t in (h, w)]
    gates = Gates(rare, g1, g2)
    expected = gradients(naive_gated_cross_entropy(*truth, y, gates=gates, ignore_index=PAD), *truth)
    ours = [t.requires_grad_() for t in (h, w)]
    found = gradients(gated_cross_entropy(*ours, y, gates=gates, ignore_index=PAD).loss, *ours)
    for f, e in zip(found, expected, strict=True):
        torch.testing.assert_close(f, e.to(dtype), rtol=2 * torch.finfo(dtype).eps, atol=1e-5)


def test_small_losses_of_large_logits_keep_their_digits():
    """The target is the largest logit, at 8,000: −log P is log(1 + e^−2), not the difference of two large numbers."""
    h, w = torch.tensor([[1.0]]), torch.tensor([[8000.0], [7998.0]])
    assert gated_cross_entropy(h, w, torch.tensor([0])).loss.item() == pytest.approx(0.126928, abs=1e-6)


def test_gradients_come_in_the_dtype_of_their_tensors():
    h, w, y, *_ = problem(dtype=torch.float32)
    h16 = h.detach().half().requires_grad_()
    out = gated_cross_entropy(h16, w, y, ignore_index=PAD)
    grads = gradients(out.loss, h16, w)
    assert [g.dtype for g in grads] == [torch.float16, torch.float32]


def test_backward_runs_once():
    h, w, y, *_ = problem()
    loss = gated_cross_entropy(h, w, y, ignore_index=PAD).loss
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="used up"):
        loss.backward()


def test_no_tensor_of_all_positions_by_vocabulary():
    """With two chunks, no allocation reaches N·V elements."""
    n, v, d = 64, 2048, 4
    h, w = torch.randn(n, d, requires_grad=True), torch.randn(v, d, requires_grad=True)
    y = torch.randint(0, v, (n,))
    gates = Gates(torch.rand(v) < 0.5, torch.rand(v), torch.rand(v))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        gated_cross_entropy(h, w, y, gates=gates, chunk_elements=n * v // 8).loss.backward()
    largest = max(event.self_cpu_memory_usage for event in profiler.events())
    assert 0 < largest <= n * v * 4 // 4


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"target": torch.tensor([0.0, 1.0])}, TypeError, "int64"),
        ({"features": torch.ones(2, 3, dtype=torch.int64)}, TypeError, "floating-point"),
        ({"weight": torch.ones(4, 2)}, ValueError, r"shape \(V, 3\)"),
        ({"target": torch.tensor([0, 1, 2])}, ValueError, r"target of shape \(2,\)"),
        ({"target": torch.tensor([0, 4])}, ValueError, r"\[0, 4\)"),
        ({"bias": torch.ones(3)}, ValueError, "bias of shape"),
        ({"gates": Gates(torch.ones(3, dtype=torch.bool))}, ValueError, "gates.rare"),
        ({"label_smoothing": 1.0}, ValueError, r"\[0, 1\)"),
        ({"scale": 0.0}, ValueError, "finite scale that is not 0, got 0.0"),
        ({"softcap": 0.0}, ValueError, "softcap above 0, got 0.0"),
        ({"softcap": 3.0, "adversarial": 0.1}, ValueError, "expected at most one"),
    ],
)
def test_bad_arguments(change, error, words):
    arguments = {"features": torch.ones(2, 3), "weight": torch.ones(4, 3), "target": torch.tensor([0, 1])} | change
    with pytest.raises(error, match=words):
        gated_cross_entropy(**arguments)
