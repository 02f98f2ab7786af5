"""The factorized softmax against Eqs. 2–4 and 7 written out in float64."""

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import grad
from torch.testing import assert_close

from agg_fairseq.f2 import (
    FactorizedSoftmax,
    TokenClasses,
    choose_class,
    cross_entropy,
    decoupled_log_prob,
    factorized_cross_entropy,
    joint_log_prob,
    token_classes,
)
from tests.pretend_cuda import CUDA, PretendCuda, there

PAD = 1


def paper_log_prob(h, w, u, class_of_token):
    """Eqs. 2 and 4, token by token: (N, V)."""
    columns = []
    for token, number in enumerate(class_of_token.tolist()):
        members = (class_of_token == number).nonzero().squeeze(1)
        p1 = torch.exp(h @ u[number]) / torch.exp(h @ u.t()).sum(1)
        p2 = torch.exp(h @ w[token]) / torch.exp(h @ w[members].t()).sum(1)
        columns.append((p1 * p2).log())
    return torch.stack(columns, 1)


LAYOUTS = {
    "sorted": torch.tensor([0] * 3 + [1] * 5 + [2] * 9),
    "specials-first": torch.tensor([2, 2, 1, 0] + [0] * 2 + [1] * 4 + [2] * 7),
    "shuffled": torch.tensor([0, 1, 2, 3] * 5)[:17],
    "one-class": torch.zeros(17, dtype=torch.int64),
    "every-class-one-token": torch.randperm(17, generator=torch.Generator().manual_seed(0)),
}
"""Class maps of every kind, over 17 tokens."""
EACH_LAYOUT = pytest.mark.parametrize("class_of_token", LAYOUTS.values(), ids=LAYOUTS)
SHUFFLED = TokenClasses.of(LAYOUTS["shuffled"])


def shuffled_loss(h, w, u, y, **options):
    return factorized_cross_entropy(h, w, u, y, SHUFFLED, ignore_index=PAD, **options).loss


def problem(class_of_token=LAYOUTS["shuffled"]):
    sizes = (23, 17, int(class_of_token.max()) + 1)
    h, w, u = (torch.randn(size, 5, dtype=torch.float64).requires_grad_() for size in sizes)
    y = torch.randint(2, 17, (23,))
    y[torch.randperm(23)[:4]] = PAD
    return h, w, u, y


@pytest.fixture(autouse=True)
def small_chunks_and_tiles(monkeypatch):
    monkeypatch.setattr("agg_fairseq.functional.chunks.CHUNK_ELEMENTS", 30)
    monkeypatch.setattr(cross_entropy, "CACHED_ELEMENTS", 40)  # rows by twos
    monkeypatch.setattr(token_classes, "TILE_TOKENS", 4)


