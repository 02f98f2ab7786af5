#!/usr/bin/env bash
# CTranslate2 divides the logits of Flan-T5, mT5 and T5 v1.1 by √d_model if it converts them with
# transformers 5.
#
# Expected: a converted model scores a translation as the model does: T5 is on CTranslate2's list of
#   supported architectures. The first T5 multiplies the decoder's output by 1/√d_model; T5 v1.1 and
#   its successors, whose config.json has tie_word_embeddings: false, do not.
# Seen (ctranslate2 4.8.5, transformers 5.23.0, torch 2.13.0): transformers 5 sets
#   config.tie_word_embeddings to True for the whole family, and remembers elsewhere whether to
#   multiply. The converter still asks config.tie_word_embeddings, and so multiplies always. Nothing
#   warns.
# Why it matters: the most probable next token stays the same, so greedy search hides it. All
#   probabilities are flattened, as with a temperature of 32 for d_model = 1,024: log-probabilities
#   of translations, beam search and sampling are those of an almost uniform distribution.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq torch==2.13.0 transformers==5.23.0 ctranslate2==4.8.5
"$folder/venv/bin/python" -W ignore - "$folder" 2> >(grep -v "it/s\]" >&2) <<'PYTHON'
import json
import sys
from pathlib import Path

import ctranslate2
import tokenizers
import torch
import transformers

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)
V, D, LENGTH = 50, 64, 6
sizes = {"vocab_size": V, "d_model": D, "d_kv": 16, "d_ff": D, "num_layers": 1, "num_heads": 4}
sizes |= {"decoder_start_token_id": 0, "eos_token_id": 1, "dropout_rate": 0.0}
configs = {
    "T5": transformers.T5Config(**sizes),
    "T5 v1.1": transformers.T5Config(
        **sizes, feed_forward_proj="gated-gelu", tie_word_embeddings=False
    ),
    "mT5": transformers.MT5Config(
        **sizes, feed_forward_proj="gated-gelu", tie_word_embeddings=False
    ),
}
words = ["<pad>", "</s>", "<unk>"] + [f"w{i}" for i in range(3, V)]
vocabulary = tokenizers.models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>")
tokenizer = transformers.PreTrainedTokenizerFast(
    tokenizer_object=tokenizers.Tokenizer(vocabulary),
    pad_token="<pad>",
    eos_token="</s>",
    unk_token="<unk>",
)
torch.manual_seed(0)
ends = torch.ones(32, 1, dtype=torch.long)
source = torch.cat([torch.randint(3, V, (32, LENGTH)), ends], 1)
target = torch.cat([source[:, :LENGTH].flip(1), ends], 1)


def train(config, folder):
    """Trains a model to reverse sentences, and saves it as the published ones are."""
    model = transformers.AutoModelForSeq2SeqLM.from_config(config)
    if config.feed_forward_proj != "relu":
        model.lm_head.weight = torch.nn.Parameter(torch.randn(V, D) / D)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(300):
        optimizer.zero_grad()
        model(input_ids=source, labels=target).loss.backward()
        optimizer.step()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    file = Path(folder, "config.json")
    settings = json.loads(file.read_text())
    settings["tie_word_embeddings"] = config.feed_forward_proj == "relu"
    settings.pop("scale_decoder_outputs", None)
    file.write_text(json.dumps(settings))


print(f"ctranslate2 {ctranslate2.__version__}, transformers {transformers.__version__}:", end=" ")
print(f"loss of models trained to reverse sentences (uniform: {torch.tensor(V).log():.3f})")
print("            transformers   CTranslate2   with logits / √d_model")
changed = False
for number, (name, config) in enumerate(configs.items()):
    folder = f"{sys.argv[1]}/{number}"
    train(config, folder)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    with torch.no_grad():
        output = model(input_ids=source, labels=target)
    flattened = torch.nn.functional.cross_entropy(
        output.logits.flatten(0, 1) / D**0.5, target.flatten()
    ).item()

    ctranslate2.converters.TransformersConverter(folder).convert(folder + "/converted")
    scores = ctranslate2.Translator(folder + "/converted").score_batch(
        [[words[i] for i in row] for row in source],
        [[words[i] for i in row[:LENGTH]] for row in target],
    )
    loss = output.loss.item()
    converted = -sum(sum(s.log_probs) for s in scores) / target.numel()
    print(f"  {name:8} {loss:13.4f}   {converted:11.4f}   {flattened:22.4f}")
    changed |= abs(converted - (loss if name == "T5" else flattened)) > 0.01
print("  expected: the first two columns are equal")
if changed:
    sys.exit("The behavior has changed.")
PYTHON
