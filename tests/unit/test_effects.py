"""What each method is for, on a toy text whose rare tokens appear once in hundreds of updates.

The margins hold for five seeds. Perplexity within the rare group tells whether rare tokens are told
apart; IsoScore, whether the embeddings use all dimensions.
"""

import functools

import pytest
import torch
from torch import nn

from agg_fairseq.f2 import FactorizedSoftmax, choose_class, decoupled_log_prob, mefmax
from agg_fairseq.metrics import NextTokenStatistics, frequency_groups, isoscore
from agg_fairseq.objective import AggObjective, AgpsObjective, Objective

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
    """Perplexities, IsoScore, and distinct sampled tokens of a bigram model with tied
    embeddings."""
    torch.manual_seed(0)
    train, test = text(60_000, seed=1), text(20_000, seed=2)
    counts = torch.bincount(train, minlength=V)
    embedding, hidden = nn.Embedding(V, D), nn.Linear(D, D)
    nn.init.normal_(embedding.weight, std=D**-0.5)
    objective = {
        "agg": lambda: AggObjective(V, rare_fraction=0.4, window=200),
        "agps": lambda: AgpsObjective(V, rare_rank=600, counts=counts, mu1=60, mu2=8),
        "cosreg": lambda: Objective(V, cosreg_gamma=1.0),
    }.get(method, lambda: Objective(V))()
    factorized = FactorizedSoftmax(D, mefmax(counts), embedding.weight) if method == "f2" else None
    others = [*hidden.parameters(), *([factorized.class_weight] if factorized else [])]
    of_W = {"params": [embedding.weight], "betas": (0.9, beta2_of_W or beta2)}
    optimizer = torch.optim.Adam([of_W, {"params": others}], lr=0.02, betas=(0.9, beta2))

    def features(tokens):
        return hidden(embedding(tokens)).tanh() * D**0.5 / 2

    for _ in range(UPDATES):
        position = torch.randint(len(train) - 1, (1, TOKENS))
        inputs = features(train[position]), train[position + 1]
        if factorized:
            loss = factorized(*inputs).loss
        else:
            loss = objective(inputs[0], embedding.weight, inputs[1]).loss / TOKENS
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        objective.commit_update()
    statistics = NextTokenStatistics(frequency_groups(counts))
    with torch.no_grad():
        h = features(test[:-1])
        log_probs = (
            factorized.log_prob(h) if factorized else (h @ embedding.weight.t()).log_softmax(-1)
        )
        statistics.update(log_probs, test[1:])
        if factorized:
            chosen = choose_class(h, factorized.class_weight, sample=True)
            log_probs = decoupled_log_prob(
                h, factorized.weight, factorized.class_weight, factorized.classes, chosen
            )
    total, within_rare = (statistics.compute()[f"{kind}perplexity"] for kind in ("", "within_"))
    return (
        total["total"],
        within_rare["rare"],
        isoscore(embedding.weight.detach()),
        distinct_of_top3(log_probs),
    )


@pytest.mark.parametrize(
    ("method", "options", "of_total", "of_within_rare", "more_isoscore", "of_distinct"),
    [
        ("mle", {"beta2": 0.999}, 0.97, 0.93, 0.18, 0.8),
        ("mle", {"beta2_of_W": 0.999}, 0.97, 0.93, 0.18, 0.8),
        ("agg", {}, 0.97, 0.8, 0.35, 0.8),  # neither gate alone reaches these
        ("agps", {}, 1.02, 1.5, 0.05, 0.8),
        ("cosreg", {}, 1.1, 1.7, 0.4, 0.8),
        ("f2", {}, 1.02, 0.85, 0.2, 5.0),
    ],
)
def test_effect(method, options, of_total, of_within_rare, more_isoscore, of_distinct):
    """Perplexities at most, and the others at least, so much beside those of plain likelihood with
    β₂ = 0.98."""
    total, within_rare, uniform, distinct = trained()
    found = trained(method, **options)
    assert found[0] < of_total * total and found[1] < of_within_rare * within_rare
    assert found[2] > uniform + more_isoscore and found[3] > of_distinct * distinct


def test_a_larger_beta2_works_through_the_embedding_alone():
    everywhere, of_W = trained(beta2=0.999), trained(beta2_of_W=0.999)
    assert of_W[0] == pytest.approx(everywhere[0], rel=0.01)
    assert of_W[2] == pytest.approx(everywhere[2], abs=0.02)
