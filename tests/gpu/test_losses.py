"""Every loss and dtype on a GPU beside float64 on the CPU; deterministic mode; what waits."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from agg_fairseq import f2
from agg_fairseq.f2 import FactorizedSoftmax, TokenClasses, factorized_cross_entropy
from agg_fairseq.functional import (
    Gates,
    TrainingLoss,
    chunks,
    cosine_regularizer,
    naive_gated_cross_entropy,
    previous_tokens,
)
from agg_fairseq.gating import AggGating, AgpsGating, Gating
from agg_fairseq.optim import EmbeddingAdam
from tests.losses import gated
from tests.pretend_cuda import there

V, D, STEPS, IGNORED = 3001, 64, 35, 2
B = 20  # sequences
LARGEST_ERROR = {torch.float32: 2e-6, torch.bfloat16: 5e-3, torch.float16: 1e-3}
"""Of gradients, in norm: about half a unit in the last place of the dtype's numbers."""
CASES = {  # options, and what is given in addition
    "mle": ({}, ""),
    "bias": ({}, "bias"),
    "agg": ({}, "gates bias"),
    "smoothing": ({"label_smoothing": 0.1}, "gates"),
    "adversarial": ({"adv_epsilon": 0.05}, "gates"),
    "unlikelihood": ({"ul_alpha": 0.5}, "gates"),
    "face": ({}, "position_weight"),
    "all": ({"label_smoothing": 0.1, "ul_alpha": 1.0}, "gates bias position_weight"),
}


def targets():
    """Under Zipf's law, with repetitions and ignored positions: (B, T)."""
    y = torch.multinomial(1 / torch.arange(1.0, V + 1), B * STEPS, replacement=True)
    y[::17] = IGNORED
    return y.view(B, STEPS)


def problem(given=""):
    """Features, output embedding and bias, and the other arguments, in float64 on the CPU."""
    h, w = torch.randn(B, STEPS, D).double(), torch.randn(V, D).double() * 0.2
    more = {"y": targets(), "ignore_index": IGNORED}
    if "gates" in given:
        more["gates"] = Gates(torch.rand(V) < 0.4, torch.rand(V), torch.rand(V))
    if "position_weight" in given:
        more["position_weight"] = torch.rand(B, STEPS).double()
    leaves = [h, w, torch.randn(V).double()] if "bias" in given else [h, w]
    return leaves, more


def gradients(loss_function, leaves, more, device, dtype, scale=1.0):
    """The gradients of a loss that is multiplied by `scale` in its backward pass, on the CPU."""
    leaves = [leaf.detach().to(device, dtype, copy=True).requires_grad_() for leaf in leaves]
    (loss_function(*leaves, **there(more, device)) * scale).backward()
    return [leaf.grad.double().cpu() / scale for leaf in leaves]


def errors(found, exact):
    pairs = zip(found, exact, strict=True)
    return [((one - other).norm() / other.norm()).item() for one, other in pairs]


def assert_exact(loss_function, oracle, leaves, more, device, dtype):
    leaves = [leaf.to(dtype).double() for leaf in leaves]
    exact = gradients(oracle, leaves, more, "cpu", torch.float64)
    found = gradients(loss_function, leaves, more, device, dtype, 128.0)
    assert max(errors(found, exact)) < LARGEST_ERROR[dtype]


def ours(h, w, bias=None, *, y, **more):
    return gated(h, w, y, bias=bias, **more).loss


def naive(h, w, bias=None, *, y, **more):
    candidates = previous_tokens(y, IGNORED) if "ul_alpha" in more else None
    return naive_gated_cross_entropy(h, w, y, bias=bias, candidates=candidates, **more)


@pytest.fixture(params=["one chunk", "chunks"])
def sizes(request, monkeypatch):
    if request.param == "chunks":
        for name, value in {"CHUNK_ELEMENTS": 97 * V, "GPU_CHUNK_ELEMENTS": 97 * V}.items():
            monkeypatch.setattr(chunks, name, value)
        monkeypatch.setattr(chunks, "GPU_CHUNK_ROWS", 97)


