#!/usr/bin/env bash
# In transformers 5, resize_token_embeddings replaces the trained output layer of mT5 and T5 v1.1
# by the input embedding.
#
# Expected: "Resizes input token embeddings matrix of the model", and the output layer with it: the
#   old tokens keep their rows in both. mT5, T5 v1.1, Flan-T5 and LongT5 have an output layer of
#   their own (tie_word_embeddings is false in their config.json), which is loaded as it was saved.
# Seen (transformers 5.23.0, torch 2.13.0): the configurations of this family set
#   tie_word_embeddings to True, whatever the file says. from_pretrained sees that the checkpoint
#   has two different matrices and keeps both; resize_token_embeddings then ties them, also to the
#   size that they have. The output layer is gone without a message. Llama with an output layer of its own
#   keeps it.
# Why it matters: new tokens, such as names of languages, are added to mT5 before it is fine-tuned.
#   It then starts with worse predictions than uniform ones, and is trained and saved with one
#   matrix. The remedy is model.config.tie_word_embeddings = False before the call.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq torch==2.13.0 transformers==5.23.0
"$folder/venv/bin/python" -W ignore - "$folder" 2> >(grep -v "it/s\]" >&2) <<'PYTHON'
import copy
import json
import sys
from pathlib import Path

import torch
import transformers

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)
V, D = 50, 64
t5 = {"vocab_size": V, "d_model": D, "d_kv": 16, "d_ff": D, "num_layers": 1, "num_heads": 4}
t5 |= {"decoder_start_token_id": 0, "feed_forward_proj": "gated-gelu", "dropout_rate": 0.0}
llama = {"vocab_size": V, "hidden_size": D, "intermediate_size": D, "num_hidden_layers": 1}
configs = [
    transformers.LlamaConfig(**llama, num_attention_heads=4, tie_word_embeddings=False),
    transformers.T5Config(**t5, tie_word_embeddings=False),
    transformers.MT5Config(**t5, tie_word_embeddings=False),
    transformers.LongT5Config(**t5, tie_word_embeddings=False),
]
torch.manual_seed(0)
tokens = torch.randint(2, V, (16, 10))


def trained(config):
    """A model with its own output layer that has learned `tokens`, saved and loaded again."""
    if config.model_type == "llama":
        model = transformers.LlamaForCausalLM(config)
    else:
        model = transformers.AutoModelForSeq2SeqLM.from_config(config)
    model.lm_head.weight = torch.nn.Parameter(torch.randn(V, D) / D)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(150):
        optimizer.zero_grad()
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
    model.save_pretrained(sys.argv[1])
    file = Path(sys.argv[1], "config.json")  # as in the published models of these classes
    settings = json.loads(file.read_text()) | {"tie_word_embeddings": False}
    settings.pop("scale_decoder_outputs", None)
    file.write_text(json.dumps(settings))
    return type(model).from_pretrained(sys.argv[1]).eval()


def loss(model):
    with torch.no_grad():
        return model(input_ids=tokens, labels=tokens).loss.item()


print(f"transformers {transformers.__version__}: loss of models with an output layer of its own")
print("             loaded   resized to     resized to     resized to V + 1,")
print("                      V + 1 tokens   V tokens       tie_word_embeddings=False")
changed = False
for config in configs:
    model = trained(config)
    losses = [loss(model)]
    for size, remedy in ((V + 1, False), (V, False), (V + 1, True)):
        resized = copy.deepcopy(model)
        if remedy:
            resized.config.tie_word_embeddings = False
        resized.resize_token_embeddings(size)
        losses.append(loss(resized))
    print("  {:8} {:8.3f}   {:12.3f}   {:12.3f}   {:12.3f}".format(config.model_type, *losses))
    lost = [value > losses[0] + 1 for value in losses]
    changed |= lost != [False, config.model_type != "llama", config.model_type != "llama", False]
print("  expected: the first loss, or a little more for the new token, in all columns")
if changed:
    sys.exit("The behavior has changed.")
PYTHON
