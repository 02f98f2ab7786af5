"""Measures and losses of tensors on a GPU: the numbers of a CPU, each tensor on the right device,
and no wait where none is needed."""

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from agg_fairseq import metrics
from agg_fairseq.f2 import TokenClasses, cross_entropy, decoupled_decoding, equal_frequency
from agg_fairseq.fairseq_plugin.decoding import continuation
from agg_fairseq.functional import Gates, TrainingLoss, chunks, cosine_regularizer
from agg_fairseq.gating import AggGating, AgpsGating
from agg_fairseq.metrics import LinkCounts, NextTokenStatistics
from tests.losses import gated
from tests.pretend_cuda import CUDA, PretendCuda, there

V, D = 30, 8
GROUPS = metrics.frequency_groups(torch.arange(V).flip(0))
LINKS = LinkCounts(
    torch.tensor([1, 2, 3, 3]), torch.tensor([4, 5, 6, 3]), torch.tensor([1, 1, 2, 5])
)
MEASURES = {
    "geometry": metrics.geometry,
    "isotropy": lambda w: metrics.isotropy(w, both_signs=True),
    "mean_cross_cosine": lambda w: metrics.mean_cross_cosine(w[:5], w[5:]),
    "mean_inner_product": metrics.mean_inner_product,
    "singular_values": metrics.singular_values,
    "principal_projection": metrics.principal_projection,
    "align_sim": lambda w: metrics.align_sim(w, LINKS),
    "word_vectors": lambda w: metrics.word_vectors(w, [[1], [2, 3], []]),
    "word_similarity": lambda w: metrics.word_similarity(w, [[1], [2, 3]], [[4], [5]], [1, 2]),
    "nearest_neighbors": lambda w: metrics.nearest_neighbors(w, w[:2], 3, [[0], [1]]),
}


def test_the_pretended_device_refuses_a_tensor_of_the_cpu():
    with PretendCuda(), pytest.raises(RuntimeError, match="found cuda and cpu"):
        torch.ones(3).to(CUDA) + torch.ones(3)


@pytest.mark.parametrize("measure", MEASURES)
def test_a_measure_of_embeddings_is_the_same_on_a_gpu(measure):
    weight = torch.randn(V, D)
    weight[7] = 0
    with PretendCuda():
        found = MEASURES[measure](weight.to(CUDA))
        found = there(tuple(tree_leaves(found)), "cpu")
    expected = tuple(tree_leaves(MEASURES[measure](weight)))
    torch.testing.assert_close(found, expected, equal_nan=True)


def test_next_tokens_are_summed_up_with_one_wait_per_chunk():
    log_probs, target = torch.randn(50, V).log_softmax(1), torch.arange(50) % V
    expected = NextTokenStatistics.of([(log_probs, target)] * 2, GROUPS, keep_positions=True)
    with PretendCuda() as device:
        found, given = (
            NextTokenStatistics(GROUPS, keep_positions=True),
            there((log_probs, target), CUDA),
        )
        found.update(*given)
        before = device.waits
        found.update(*given)
    assert device.waits == before + 1
    assert found.compute() == expected.compute()
    assert found.fit_offsets().tolist() == pytest.approx(expected.fit_offsets().tolist(), rel=1e-12)


class Bigrams(nn.Module):
    decoder = property(lambda self: self)

    def forward(self, tokens, incremental_state):
        return (self.logits[tokens],)

    def get_normalized_probs(self, output, log_probs):
        return output[0].log_softmax(-1)


@pytest.mark.parametrize("options", [{}, {"topk": 3}, {"topk": 2 * V}], ids=str)
def test_a_text_is_continued_alike_in_deterministic_mode(options):
    model, prefixes = Bigrams(), torch.tensor([[1, 2], [3, 4]])
    draws = torch.rand(2, 9) if options else None
    logits, texts = torch.randn(V, V), []
    torch.use_deterministic_algorithms(True)
    try:
        with PretendCuda():
            for device in ("cpu", CUDA):
                model.logits = logits.clone().to(device)
                given = {"draws": None if draws is None else draws.to(device), **options}
                found = continuation(
                    model,
                    prefixes.to(device),
                    9,
                    lengths=torch.tensor([2, 1]),
                    forbidden=(0,),
                    **given,
                )
                texts.append(found.tolist())
    finally:
        torch.use_deterministic_algorithms(False)
    assert texts[0] == texts[1] and 0 not in sum(texts[0], [])