@pytest.mark.parametrize("dtype", LARGEST_ERROR)
@pytest.mark.parametrize("case", CASES)
def test_gated_loss(case, dtype, sizes, device):
    options, given = CASES[case]
    leaves, more = problem(given)
    assert_exact(ours, naive, leaves, more | options, device, dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_under_autocast(dtype, device):
    if device == "cpu" and dtype == torch.float16:
        pytest.skip("autocast of this CPU")
    leaves, more = problem("gates")
    exact = gradients(naive, leaves, more, "cpu", torch.float64)
    with torch.autocast(device, dtype):
        found = gradients(ours, leaves, more, device, torch.float32)
    assert max(errors(found, exact)) < LARGEST_ERROR[dtype]


def test_no_larger_errors_than_the_plain_loss(device):
    """Logits of up to 60, as a trained model has them: the plain loss rounds them to bfloat16."""
    leaves, more = problem()
    leaves = [(leaves[0] * 5).bfloat16().double(), (leaves[1] * 1.5).bfloat16().double()]

    def plain(h, w, y, ignore_index):
        return F.cross_entropy(
            F.linear(h, w).flatten(0, 1).to(torch.promote_types(h.dtype, torch.float32)),
            y.flatten(),
            ignore_index=ignore_index,
            reduction="sum",
        )

    exact = gradients(plain, leaves, more, "cpu", torch.float64)
    found, others = (
        errors(gradients(loss, leaves, more, device, torch.bfloat16), exact)
        for loss in (ours, plain)
    )
    assert found[0] <= others[0] and found[1] <= others[1]


@pytest.mark.parametrize("dtype", LARGEST_ERROR)
def test_cosine_regularizer(dtype, device):
    weight = torch.randn(V, D).to(dtype) + 0.3
    results = []
    for place, place_dtype in (("cpu", torch.float64), (device, dtype)):
        leaf = weight.to(place, place_dtype).requires_grad_()
        value = cosine_regularizer(leaf, padding_row=3)
        (value * V).backward()
        results.append((value.detach().double().cpu(), leaf.grad.double().cpu()))
    assert_close(results[1][0], results[0][0], rtol=1e-5, atol=0)
    assert errors(results[1][1:], results[0][1:])[0] < LARGEST_ERROR[dtype] * 2


# F²-Softmax


def classes_of_tokens():
    return f2.mefmax((1e6 / torch.arange(1.0, V + 1)).long())


def factorized(h, w, u, *, y, class_ids, **more):
    return factorized_cross_entropy(h, w, u, y, TokenClasses.of(class_ids), **more).loss


def joint(h, w, u, *, y, class_ids, ignore_index, label_smoothing):
    log_p = f2.joint_log_prob(h, w, u, TokenClasses.of(class_ids)).flatten(0, 1)
    kept = y.flatten() != ignore_index
    nll = F.nll_loss(log_p, y.flatten(), ignore_index=ignore_index, reduction="sum")
    share = label_smoothing / V
    return (1 - label_smoothing) * nll - share * log_p[kept].sum()


@pytest.mark.parametrize("dtype", LARGEST_ERROR)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("shift", [0, 700], ids=["by frequency", "shuffled"])
@pytest.mark.parametrize("merged", [0, 2**16, 2**26])
def test_factorized_cross_entropy(shift, smoothing, merged, dtype, sizes, device, monkeypatch):
    monkeypatch.setitem(f2.cross_entropy.MERGED_LOGITS, device, merged)
    (h, w), more = problem()
    class_ids = classes_of_tokens().roll(shift)
    u = torch.randn(int(class_ids.max()) + 1, D).double() / 8
    more |= {"class_ids": class_ids, "label_smoothing": smoothing}
    assert_exact(factorized, joint, (h, w, u), more, device, dtype)


# Updates, states, bits and waits


RULES = {
    "mle": lambda: Gating(V),
    "agg": lambda: AggGating(V, rare_fraction=0.3, window=3),
    "agg alpha": lambda: AggGating(V, alpha=0.05, window=3, count_current_batch=True),
    "agps": lambda: AgpsGating(V, rare_rank=2000, counts=7 * torch.arange(V) % 50),
}
EACH_RULE = pytest.mark.parametrize("make", RULES.values(), ids=RULES)


def trained(gating, device, updates, weight=None, start=0):
    """The losses and the output embedding after some updates of Adam."""
    if weight is None:
        generator = torch.Generator().manual_seed(1)
        weight = torch.nn.Parameter((torch.randn(V, D, generator=generator) * 0.2).to(device))
    optimizer = EmbeddingAdam([{"params": [weight]}], lr=1e-2, betas=(0.0, 0.0), eps=1e-3)
    losses, training_loss = [], TrainingLoss(ul_alpha=0.5, cosreg_gamma=1.0)
    for update in range(start, start + updates):
        torch.manual_seed(update)
        h, y = torch.randn(B, STEPS, D).to(device), targets().to(device)
        loss = training_loss(h, weight, y, gates=gating(y)).loss / y.numel()
        weight.grad = None
        loss.backward()
        optimizer.step()
        gating.commit_update()
        losses.append(loss.item())
    return losses, weight


@EACH_RULE
def test_updates_on_the_gpu_are_those_of_the_cpu(make, device):
    results = []
    for place in ("cpu", device):
        gating = make()
        losses, weight = trained(gating, place, 8)
        results.append((losses, weight.detach().cpu()))
        if gating.counter is not None:
            results[-1] += (gating.counter.appearances.cpu(),)
    assert_close(results[1][0], results[0][0], rtol=1e-4, atol=0)
    assert errors([results[1][1]], [results[0][1]])[0] < 1e-3
    if len(results[0]) > 2:
        assert torch.equal(results[0][2], results[1][2])


@pytest.mark.parametrize("order", ["loaded on the device", "loaded, then moved"])
def test_a_state_goes_on_where_it_was_saved(order, device, tmp_path):
    make = RULES["agg"]
    whole, first = make(), make()
    expected, _ = trained(whole, device, 6)
    _, weight = trained(first, device, 4)
    torch.save(first.state_dict(), tmp_path / "state.pt")
    moved = order == "loaded on the device"
    state = torch.load(
        tmp_path / "state.pt", weights_only=True, map_location=device if moved else "cpu"
    )
    resumed = make().to(device) if moved else make()
    resumed.load_state_dict(state)
    resumed.to(device)
    found, _ = trained(resumed, device, 2, weight, start=4)
    assert found == pytest.approx(expected[4:], rel=1e-5)
    again = resumed.state_dict()  # may be saved again
    assert make().load_state_dict(again).missing_keys == []


@pytest.mark.parametrize("case", ["mle", "smoothing", "all"])
def test_deterministic(case, device, deterministic):
    options, given = CASES[case]
    leaves, more = problem(given)
    call = (ours, leaves, more | options, device, torch.float32)
    assert all(map(torch.equal, gradients(*call), gradients(*call)))


def test_f2_and_cosreg_are_deterministic(device, deterministic):
    layer = FactorizedSoftmax(D, classes_of_tokens()).to(device)
    h, y, results = torch.randn(B, STEPS, D), targets(), []
    for _ in range(2):
        layer.zero_grad()
        features = h.to(device).requires_grad_()
        inputs = (features, layer.weight, layer.class_weight, y.to(device), layer.classes)
        loss = factorized_cross_entropy(*inputs, ignore_index=IGNORED).loss
        terms = layer.log_prob(features)[..., 0].sum() + cosine_regularizer(layer.weight)
        (loss + terms).backward()
        results.append([features.grad, layer.weight.grad.clone(), layer.class_weight.grad.clone()])
    assert all(map(torch.equal, *results))


@pytest.fixture
def waits(device):
    """Counts how often the host waits for the GPU while a function runs."""
    if device == "cpu":
        pytest.skip("needs a GPU")

    def count(function):
        torch.cuda.synchronize()
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                function()
            finally:
                torch.cuda.set_sync_debug_mode("default")
        places = [w for w in seen if "called a synchronizing" in str(w.message)]
        return [f"{w.filename.rpartition('/')[2]}:{w.lineno}" for w in places]

    return count


@EACH_RULE
def test_nothing_waits_between_forward_and_backward(make, device, waits):
    gating, training_loss = make().to(device), TrainingLoss(ul_alpha=0.5)
    trained(gating, device, 3)
    h, y = torch.randn(B, STEPS, D, device=device), targets().to(device)
    weight = torch.randn(V, D, device=device, requires_grad=True)
    gates = gating(y)

    def step():
        output = training_loss(h, weight, y, gates=gates, denominator=y.numel())
        (output.loss / y.numel()).backward()

    assert waits(step) == []


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_nothing_waits_in_f2_softmax(smoothing, device, waits):
    layer, y = FactorizedSoftmax(D, classes_of_tokens()).to(device), targets().to(device)
    h = torch.randn(B, STEPS, D, device=device, requires_grad=True)
    inputs = (h, layer.weight, layer.class_weight, y, layer.classes)
    options = {"ignore_index": IGNORED, "label_smoothing": smoothing}

    def step():
        order = layer.classes.sort(y, IGNORED)
        factorized_cross_entropy(*inputs, sorted_targets=order, **options).loss.backward()

    step()
    assert waits(step) == []
    chosen = f2.choose_class(h, layer.class_weight, sample=False)
    with torch.no_grad():
        assert waits(lambda: layer.log_prob(h)) == []
        assert waits(lambda: f2.decoupled_log_prob(*inputs[:3], layer.classes, chosen)) == []
