"""What a larger β₂ and AGG are for, on a toy text whose rare tokens appear once in hundreds of
updates.

Perplexity within a group tells whether its tokens are told apart; IsoScore, whether the embeddings
use all dimensions. The ranges hold for the seeds 0 to 4.
"""

import functools

import pytest
import torch
from torch import nn

from agg_fairseq.metrics import NextTokenStatistics, frequency_groups, isoscore
from agg_fairseq.objective import AggObjective, Objective

V, D, CLUSTERS, UPDATES, TOKENS = 1000, 16, 10, 600, 32


def text(length, seed):
    """Tokens under Zipf's law; token k is in cluster k mod 10, and cluster c is followed by c + 1
    or c + 3."""
    generator = torch.Generator().manual_seed(seed)
    clusters = (1 + 2 * torch.randint(2, (length,), generator=generator)).cumsum(0) % CLUSTERS
    frequencies = (1 / torch.arange(1, V + 1.0)).view(-1, CLUSTERS).t()  # cluster x member
    members = torch.multinomial(frequencies[clusters], 1, generator=generator).squeeze(1)
    return members * CLUSTERS + clusters


@functools.cache
def trained(method="mle", beta2=0.98, beta2_of_W=None):
    """Measures of a bigram model with tied embeddings."""
    torch.manual_seed(0)
    train, test = text(60_000, seed=1), text(20_000, seed=2)
    embedding, hidden = nn.Embedding(V, D), nn.Linear(D, D)
    nn.init.normal_(embedding.weight, std=D**-0.5)
    objective = Objective(V)
    if method == "agg":
        objective = AggObjective(V, rare_fraction=0.4, window=200)
    of_W = {"params": [embedding.weight], "betas": (0.9, beta2_of_W or beta2)}
    others = {"params": hidden.parameters()}
    optimizer = torch.optim.Adam([of_W, others], lr=0.02, betas=(0.9, beta2))

    def features(tokens):
        return hidden(embedding(tokens)).tanh() * D**0.5 / 2

    for _ in range(UPDATES):
        position = torch.randint(len(train) - 1, (1, TOKENS))
        output = objective(features(train[position]), embedding.weight, train[position + 1])
        optimizer.zero_grad()
        (output.loss / TOKENS).backward()
        optimizer.step()
        objective.commit_update()
    statistics = NextTokenStatistics(frequency_groups(torch.bincount(train, minlength=V)))
    with torch.no_grad():
        logits = features(test[:-1]) @ embedding.weight.t()
        statistics.update(logits.log_softmax(-1), test[1:])
    found = statistics.compute()
    total = {"total": found["perplexity"]["total"], "isoscore": isoscore(embedding.weight.detach())}
    return found["within_perplexity"] | total


BETA2 = {"total": (0.9, 0.98), "frequent": (0.9, 0.99), "medium": (0.84, 0.97),
         "rare": (0.7, 0.96), "isoscore": (0.18, 0.3)}  # fmt: skip
# neither gate alone reaches `rare` and `isoscore`
AGG = {"total": (0.9, 0.99), "frequent": (0.92, 1), "medium": (0.83, 0.92),
       "rare": (0.66, 0.85), "isoscore": (0.31, 0.5)}  # fmt: skip


@pytest.mark.parametrize(
    ("options", "expected"),
    [({"beta2": 0.999}, BETA2), ({"beta2_of_W": 0.999}, BETA2), ({"method": "agg"}, AGG)],
)
def test_effect(options, expected):
    """Perplexity in total and within each group, over that of plain likelihood with β₂ = 0.98;
    IsoScore less its one."""
    found, plain = trained(**options), trained()
    for name, (least, most) in expected.items():
        change = found[name] - plain[name] if name == "isoscore" else found[name] / plain[name]
        assert least < change < most, name


def test_a_larger_beta2_works_through_the_embedding_alone():
    everywhere, of_W = trained(beta2=0.999), trained(beta2_of_W=0.999)
    assert of_W["total"] == pytest.approx(everywhere["total"], rel=0.01)
    assert of_W["isoscore"] == pytest.approx(everywhere["isoscore"], abs=0.02)
