import pytest
import torch
import torch.nn.functional as F

from agg_fairseq.f2 import TokenClasses, joint_log_prob
from agg_fairseq.f2.conversion import class_log_mass, fit_class_embeddings, kl_to_classes, mean_class_embeddings

CLASSES = torch.tensor([1, 0, 0, 2, 1, 2, 2, 1, 2, 2])


def problem(n=200, d=4):
    h, w = torch.randn(n, d, dtype=torch.float64), torch.randn(10, d, dtype=torch.float64)
    return h, w, TokenClasses.of(CLASSES)


def joint_divergence(h, w, u, classes):
    """KL(P ‖ p) over the whole vocabulary, as the definition says."""
    log_p, log_f2 = F.log_softmax(h @ w.t(), 1), joint_log_prob(h, w, u, classes)
    return (log_p.exp() * (log_p - log_f2)).sum(1).mean().item()


@pytest.mark.parametrize("chunk_elements", [1, 35, 2**20])
def test_divergence_of_the_classes_is_that_of_the_joint_distributions(chunk_elements, monkeypatch):
    monkeypatch.setattr("agg_fairseq.f2.conversion.CHUNK_ELEMENTS", chunk_elements)
    h, w, classes = problem()
    u = torch.randn(3, 4, dtype=torch.float64)
    found = kl_to_classes(h, u, class_log_mass(h, w, classes)).item()
    assert found == pytest.approx(joint_divergence(h, w, u, classes), rel=1e-10)


def test_fit_is_the_minimum():
    """The problem is convex: at the minimum the gradient is zero, and every other start leads to the same value."""
    h, w, classes = problem()
    log_mass = class_log_mass(h, w, classes)
    counts = torch.arange(1, 11)
    start = mean_class_embeddings(w, counts, classes)
    fitted = fit_class_embeddings(h, log_mass, start)
    u = fitted.clone().requires_grad_()
    kl_to_classes(h, u, log_mass).backward()
    assert u.grad.abs().max() < 1e-5
    least = joint_divergence(h, w, fitted, classes)
    assert least < joint_divergence(h, w, start, classes)
    elsewhere = fit_class_embeddings(h, log_mass, torch.randn(3, 4, dtype=torch.float64))
    assert joint_divergence(h, w, elsewhere, classes) == pytest.approx(least, abs=1e-8)


def test_weighted_means_by_hand():
    w = torch.tensor([[1.0], [2.0], [4.0], [8.0]])
    classes = TokenClasses.of(torch.tensor([0, 0, 1, 1]))
    means = mean_class_embeddings(w, torch.tensor([3, 1, 0, 0]), classes)
    assert means.tolist() == [[1.25], [6.0]]  # (3·1 + 1·2)/4; nothing seen: (4 + 8)/2
