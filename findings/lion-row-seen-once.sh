#!/usr/bin/env bash
# With Lion, the embedding of a word that occurs once moves by the learning rate in every later
# update, for ever.
#
# Expected: the word moves for a few hundred updates, while its momentum decays by 0.99 an update,
#   and then stands still, as with Adam.
# Seen (lion-pytorch 0.2.5, torch 2.13.0): Lion steps by the sign of the momentum, whatever its
#   size; and in float32 the momentum never becomes 0: at 7e-44, a subnormal number, 0.99 times it
#   rounds to itself. After 20,000 updates without the word, its row has moved by 20,000 learning
#   rates, as far as the row of a word in every batch.
# Why it matters: most rows of an input embedding that is not tied have a gradient of exactly 0 in
#   most updates. With Lion, all words that have occurred drift in the direction of their last
#   occurrences: the rarer, the farther per occurrence. Weight decay alone bounds this, at 1 /
#   weight_decay in each coordinate.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq torch==2.13.0 lion-pytorch==0.2.5
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import sys
from importlib.metadata import version

import torch
from lion_pytorch import Lion

UPDATES, LR = 20_000, 1e-4
torch.set_num_threads(1)


def distance_in_learning_rates(optimizer):
    """How far the rows of a word in every batch, in the first batch alone, and in none have moved."""
    torch.manual_seed(0)
    embedding = torch.nn.Embedding(3, 8)
    start = embedding.weight.detach().clone()
    optimizer = optimizer(embedding.parameters(), lr=LR)
    for update in range(UPDATES):
        optimizer.zero_grad()
        embedding(torch.tensor([0] if update else [0, 1])).sum().backward()
        optimizer.step()
    return ((embedding.weight - start).abs().mean(1) / LR).tolist()


print(f"lion-pytorch {version('lion-pytorch')}, torch {torch.__version__}")
print(f"  mean distance of a row after {UPDATES:,} updates, in learning rates: of a word that is")
print("            in every batch   in the first batch alone   in none")
moved = {
    name: distance_in_learning_rates(cls)
    for name, cls in {"Adam": torch.optim.Adam, "Lion": Lion}.items()
}
for name, (always, once, never) in moved.items():
    print(f"  {name} {always:20,.0f} {once:26,.1f} {never:9,.0f}")
print(
    "  expected: with Lion, too, the word that occurs once soon stands still; seen: it never does"
)
if moved["Adam"][1] > 100 or moved["Lion"][1] < 0.99 * UPDATES:
    sys.exit("The behavior has changed.")
PYTHON
