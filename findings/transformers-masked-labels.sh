#!/usr/bin/env bash
# In transformers' encoder-decoders, a label of -100 also takes the word out of what the decoder
# reads.
#
# Expected: "Tokens with indices set to `-100` are ignored (masked), the loss is only computed for
#   the tokens with labels in `[0, ..., config.vocab_size]`" (documentation of labels): which words
#   count, and not what is computed from the others. So it is in decoders such as Llama.
# Seen (transformers 5.23.0, torch 2.13.0): without decoder_input_ids, the decoder reads the labels,
#   shifted; that is documented. Each -100 is replaced by <pad> first, which is read like a word: it
#   is not masked in the attention. A word that follows is predicted without those before it. mBART
#   also takes the wrong word as the first one: it counts words that are not <pad> to find the tag of
#   the language.
# Why it matters: a prompt, a tag or a prefix given by a translator is masked so that only the rest
#   is trained; Whisper's previous text likewise. The decoder is then trained never to have seen it,
#   and nothing warns: losses may go up or down. The remedy is to give decoder_input_ids of the
#   whole text.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq torch==2.13.0 transformers==5.23.0
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import sys

import torch
import transformers
from torch.nn.functional import cross_entropy

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)
V, PREFIX = 60, 4
bart = {"vocab_size": V, "d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "init_std": 0.3}
bart |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "decoder_start_token_id": 2}
bart |= {"encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "pad_token_id": 1, "eos_token_id": 2}
llama = {"vocab_size": V, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1}
llama |= {"num_attention_heads": 2, "initializer_range": 0.3}
t5 = {"vocab_size": V, "d_model": 32, "d_kv": 16, "d_ff": 32, "num_layers": 1, "num_heads": 2}
whisper = bart | {"num_mel_bins": 8, "max_source_positions": 20, "max_target_positions": 40}
models = {
    "LlamaForCausalLM": transformers.LlamaConfig(**llama),
    "T5ForConditionalGeneration": transformers.T5Config(**t5, decoder_start_token_id=0),
    "BartForConditionalGeneration": transformers.BartConfig(**bart),
    "MBartForConditionalGeneration": transformers.MBartConfig(**bart),
    "M2M100ForConditionalGeneration": transformers.M2M100Config(**bart),
    "WhisperForConditionalGeneration": transformers.WhisperConfig(**whisper),
}
torch.manual_seed(0)
source, target = torch.randint(5, V, (8, 9)), torch.randint(5, V, (8, 10))
labels = target.clone()
labels[:, :PREFIX] = -100

print(f"transformers {transformers.__version__}, torch {torch.__version__}: loss of 6 words after 4")
print("                                     labels of -100   those words read")
changed = False
for name, config in models.items():
    model = getattr(transformers, name)(config).eval()
    decoder = name == "LlamaForCausalLM"
    inputs = {"input_ids": target if decoder else source}
    if name.startswith("Whisper"):
        inputs = {"input_features": torch.randn(8, 8, 40)}
    with torch.no_grad():
        masked = model(**inputs, labels=labels).loss.item()
        logits = model(**inputs, labels=target).logits
    if decoder:
        logits = logits.roll(1, 1)  # the logits at a position predict the next token
    read = cross_entropy(logits[:, PREFIX:].flatten(0, 1), target[:, PREFIX:].flatten()).item()
    print(f"  {name:32} {masked:16.4f} {read:18.4f}")
    changed |= (abs(masked - read) < 1e-4) != decoder
print("  expected: equal in each line")

model = transformers.MBartForConditionalGeneration(models["MBartForConditionalGeneration"])
languages = torch.tensor([[11, 12, 13, 14, 15, 2, 50]])  # 2 is the end, 50 a language's tag
prefix_masked = languages.masked_fill(torch.arange(7) < 3, -100)
for title, given in ("all labels", languages), ("3 labels of -100", prefix_masked):
    found = model.prepare_decoder_input_ids_from_labels(given)[0].tolist()
    print(f"mBART reads, with {title:17}", *found)
    changed |= (found[0] == 50) != (given is languages)
print("  expected: 50 11 12 13 14 15 2 in both")
if changed:
    sys.exit("The behavior has changed.")
PYTHON