@EACH_LAYOUT
def test_joint_and_its_gradients_are_those_of_the_equations(class_of_token):
    h, w, u, _ = problem(class_of_token)
    expected = paper_log_prob(h, w, u, class_of_token)
    joint = joint_log_prob(h, w, u, TokenClasses.of(class_of_token))
    assert_close(joint, expected, rtol=1e-10, atol=1e-11)
    towards = torch.randn_like(joint)
    into = [grad((one * towards).sum(), (h, w, u)) for one in (joint, expected)]
    assert_close(*into, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("merged", [0, 60, 10**6])
@pytest.mark.parametrize(("name", "epsilon"), zip(LAYOUTS, [0.0, 0.1, 0.0, 0.1, 0.9], strict=True))
def test_loss_and_its_gradients_are_those_of_the_joint_distribution(
    name, epsilon, merged, monkeypatch
):
    """With classes merged or not, and torch's label smoothing."""
    monkeypatch.setitem(cross_entropy.MERGED_LOGITS, "cpu", merged)
    h, w, u, y = problem(LAYOUTS[name])
    log_prob, kept = paper_log_prob(h, w, u, LAYOUTS[name]), y != PAD
    nll = -log_prob.gather(1, y[:, None]).squeeze(1) * kept
    expected = (1 - epsilon) * nll.sum() - epsilon * log_prob[kept].mean(1).sum()
    options = {"label_smoothing": epsilon, "ignore_index": PAD}
    out = factorized_cross_entropy(h, w, u, y, TokenClasses.of(LAYOUTS[name]), **options)
    assert_close([out.loss, out.losses.sum()], [expected, expected.detach()], rtol=1e-12, atol=0)
    log_p1 = F.log_softmax(h @ u.t(), 1).gather(1, LAYOUTS[name][y][:, None]).squeeze(1)
    assert_close([out.nll, out.class_nll], [nll.detach(), -log_p1.detach() * kept])
    assert_close(out.class_nll + out.token_nll, out.nll)
    into = [grad(3 * one, (h, w, u), retain_graph=True) for one in (out.loss, expected)]
    assert_close(*into, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("wanted", range(3))
def test_only_the_gradients_that_are_wanted(wanted):
    *inputs, y = problem()
    expected = grad(shuffled_loss(*inputs, y), inputs)[wanted]
    inputs = [tensor.detach() for tensor in inputs]
    inputs[wanted].requires_grad_()
    assert_close(grad(shuffled_loss(*inputs, y), inputs[wanted]), (expected,))


@pytest.mark.parametrize(
    ("most", "groups"), [(5, [(0, 1), (1, 2), (2, 3)]), (6, [(0, 2), (2, 3)]), (14, [(0, 3)])]
)
def test_classes_are_merged_where_that_costs_less_than_a_launch(most, groups):
    """Two positions and tokens, and one and two: 6 logits more; then 3 and 4, and 2 and 2: 14."""
    assert cross_entropy._neighbors([0, 2, 3, 5], (0, 2, 4, 6), most) == groups


@EACH_LAYOUT
def test_log_probabilities_on_a_gpu(class_of_token):
    """Where classes are reduced over tables of tiles, and not class by class."""
    *inputs, _ = problem(class_of_token)
    results = []
    with PretendCuda():
        for device in ("cpu", CUDA):
            h, w, u = (one.detach().to(device).requires_grad_() for one in inputs)
            classes = there(TokenClasses.of(class_of_token), device)
            joint = joint_log_prob(h, w, u, classes)
            chosen = choose_class(h, u, sample=False)
            decoupled = decoupled_log_prob(h, w, u, classes, chosen)
            found = joint, decoupled, *grad(joint[:, 3:].sum(), (h, w, u))
            results.append(there(found, "cpu"))
    assert_close(*results)


@pytest.mark.parametrize("offset", [50.0, 500.0])
def test_classes_far_below_the_largest_logit_are_normalized_exactly(offset):
    """In training, only the logits of one class compete, so those of different classes may differ
    by any amount."""
    class_of_token = LAYOUTS["specials-first"]
    h, w, u, _ = (one.detach() for one in problem(class_of_token))
    h[:, 4], w[:, 4] = 1, torch.where(class_of_token == 1, -offset, 0.0)
    classes = TokenClasses.of(class_of_token)
    expected = joint_log_prob(h, w, u, classes)
    found = joint_log_prob(h.float(), w.float(), u.float(), classes)
    assert_close(found.double(), expected, rtol=1e-4, atol=1e-4)
    assert_close(expected.exp().sum(1), torch.ones(23, dtype=torch.float64), rtol=1e-12, atol=0)


def test_label_smoothing_is_as_exact_where_logits_share_an_offset():
    """As those of degenerate embeddings do."""
    *inputs, y = problem()
    gradients = []
    for offset, dtype in ((1, torch.float64), (1000, torch.float32)):
        h, w, u = (one.detach().to(dtype) for one in inputs)
        h[:, 4], w[:, 4] = 1, offset
        loss = shuffled_loss(h.requires_grad_(), w, u, y, label_smoothing=0.1)
        gradients.append(grad(loss, h)[0].double()[:, :4])
    assert_close(gradients[1], gradients[0], rtol=0, atol=3e-3)


def test_what_stands_at_ignored_positions_does_not_matter():
    h, w, u, y = problem()
    expected = shuffled_loss(h, w, u, y, label_smoothing=0.1)
    bad = h.detach().masked_fill((y == PAD)[:, None], torch.nan).requires_grad_()
    loss = shuffled_loss(bad, w, u, y, label_smoothing=0.1)
    assert_close(loss, expected, rtol=1e-12, atol=0)
    assert_close(grad(loss, (bad, w, u)), grad(expected, (h, w, u)))
    nothing = shuffled_loss(h, w, u, torch.full_like(y, PAD), label_smoothing=0.1)
    assert nothing == 0
    assert all(not gradient.any() for gradient in grad(nothing / 0, (h, w, u)))


def test_second_derivatives_are_an_error():
    h, w, u, y = problem()
    for loss in (shuffled_loss(h, w, u, y), joint_log_prob(h, w, u, SHUFFLED).sum()):
        with pytest.raises(RuntimeError, match="no second derivatives"):
            grad(loss, w, create_graph=True)


@EACH_LAYOUT
def test_decoupled_is_equation_seven(class_of_token):
    h, w, u, _ = problem(class_of_token)
    chosen = choose_class(h, u, sample=True)
    found = decoupled_log_prob(h, w, u, TokenClasses.of(class_of_token), chosen)
    is_outside = class_of_token[None] != chosen[:, None]
    expected = (h @ w.t()).masked_fill(is_outside, -torch.inf).softmax(1)
    assert_close(found.exp(), expected.detach(), rtol=1e-9, atol=2e-11)
    assert found.isfinite().all() and (found.exp() * is_outside).sum(1).max() < 1.4e-11


def test_decoupled_ranks_the_outside_by_class_and_keeps_it_above_zero_in_float32():
    classes = TokenClasses.of(torch.tensor([0, 1, 1, 2]))
    u = torch.tensor([[0.0], [-5.0], [-200.0]])
    found = decoupled_log_prob(torch.ones(1, 1), torch.zeros(4, 1), u, classes, torch.tensor([0]))
    assert (found.exp() > 0).all()
    assert found[0].argsort(descending=True, stable=True).tolist() == [0, 1, 2, 3]


def test_classes_are_chosen_by_p1():
    h = torch.ones(4000, 1)
    u = torch.tensor([0.1, 0.6, 0.3]).log()[:, None]
    assert (choose_class(h, u, sample=False) == 1).all()
    drawn = torch.bincount(choose_class(h, u, sample=True), minlength=3) / 4000
    assert_close(drawn, torch.tensor([0.1, 0.6, 0.3]), atol=0.03, rtol=0)


def test_class_maps_that_are_none():
    for numbers, words in (([0, 2], "none in class 1"), ([0, -1], "negative")):
        with pytest.raises(ValueError, match=words):
            TokenClasses.of(torch.tensor(numbers))


@pytest.mark.parametrize("other", ["sorted", "one-class"])
def test_the_module_restores_classes_with_the_weights(other):
    """U is another parameter only if the number of classes changes. The classes survive an average
    of states, which treats every entry as a weight."""
    saved, restored = (
        FactorizedSoftmax(6, LAYOUTS[name]).double() for name in ("specials-first", other)
    )
    parameter, state = restored.class_weight, saved.state_dict()
    average = {name: value * 0.999 + value * 0.001 for name, value in state.items()}
    restored.load_state_dict(state | {"class_of_token": average["class_of_token"]})
    assert torch.equal(restored.class_of_token, LAYOUTS["specials-first"])
    h = torch.randn(3, 6, dtype=torch.float64)
    assert torch.equal(restored.log_prob(h), saved.log_prob(h))
    assert (restored.class_weight is parameter) == (len(parameter) == 3)
    restored.log_prob(h)[:, 0].sum().backward()
    assert restored.class_weight.grad.shape == (3, 6)
    assert saved.half().state_dict()["class_of_token"].dtype == torch.float32


def test_the_module_is_called_as_torchs_adaptive_softmax():
    layer, h = FactorizedSoftmax(6, LAYOUTS["shuffled"]).double(), torch.randn(2, 4, 6).double()
    y = torch.tensor([[3, 0, -100, 16], [5, 5, 9, -100]])
    found, expected = layer(h, y), layer.log_prob(h)
    picked = expected.gather(2, y.clamp(min=0)[..., None]).squeeze(2) * (y != -100)
    assert_close([found.output, found.loss], [picked.detach(), -picked.sum() / 6])
    drawn = FactorizedSoftmax(16, torch.zeros(2000, dtype=torch.int64)).weight
    assert drawn.std().item() == pytest.approx(1 / 4, rel=0.05)
