"""What each method is for, on a toy text whose rare tokens appear once in hundreds of updates.

Perplexity within a group tells whether its tokens are told apart; IsoScore, whether the embeddings
use all dimensions. The ranges hold for the seeds 0 to 4.
"""

import functools

import pytest
import torch
from torch import nn

from agg_fairseq.f2 import FactorizedSoftmax, choose_class, decoupled_log_prob, mefmax
from agg_fairseq.functional import TrainingLoss
from agg_fairseq.gating import AggGating, AgpsGating, Gating
from agg_fairseq.metrics import NextTokenStatistics, frequency_groups, isoscore

pytestmark = pytest.mark.slow
V, D, CLUSTERS, UPDATES, TOKENS = 1000, 16, 10, 600, 32


@functools.cache
def text(length, seed):
    """Tokens under Zipf's law; token k is in cluster k mod 10, and cluster c is followed by c + 1
    or c + 3."""
    generator = torch.Generator().manual_seed(seed)
    clusters = (1 + 2 * torch.randint(2, (length,), generator=generator)).cumsum(0) % CLUSTERS
    frequencies = (1 / torch.arange(1, V + 1.0)).view(-1, CLUSTERS).t()  # cluster x member
    return (
        torch.multinomial(frequencies[clusters], 1, generator=generator).squeeze(1) * CLUSTERS
        + clusters
    )


def distinct_of_top3(log_probs):
    """The number of different tokens that top-3 sampling draws."""
    values, tokens = log_probs.topk(3)
    return len(tokens.gather(1, torch.multinomial(values.softmax(-1), 1)).unique())


@functools.cache
def trained(method="mle", beta2=0.98, beta2_of_W=None):
    """Measures of a bigram model with tied embeddings."""
    torch.manual_seed(0)
    train, test = text(60_000, seed=1), text(20_000, seed=2)
    counts = torch.bincount(train, minlength=V)
    embedding, hidden = nn.Embedding(V, D), nn.Linear(D, D)
    nn.init.normal_(embedding.weight, std=D**-0.5)
    rules = {
        "agg": AggGating(V, rare_fraction=0.4, window=200),
        "agps": AgpsGating(V, rare_rank=600, counts=counts, mu1=60, mu2=8),
    }
    gating = rules.get(method, Gating(V))
    training_loss = TrainingLoss(cosreg_gamma=1.0 if method == "cosreg" else 0.0)
    factorized = FactorizedSoftmax(D, mefmax(counts), embedding.weight) if method == "f2" else None
    others = [*hidden.parameters(), *([factorized.class_weight] if factorized else [])]
    weight_group = {"params": [embedding.weight], "betas": (0.9, beta2_of_W or beta2)}
    optimizer = torch.optim.Adam([weight_group, {"params": others}], lr=0.02, betas=(0.9, beta2))

    def features(tokens):
        return hidden(embedding(tokens)).tanh() * D**0.5 / 2

    for _ in range(UPDATES):
        position = torch.randint(len(train) - 1, (1, TOKENS))
        inputs = features(train[position]), train[position + 1]
        if factorized:
            loss = factorized(*inputs).loss
        else:
            h, y = inputs
            loss = training_loss(h, embedding.weight, y, gates=gating(y)).loss / TOKENS
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        gating.commit_update()
    statistics = NextTokenStatistics(frequency_groups(counts))
    with torch.no_grad():
        h, w = features(test[:-1]), embedding.weight
        if factorized:
            log_probs, u = factorized.log_prob(h), factorized.class_weight
            chosen = choose_class(h, u, sample=True)
            decoding = decoupled_log_prob(h, w, u, factorized.classes, chosen)
        else:
            log_probs = decoding = (h @ w.t()).log_softmax(-1)
        statistics.update(log_probs, test[1:])
    found = statistics.compute()
    return {
        "total": found["perplexity"]["total"],
        **{group: found["within_perplexity"][group] for group in ("frequent", "medium", "rare")},
        "isoscore": isoscore(w.detach()),
        "distinct": distinct_of_top3(decoding),
    }


BETA2 = {
    "total": (0.9, 0.98), "frequent": (0.9, 0.99), "medium": (0.84, 0.97), "rare": (0.7, 0.96),
    "isoscore": (0.18, 0.3), "distinct": (0.8, 1.5),
}  # fmt: skip
EFFECTS = [
    ("mle", {"beta2": 0.999}, BETA2),
    ("mle", {"beta2_of_W": 0.999}, BETA2),
    # This and CosReg lose within rare what they gain, if anything, within frequent.
    ("agps", {}, {"total": (0.94, 1.02), "frequent": (0.93, 0.995), "medium": (0.97, 1.12),
                  "rare": (1.15, 1.5), "isoscore": (0.05, 0.1), "distinct": (0.8, 1.5)}),
    # Neither gate alone reaches `rare` and `isoscore`.
    ("agg", {}, {"total": (0.9, 0.99), "frequent": (0.92, 1), "medium": (0.83, 0.92),
                 "rare": (0.66, 0.85), "isoscore": (0.31, 0.5), "distinct": (0.8, 1.5)}),
    ("cosreg", {}, {"total": (0.97, 1.1), "frequent": (0.97, 1.05), "medium": (1.08, 1.3),
                    "rare": (1.08, 1.7), "isoscore": (0.4, 0.6), "distinct": (1.2, 4)}),
    ("f2", {}, {"total": (0.9, 1.03), "frequent": (0.95, 1.07), "medium": (0.84, 0.94),
                "rare": (0.7, 0.82), "isoscore": (0.24, 0.46), "distinct": (5, 12)}),
]  # fmt: skip


@pytest.mark.parametrize(("method", "options", "expected"), EFFECTS)
def test_effect(method, options, expected):
    """Perplexity in total and within each group, and the number of sampled tokens, over those of
    plain likelihood with β₂ = 0.98; IsoScore less its one."""
    found, plain = trained(method, **options), trained()
    for name, (least, most) in expected.items():
        change = found[name] - plain[name] if name == "isoscore" else found[name] / plain[name]
        assert least < change < most, name
