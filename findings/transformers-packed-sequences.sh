#!/usr/bin/env bash
# transformers separates packed sequences in training, and lets them see each other in the same
# call with a cache.
#
# Expected: a batch of DataCollatorWithFlattening, whose position_ids begin again with each
#   sequence, has the loss of its sequences one by one, since the attention (eager or SDPA) finds
#   the borders in position_ids.
# Seen (transformers 5.23.0, torch 2.13.0): so it is with use_cache=False, which Trainer sets. By
#   default, the model first makes an empty cache, and then nothing looks for borders: each
#   sequence attends to all before it, without a warning. OPT does not give its mask the
#   position_ids, so that no setting separates the sequences.
# Why it matters: in a loop of one's own, training or not, `model(**batch).loss` is not the loss
#   that Trainer computes: perplexities of packed batches are wrong in either direction, and
#   gradients flow from one example to another.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq torch==2.13.0 transformers==5.23.0
"$folder/venv/bin/python" - <<'PYTHON'
import sys

import torch
import transformers
from torch.nn.functional import cross_entropy

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)
torch.manual_seed(0)
sizes = {"vocab_size": 50, "num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 32}
sizes |= {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
configs = [
    transformers.LlamaConfig(**sizes, intermediate_size=64, initializer_range=0.3),
    transformers.GPTNeoXConfig(**sizes, intermediate_size=64, initializer_range=0.3),
    transformers.OPTConfig(**sizes, ffn_dim=64, word_embed_proj_dim=32, init_std=0.3),
]
sequences = [torch.randint(3, 50, (length,)).tolist() for length in (10, 12, 9)]
batch = transformers.DataCollatorWithFlattening()([{"input_ids": tokens} for tokens in sequences])

print(f"transformers {transformers.__version__}, torch {torch.__version__}")
print("  loss of three sequences     one by one   packed, use_cache=False   packed, by default")
loss = {}
for config in configs:
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    name = config.model_type
    with torch.no_grad():
        rows = [
            (model(input_ids=torch.tensor([tokens])).logits[0, :-1], tokens[1:])
            for tokens in sequences
        ]
        alone = cross_entropy(
            torch.cat([r for r, _ in rows]), torch.tensor(sum((y for _, y in rows), []))
        )
        loss[name] = [
            alone.item(),
            model(**batch, use_cache=False).loss.item(),
            model(**batch).loss.item(),
        ]
    print("  {:24} {:13.4f} {:25.4f} {:20.4f}".format(name, *loss[name]))
print("  expected: equal columns; seen: the first two are equal, but in OPT")


def differ(a, b):
    return abs(a - b) > 0.01


if not all(
    differ(one_by_one, default) and differ(one_by_one, without_cache) == (name == "opt")
    for name, (one_by_one, without_cache, default) in loss.items()
):
    sys.exit("The behavior has changed.")
PYTHON
