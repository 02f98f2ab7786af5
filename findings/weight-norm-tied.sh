#!/usr/bin/env bash
# torch's weight_norm of a tied output layer makes two parameters of one memory, and the optimizer
# steps twice on it.
#
# Expected: `weight_norm(head)`, with head.weight = embedding.weight, keeps the matrix shared,
#   unties it, or refuses.
# Seen (torch 2.13.0): the parameter of the directions is new, but its memory is that of the
#   embedding's, which remains a parameter. Each has its own gradient and its own moments of Adam,
#   so an update moves an entry by up to twice the learning rate. `.to(another dtype)` and deepcopy
#   give each its own memory: then they are untied. Nothing warns. The deprecated
#   torch.nn.utils.weight_norm does the same.
# Why it matters: the same model and seed have three losses: tied; with weight_norm; with
#   weight_norm and then moved or copied (for mixed precision, for an average of the weights). The
#   count of the parameters says that it is untied.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq torch==2.13.0
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import copy
import sys

import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

torch.set_num_threads(1)
V, D, LR, UPDATES = 100, 16, 0.01, 100


class LanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.rnn, self.head = (
            nn.Embedding(V, D),
            nn.GRU(D, D, batch_first=True),
            nn.Linear(D, V),
        )
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        return self.head(self.rnn(self.embedding(tokens))[0])


def train(model):
    """The parameters with the embedding's memory, its largest change in the first update, and the last loss."""
    own = model.embedding.weight
    sharing = sum(parameter.data_ptr() == own.data_ptr() for parameter in model.parameters())
    before = own.detach().clone()
    optimizer = torch.optim.Adam(model.parameters(), lr=LR)
    for update in range(UPDATES):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(
            model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten()
        )
        loss.backward()
        optimizer.step()
        if not update:
            change = (own - before).abs().max().item() / LR
    return sharing, change, loss.item()


torch.manual_seed(1)
batch = torch.randint(V, (64, 20))
tied, normed, copied = LanguageModel(), LanguageModel(), LanguageModel()
weight_norm(normed.head, dim=0)
weight_norm(copied.head, dim=0)
copied = copy.deepcopy(copied)
print(f"torch {torch.__version__}: embedding and output layer share a matrix; Adam")
print("                             parameters   of them on   largest change   loss after")
print("                                in all    its memory   / learning rate  100 updates")
found = {}
for name, model in {
    "tied": tied,
    "with weight_norm": normed,
    "with weight_norm, copied": copied,
}.items():
    size = sum(parameter.numel() for parameter in model.parameters())
    found[name] = sharing, change, loss = train(model)
    print(f"  {name:24} {size:11,} {sharing:11} {change:16.2f} {loss:14.4f}")
print("  expected: one parameter on its memory, a change of 1, and the same for a copy")
if (
    [sharing for sharing, _, _ in found.values()] != [1, 2, 1]
    or [round(change, 2) for _, change, _ in found.values()] != [1, 2, 1]
    or abs(found["with weight_norm"][2] - found["with weight_norm, copied"][2]) < 0.05
):
    sys.exit("The behavior has changed.")
PYTHON