BIAS, Y = torch.rand(V), torch.randint(V, (3, 6))
GATES = Gates(torch.arange(V) > 20, *torch.rand(2, V))
GATED = {
    "some": {"gates": GATES},
    "all": {
        "ul_alpha": 1.0,
        "adv_epsilon": 0.1,
        "position_weight": torch.rand(3, 6),
        "gates": GATES,
    },
}
RULES = {
    "agg": lambda: AggGating(V, rare_fraction=0.3, window=1),
    "agg alpha": lambda: AggGating(V, alpha=0.1, window=2, count_current_batch=True),
    "agps": lambda: AgpsGating(V, rare_rank=20, counts=torch.ones(V, dtype=torch.int64)),
}
CLASSES = TokenClasses.of(equal_frequency(torch.arange(V, 0, -1), 4).roll(3))


def gated_loss(h, w, u, options):
    options = options | {"bias": there(BIAS, h.device), "label_smoothing": 0.1}
    output = gated(h, w, there(Y, h.device), ignore_index=1, **options)
    return output.loss, cosine_regularizer(w, padding_row=1), *output[1:3]


def three_updates(h, w, u, name):
    """The first on the CPU."""
    gating, loss = RULES[name](), TrainingLoss(cosreg_gamma=1.0)
    for device in ("cpu", h.device, h.device):
        y = there(Y, device)
        output = loss(there(h, device), there(w, device), y, gates=gating(y))
        gating.commit_update()
    assert {buffer.device.type for buffer in gating.buffers()} <= {h.device.type}
    if gating.counter is not None:
        (state,) = gating.counter.get_extra_state()
        assert {value.device.type for value in state.values() if torch.is_tensor(value)} == {"cpu"}
    return output[:3]


def f2_softmax(h, w, u, smoothing):
    classes = there(CLASSES, h.device)
    options = {"label_smoothing": smoothing, "ignore_index": 1}
    output = cross_entropy.factorized_cross_entropy(h, w, u, there(Y, h.device), classes, **options)
    joint = cross_entropy.joint_log_prob(h, w, u, classes)
    chosen = decoupled_decoding.choose_class(h, u, sample=False)
    decoupled = decoupled_decoding.decoupled_log_prob(h, w, u, classes, chosen)
    return output.loss, joint.sum(), *output[1:], joint, decoupled


LOSSES = {
    **{f"gated, {name}": (gated_loss, options) for name, options in GATED.items()},
    **{name: (three_updates, name) for name in RULES},
    **{f"f2_softmax, {smoothing}": (f2_softmax, smoothing) for smoothing in (0.0, 0.1)},
}


HALF = ("gated, all", "agg", "f2_softmax, 0.0")


@pytest.mark.parametrize(
    ("name", "merged"), [*((name, 0) for name in LOSSES), ("f2_softmax, 0.0", 2**20)]
)
def test_a_loss_and_its_gradients_are_the_same_on_a_gpu(name, merged, monkeypatch):
    """In chunks, and with the classes of F²-Softmax merged or not."""
    for chunk, value in {"GPU_CHUNK_ROWS": 7, "GPU_CHUNK_ELEMENTS": 7 * V}.items():
        monkeypatch.setattr(chunks, chunk, value)
    monkeypatch.setitem(cross_entropy.MERGED_LOGITS, "cuda", merged)
    loss, options = LOSSES[name]
    dtype, tolerance = (torch.bfloat16, 0.02) if name in HALF else (torch.float32, 1e-5)
    leaves, found = [torch.randn(*size, D, dtype=dtype) for size in ((3, 6), (V,), (4,))], {}
    with PretendCuda():
        for device in ("cpu", CUDA):
            moved = [leaf.detach().to(device).requires_grad_() for leaf in leaves]
            results = [one for one in loss(*moved, there(options, device)) if one is not None]
            sum(one.sum() for one in results if one.requires_grad).backward()
            results += [leaf.grad for leaf in moved if leaf.grad is not None]
            assert {one.device for one in results} == {torch.device(device)}
            found[device] = [there(one, "cpu") for one in results]
    torch.testing.assert_close(found[CUDA], found["cpu"], rtol=tolerance, atol=tolerance)
