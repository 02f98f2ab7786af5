#!/usr/bin/env bash
# PEFT's LoRA moves a token embedding by a quarter of its norm in one update, with a learning rate
# for linear layers.
#
# Expected: a learning rate, rank and alpha that suit the linear layers suit an embedding, too:
#   LoRA's initial factors, one random and one of zeros, are there so that updates have the same
#   scale everywhere.
# Seen (peft 0.21.2, transformers 5.23.0, torch 2.13.0): the random factor of a linear layer has a
#   standard deviation of 1/√(3 in_features), that of an embedding is N(0, 1). The first update of
#   Adam changes a coordinate of a row by about lr · alpha / √r, √(3 in_features) times as much as
#   a weight of a linear layer, whatever the size of the embedding. And lora_dropout does nothing
#   there.
# Why it matters: with "embed_tokens" in target_modules, so that a model can learn new words, the
#   rows of all words in the batch are soon replaced rather than adapted. The embedding needs a
#   learning rate of its own.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq torch==2.13.0 transformers==5.23.0 peft==0.21.2
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import sys

import peft
import torch
import transformers

RANK, ALPHA, LR = 8, 16, 1e-3
torch.set_num_threads(1)
torch.manual_seed(0)
config = transformers.LlamaConfig(
    vocab_size=2000,
    hidden_size=256,
    intermediate_size=512,
    num_hidden_layers=2,
    num_attention_heads=4,
)
lora = peft.LoraConfig(
    r=RANK, lora_alpha=ALPHA, lora_dropout=0.5, target_modules=["embed_tokens", "q_proj"]
)
model = peft.get_peft_model(transformers.LlamaForCausalLM(config), lora).train()
layers = {
    "embed_tokens": model.base_model.model.model.embed_tokens,
    "q_proj": model.base_model.model.model.layers[0].self_attn.q_proj,
}
batch = torch.randint(config.vocab_size, (8, 64))
seen = batch.unique()
trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
optimizer = torch.optim.Adam(trained, lr=LR)


def change(name):
    """Norm of what LoRA adds over the norm of the weights, of the rows in the batch for the embedding."""
    rows = seen if name == "embed_tokens" else slice(None)
    added = layers[name].get_delta_weight("default")[rows]
    return (added.norm() / layers[name].base_layer.weight[rows].norm()).item()


print(
    f"peft {peft.__version__}, transformers {transformers.__version__}, torch {torch.__version__}"
)
print(f"  r {RANK}, alpha {ALPHA}, Adam with {LR}; weights of N(0, 0.02²)")
print("  updates   ‖ΔW‖ / ‖W‖ of   q_proj   embed_tokens")
found = {}
for update in range(1, 11):
    optimizer.zero_grad()
    model(batch, labels=batch, use_cache=False).loss.backward()
    optimizer.step()
    found[update] = {name: change(name) for name in layers}
    if update in (1, 5, 10):
        print(f"  {update:7} {found[update]['q_proj']:24.1%} {found[update]['embed_tokens']:14.1%}")
with torch.no_grad():  # dropout of 0.5 would make two passes differ
    embedding = layers["embed_tokens"]
    repeatable = torch.equal(embedding(batch), embedding(batch))
print(
    f"  expected: alike, and dropout in both; seen: far from alike; dropout in the embedding: {not repeatable}"
)
if (
    found[1]["embed_tokens"] < 20 * found[1]["q_proj"]
    or found[10]["embed_tokens"] < 1
    or not repeatable
):
    sys.exit("The behavior has changed.")
PYTHON
