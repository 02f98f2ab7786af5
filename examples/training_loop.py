"""Adaptive gradient gating in a training loop of your own: plain PyTorch, no fairseq."""

import torch
from torch import nn

from agg_fairseq.functional import agg_gates, gated_cross_entropy, rare_tokens
from agg_fairseq.modules import TokenCounter

text = "the cat sat on the mat and the dog sat on the log while one rare aardvark slept " * 50
words = sorted(set(text.split()))
tokens = torch.tensor([words.index(word) for word in text.split()])

V, D, T, B = len(words), 32, 16, 8
torch.manual_seed(0)
embedding, rnn = nn.Embedding(V, D), nn.GRU(D, D, batch_first=True)
optimizer = torch.optim.Adam([*embedding.parameters(), *rnn.parameters()], lr=0.01)
counter = TokenCounter(vocabulary=V, window=len(tokens) // (B * T))  # one epoch

for update in range(60):
    starts = torch.randint(len(tokens) - T, (B,))
    batch = torch.stack([tokens[start : start + T + 1] for start in starts])  # B x (T + 1)
    inputs, target = batch[:, :-1], batch[:, 1:]

    gates = None
    if counter.updates:  # the first update, with nothing in memory, is not gated
        rare = rare_tokens(counter.appearances, counter.updates, rare_fraction=0.2)
        gates = agg_gates(counter.appearances, counter.updates, rare)
    features, _ = rnn(embedding(inputs))  # B x T x D
    loss = gated_cross_entropy(features, embedding.weight, target, gates=gates).loss / target.numel()

    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    counter.add(target)
    counter.commit()
    if update % 20 == 19:
        print(f"update {update + 1}: loss {loss.item():.3f} nats, rare: {int(rare.sum())} of {V} words")
