"""The factorized softmax against Eqs. 2–4 and 7 written out in float64."""

import pytest
import torch
import torch.nn.functional as F
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


def paper_loss(log_prob, y, epsilon=0.0):
    """torch's label smoothing over the joint distribution; padding contributes nothing."""
    kept = y != PAD
    q = torch.full_like(log_prob, epsilon / log_prob.size(1))
    q.scatter_add_(1, y[:, None], torch.full_like(log_prob[:, :1], 1 - epsilon))
    return -(q * log_prob)[kept].sum()


LAYOUTS = {
    "sorted": torch.tensor([0] * 3 + [1] * 5 + [2] * 9),
    "specials-first": torch.tensor([2, 2, 1, 0] + [0] * 2 + [1] * 4 + [2] * 7),
    "shuffled": torch.tensor([0, 1, 2, 3] * 5)[:17],
    "one-class": torch.zeros(17, dtype=torch.int64),
    "every-class-one-token": torch.randperm(17, generator=torch.Generator().manual_seed(0)),
}
"""Class maps of every kind, over 17 tokens."""


def problem(class_of_token):
    sizes = (23, 17, int(class_of_token.max()) + 1)
    h, w, u = (torch.randn(size, 5, dtype=torch.float64).requires_grad_() for size in sizes)
    y = torch.randint(2, 17, (23,))
    y[torch.randperm(23)[:4]] = PAD
    return h, w, u, y


@pytest.fixture(autouse=True, params=[0, 60, 10**6], ids=["apart", "some merged", "all merged"])
def small_chunks_and_tiles(monkeypatch, request):
    """Several chunks and tiles, as in a dictionary of thousands, and classes merged or not."""
    monkeypatch.setattr("agg_fairseq.functional.softmax_layer.CHUNK_ELEMENTS", 30)
    monkeypatch.setattr(token_classes, "TILE", 4)
    monkeypatch.setattr(cross_entropy, "MERGED_LOGITS", request.param)


