#!/usr/bin/env bash
# A copy of an x-transformers model with tied embeddings goes on using the output layer of the
# original.
#
# Expected: copy.deepcopy(model) shares nothing with the model, and an average of the weights
#   (torch's AveragedModel, which copies the model) computes with averaged weights alone.
# Seen (x-transformers 2.31.10, torch 2.13.0): with tie_embedding=True, the output layer is a lambda
#   that holds the model itself. Functions are copied by reference, so each copy takes its hidden
#   states to the embedding of the original, as it is at that moment. Nothing warns, and the
#   parameters of the copy, and its state_dict(), look right.
# Why it matters: the loss of an average of the weights is measured with the last output layer, and
#   is another one after its checkpoint was loaded (0.059 and 0.093). A frozen copy (a teacher, a
#   reference of DPO) changes while the model is trained. A copy that is trained has no gradient of
#   the output layer in its own embedding.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq torch==2.13.0 x-transformers==2.31.10
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import copy
import sys
from importlib.metadata import version

import torch
from torch.nn.functional import cross_entropy
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from x_transformers import Decoder, TransformerWrapper

torch.set_num_threads(1)
V, LENGTH, UPDATES = 50, 12, 100


def language_model(tied):
    torch.manual_seed(0)
    return TransformerWrapper(
        num_tokens=V,
        max_seq_len=LENGTH,
        tie_embedding=tied,
        attn_layers=Decoder(dim=32, depth=1, heads=2),
    )


def loss(model):
    return cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())


# Each token determines the next.
successor = torch.randperm(V, generator=torch.Generator().manual_seed(1))
batch = [torch.randint(V, (32,), generator=torch.Generator().manual_seed(2))]
for _ in range(LENGTH):
    batch.append(successor[batch[-1]])
batch = torch.stack(batch, 1)

print(f"x-transformers {version('x-transformers')}, torch {torch.__version__}: loss")
print("               copy made before the training    average of the weights")
print("               at once       after training     as it is       loaded")
changed = False
for tied in (False, True):
    model = language_model(tied)
    frozen = copy.deepcopy(model)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.95))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    with torch.no_grad():
        before = loss(frozen).item()
    for _ in range(UPDATES):
        optimizer.zero_grad()
        loss(model).backward()
        optimizer.step()
        average.update_parameters(model)
    loaded = language_model(tied)
    loaded.load_state_dict(average.module.state_dict())
    with torch.no_grad():
        after, as_is, reloaded = (loss(m).item() for m in (frozen, average, loaded))
    print(f"  tied: {tied!s:6} {before:9.4f} {after:17.4f} {as_is:15.4f} {reloaded:12.4f}")
    changed |= (abs(before - after) > 0.01) != tied or (abs(as_is - reloaded) > 1e-4) != tied
print("  expected: two pairs of equal numbers in each line")
if changed:
    sys.exit("The behavior has changed.")
PYTHON
