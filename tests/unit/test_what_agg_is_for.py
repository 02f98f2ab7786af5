"""AGG against likelihood with Adam's β₂ = 0.98, where a rare token appears once in hundreds of updates."""

import torch
from torch import nn

from agg_fairseq.metrics import NextTokenStatistics, frequency_groups, isoscore
from agg_fairseq.objective import AggObjective, Objective

V, D, CLUSTERS, UPDATES, TOKENS = 1000, 16, 10, 600, 32


def text(length, seed):
    """Tokens under Zipf's law; token k is in cluster k mod 10, and cluster c is followed by c + 1 or c + 3."""
    generator = torch.Generator().manual_seed(seed)
    clusters = (1 + 2 * torch.randint(2, (length,), generator=generator)).cumsum(0) % CLUSTERS
    frequencies = (1 / torch.arange(1, V + 1.0)).view(-1, CLUSTERS).t()  # cluster x member
    return torch.multinomial(frequencies[clusters], 1, generator=generator).squeeze(1) * CLUSTERS + clusters


def trained(objective):
    """The perplexity within the rare group, and the IsoScore, of a bigram model with tied embeddings."""
    torch.manual_seed(0)
    train, test = text(60_000, seed=1), text(20_000, seed=2)
    embedding, hidden = nn.Embedding(V, D), nn.Linear(D, D)
    nn.init.normal_(embedding.weight, std=D**-0.5)
    optimizer = torch.optim.Adam([*embedding.parameters(), *hidden.parameters()], lr=0.02, betas=(0.9, 0.98))

    def features(tokens):
        return hidden(embedding(tokens)).tanh() * D**0.5 / 2

    for _ in range(UPDATES):
        position = torch.randint(len(train) - 1, (1, TOKENS))
        loss = objective(features(train[position]), embedding.weight, train[position + 1]).loss / TOKENS
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        objective.commit_update()
    statistics = NextTokenStatistics(frequency_groups(torch.bincount(train, minlength=V)))
    with torch.no_grad():
        statistics.add((features(test[:-1]) @ embedding.weight.t()).log_softmax(-1), test[1:])
    return statistics.within_perplexity()["rare"], isoscore(embedding.weight.detach())


def test_rare_tokens_are_told_apart_and_embeddings_use_all_dimensions():
    """By margins that neither gate alone reaches: with other seeds too, these lower the perplexity by at most 16%."""
    plain, plain_isoscore = trained(Objective(V))
    gated, gated_isoscore = trained(AggObjective(V, rare_fraction=0.4, window=200))
    assert gated < 0.8 * plain and gated_isoscore > plain_isoscore + 0.35
