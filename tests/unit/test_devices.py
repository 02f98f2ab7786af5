"""Measures of tensors on a GPU: each tensor on the right device, and no wait where none is needed."""

import pytest
import torch
from torch import nn

from agg_fairseq import metrics
from agg_fairseq.decoding import continuation
from agg_fairseq.metrics import LinkCounts, NextTokenStatistics
from tests.pretend_cuda import CUDA, PretendCuda

V, D = 30, 8
GROUPS = metrics.frequency_groups(torch.arange(V).flip(0))
LINKS = LinkCounts(
    torch.tensor([1, 2, 3, 3]), torch.tensor([4, 5, 6, 3]), torch.tensor([1, 1, 2, 5])
)
MEASURES = {
    "geometry": lambda w: list(metrics.geometry(w)),
    "isotropy": lambda w: metrics.isotropy(w, both_signs=True),
    "mean_cosine_between": lambda w: metrics.mean_cosine_between(w[:5], w[5:]),
    "mean_inner_product": metrics.mean_inner_product,
    "singular_values": lambda w: metrics.singular_values(w).tolist(),
    "principal_projection": lambda w: metrics.principal_projection(w).flatten().tolist(),
    "align_sim": lambda w: metrics.align_sim(w, LINKS)[LINKS.tokens()].tolist(),
    "word_vectors": lambda w: metrics.word_vectors(w, [[1], [2, 3], []]).flatten().tolist(),
    "word_similarity": lambda w: list(
        metrics.word_similarity(w, [[1], [2, 3]], [[4], [5]], [1, 2])
    ),
    "nearest_neighbors": lambda w: sum(metrics.nearest_neighbors(w, w[:2], 3, [[0], [1]]), []),
}


def test_the_pretended_device_refuses_a_tensor_of_the_cpu():
    with PretendCuda() as device, pytest.raises(RuntimeError, match="found cuda and cpu"):
        torch.ones(3).to(CUDA) + torch.ones(3)
    assert not device.waits


@pytest.mark.parametrize("measure", MEASURES)
def test_a_measure_of_embeddings_is_the_same_on_a_gpu(measure):
    weight = torch.randn(V, D)
    weight[7] = 0
    with PretendCuda():
        found = MEASURES[measure](weight.to(CUDA))
    for one, other in zip(_numbers(found), _numbers(MEASURES[measure](weight)), strict=True):
        assert one == pytest.approx(other, nan_ok=True)


def _numbers(found):
    """All numbers of a nested list."""
    if not isinstance(found, list | tuple):
        return [found]
    return [number for part in found for number in _numbers(part)]


def test_next_tokens_are_summed_up_without_a_wait():
    log_probs, target = torch.randn(50, V).log_softmax(1), torch.arange(50) % V
    expected = NextTokenStatistics.of([(log_probs, target)] * 2, GROUPS, keep_positions=True)
    with PretendCuda() as device:
        found, given = (
            NextTokenStatistics(GROUPS, keep_positions=True),
            (log_probs.to(CUDA), target.to(CUDA)),
        )
        for _ in range(2):
            found.update(*given)
        assert device.waits == 0
        assert found.compute() == expected.compute()
        offsets = found.fit_offsets()
        found.update(*given)  # back on the device
        assert found.counts.device == CUDA and found.tokens == 150
        found.reset()
        found.update(*given)
        assert found.compute() == expected.compute() | {
            "expected_over_observed": found.compute()["expected_over_observed"]
        }
    assert offsets.tolist() == expected.fit_offsets().tolist()


class Decoder(nn.Module):
    """Logits of the next token from the last one alone."""

    def forward(self, tokens, incremental_state):
        return (self.logits[tokens],)


@pytest.mark.parametrize("topk", [None, 3, 2 * V])
def test_a_text_is_continued_alike_in_deterministic_mode(topk):
    model, prefixes = nn.Module(), torch.tensor([[1, 2], [3, 4]])
    model.decoder = Decoder()
    logits, texts = torch.randn(V, V), []
    torch.use_deterministic_algorithms(True)
    try:
        with PretendCuda():
            for device in ("cpu", CUDA):
                model.decoder.logits = logits.clone().to(device)
                options = {"topk": topk, "generator": torch.Generator().manual_seed(1)}
                texts.append(
                    continuation(model, prefixes.to(device), 9, forbidden=(0,), **options).tolist()
                )
    finally:
        torch.use_deterministic_algorithms(False)
    assert texts[0] == texts[1] and 0 not in sum(texts[0], [])