@pytest.mark.parametrize(("name", "epsilon"), zip(LAYOUTS, [0.0, 0.1, 0.9, 0.1, 0.0], strict=True))
def test_loss_joint_and_gradients_are_those_of_the_equations(name, epsilon):
    h, w, u, y = problem(LAYOUTS[name])
    log_prob, classes = paper_log_prob(h, w, u, LAYOUTS[name]), TokenClasses.of(LAYOUTS[name])
    expected = paper_loss(log_prob, y, epsilon)
    out = factorized_cross_entropy(h, w, u, y, classes, label_smoothing=epsilon, ignore_index=PAD)
    assert_close([out.loss, out.losses.sum()], [expected, expected.detach()], rtol=1e-12, atol=0)
    assert_close(out.nll, -log_prob.gather(1, y[:, None]).squeeze(1).detach() * (y != PAD))
    p1 = F.log_softmax(h @ u.t(), 1).gather(1, LAYOUTS[name][y][:, None]).squeeze(1)
    assert_close(out.class_nll, -p1.detach() * (y != PAD))
    assert_close(out.class_nll + out.token_nll, out.nll)
    joint = joint_log_prob(h, w, u, classes)
    assert_close(joint, log_prob, rtol=1e-10, atol=1e-11)
    # what fairseq does with it
    assert_close(F.log_softmax(joint, 1), joint, rtol=1e-10, atol=1e-11)
    towards = torch.randn_like(joint)
    pairs = ((3 * out.loss, 3 * expected), ((joint * towards).sum(), (log_prob * towards).sum()))
    for found, right in pairs:
        gradients = (
            torch.autograd.grad(one, (h, w, u), retain_graph=True) for one in (found, right)
        )
        assert_close(*gradients, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("wanted", range(3))
def test_only_the_gradients_that_are_wanted(wanted):
    *inputs, y = problem(LAYOUTS["shuffled"])
    (expected,) = torch.autograd.grad(
        paper_loss(paper_log_prob(*inputs, LAYOUTS["shuffled"]), y), inputs[wanted]
    )
    inputs = [tensor.detach() for tensor in inputs]
    inputs[wanted].requires_grad_()
    classes = TokenClasses.of(LAYOUTS["shuffled"])
    loss = factorized_cross_entropy(*inputs, y, classes, ignore_index=PAD).loss
    assert_close(torch.autograd.grad(loss, inputs[wanted]), (expected,))


@pytest.mark.parametrize(("most", "products"), [(5, 4), (6, 3), (14, 2)])
def test_classes_are_merged_where_that_costs_less_than_a_launch(monkeypatch, most, products):
    """Two positions and tokens, and one and two: 6 logits more; then 3 and 4, and 2 and 2: 14."""
    monkeypatch.setattr(cross_entropy, "MERGED_LOGITS", most)
    sizes, add_term = [], cross_entropy._add_term
    monkeypatch.setattr(
        cross_entropy, "_add_term", lambda h, *rest: (sizes.append(len(h)), add_term(h, *rest))
    )
    classes, y = TokenClasses.of(torch.tensor([0, 0, 1, 1, 2, 2])), torch.tensor([0, 1, 2, 4, 5])
    factorized_cross_entropy(torch.ones(5, 2), torch.ones(6, 2), torch.ones(3, 2), y, classes)
    assert len(sizes) == products and sizes[0] == sum(sizes[1:]) == 5  # the first is of the classes


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("reduction", [torch.logsumexp, torch.sum])
def test_reduction_over_classes_on_a_gpu(name, reduction):
    """Over tables of tiles, and not class by class."""
    values, classes = torch.randn(3, 17), TokenClasses.of(LAYOUTS[name])
    expected = classes.reduce(values, reduction, None)
    nothing = -torch.inf if reduction is torch.logsumexp else 0.0
    with PretendCuda():
        found = there(classes, CUDA).reduce(there(values, CUDA), reduction, nothing).cpu()
    assert_close(found, expected)


@pytest.mark.parametrize("offset", [0.0, 50.0, 90.0, 500.0])
def test_classes_far_below_the_largest_logit_are_normalized_exactly(offset, monkeypatch):
    """In training, only the logits of one class compete, so those of different classes may differ
    by any amount."""
    monkeypatch.setattr("agg_fairseq.f2.cross_entropy.CACHED_ELEMENTS", 40)  # rows by twos
    w = torch.randn(17, 5, dtype=torch.float64)
    h = torch.cat([torch.randn(7, 4), torch.ones(7, 1)], 1).double()
    u = torch.randn(3, 5, dtype=torch.float64)
    w[:, 4] = torch.where(LAYOUTS["specials-first"] == 1, -offset, 0.0)
    expected = joint_log_prob(h, w, u, TokenClasses.of(LAYOUTS["specials-first"]))
    found = joint_log_prob(
        h.float(), w.float(), u.float(), TokenClasses.of(LAYOUTS["specials-first"])
    )
    assert_close(found.double(), expected, rtol=1e-4, atol=1e-4)
    assert_close(expected.exp().sum(1), torch.ones(7, dtype=torch.float64), rtol=1e-12, atol=0)


def test_what_stands_at_ignored_positions_does_not_matter():
    h, w, u, y = problem(LAYOUTS["shuffled"])
    classes = TokenClasses.of(LAYOUTS["shuffled"])
    options = {"label_smoothing": 0.1, "ignore_index": PAD}
    expected = factorized_cross_entropy(h, w, u, y, classes, **options).loss.item()
    bad = h.detach().masked_fill((y == PAD)[:, None], torch.nan).requires_grad_()
    loss = factorized_cross_entropy(bad, w, u, y, classes, **options).loss
    loss.backward()
    assert loss.item() == pytest.approx(expected, rel=1e-12)
    assert all(tensor.grad.isfinite().all() for tensor in (bad, w, u))
    nothing = factorized_cross_entropy(h, w, u, torch.full_like(y, PAD), classes, **options).loss
    assert nothing == 0
    assert all(not gradient.any() for gradient in torch.autograd.grad(nothing / 0, (h, w, u)))


def test_second_derivatives_are_an_error():
    h, w, u, y = problem(LAYOUTS["shuffled"])
    classes = TokenClasses.of(LAYOUTS["shuffled"])
    for loss in (
        factorized_cross_entropy(h, w, u, y, classes).loss,
        joint_log_prob(h, w, u, classes)[:, 0].sum(),
    ):
        with pytest.raises(RuntimeError, match="no second derivatives"):
            torch.autograd.grad(loss, w, create_graph=True)


@pytest.mark.parametrize("name", LAYOUTS)
def test_decoupled_is_equation_seven(name):
    h, w, u, _ = problem(LAYOUTS[name])
    classes = TokenClasses.of(LAYOUTS[name])
    chosen = choose_class(h, u, sample=True)
    found = decoupled_log_prob(h, w, u, classes, chosen)
    logits = (h @ w.t()).masked_fill(LAYOUTS[name][None] != chosen[:, None], -torch.inf)
    expected = logits.softmax(1)
    assert_close(found.exp(), expected.detach(), rtol=1e-9, atol=2e-11)
    outside = found.exp() * (LAYOUTS[name][None] != chosen[:, None])
    assert found.isfinite().all() and outside.sum(1).max() < 1.4e-11


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


@pytest.mark.parametrize("other", LAYOUTS)
def test_the_module_restores_classes_with_the_weights(other):
    saved, restored = (
        FactorizedSoftmax(6, LAYOUTS[name]).double() for name in ("specials-first", other)
    )
    parameter = restored.class_weight
    restored.load_state_dict(saved.state_dict())
    h = torch.randn(3, 6, dtype=torch.float64)
    assert torch.equal(restored.log_prob(h), saved.log_prob(h))
    assert (restored.class_weight is parameter) == (len(parameter) == 3)
    restored.log_prob(h)[:, 0].sum().backward()
    assert restored.class_weight.grad.shape == (3, 6)


def test_the_module_is_called_as_torchs_adaptive_softmax():
    layer, h = FactorizedSoftmax(6, LAYOUTS["shuffled"]).double(), torch.randn(2, 4, 6).double()
    y = torch.tensor([[3, 0, -100, 16], [5, 5, 9, -100]])
    found, expected = layer(h, y), layer.log_prob(h).flatten(0, 1)
    assert torch.equal(layer.predict(h).flatten(), expected.argmax(1))
    kept = y.flatten() != -100
    at_targets = expected.gather(1, y.flatten().clamp(min=0)[:, None]).squeeze(1) * kept
    assert_close(found.output.flatten(), at_targets.detach())
    assert_close(found.loss, -at_targets.sum() / 6)
    gradients = [
        torch.autograd.grad(loss, layer.weight) for loss in (found.loss, -at_targets.sum() / 6)
    ]
    assert_close(*gradients)
    drawn = FactorizedSoftmax(16, torch.zeros(2000, dtype=torch.int64)).weight
    assert drawn.std().item() == pytest.approx(1 / 4, rel=0.05)


def test_the_module_survives_an_average_of_states():
    """Exponential moving averages and checkpoint averaging treat every entry as a weight."""
    shuffled, restored = (
        FactorizedSoftmax(6, LAYOUTS[name]).double() for name in ("shuffled", "one-class")
    )
    restored.load_state_dict(
        {name: value * 0.999 + value * 0.001 for name, value in shuffled.state_dict().items()}
    )
    assert torch.equal(restored.class_of_token, LAYOUTS["shuffled"])
    assert torch.equal(shuffled.half().state_dict()["class_of_token"], LAYOUTS["shuffled"].float())
