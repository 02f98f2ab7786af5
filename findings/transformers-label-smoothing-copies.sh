#!/usr/bin/env bash
# transformers' Trainer, with label smoothing, trains language models that hear or see to copy the
# token they read.
#
# Expected: label_smoothing_factor=0.1 changes the labels from "onehot-encoded 0s and 1s" to
#   smoothed ones (documentation of TrainingArguments); what is predicted stays the next token.
# Seen (transformers 5.23.0, torch 2.13.0): Trainer computes the smoothed loss itself, and shifts
#   the labels for the classes of its list of causal language models alone. Decoders whose class
#   ends in ForConditionalGeneration (Voxtral, Qwen2-Audio, LLaVA, Qwen2.5-VL and most
#   others) are not in it: each position is trained to give its own token. The number of labels
#   that divides the loss is that of shifted ones.
# Why it matters: the training loss falls fast and nothing warns, while the model forgets to
#   predict. Fine-tuned without a change but label smoothing, it repeats the last token for ever.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq torch==2.13.0 transformers==5.23.0 accelerate==1.15.0
"$folder/venv/bin/python" -W ignore - "$folder" <<'PYTHON'
import sys

import torch
import transformers

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)
V, LENGTH, UPDATES = 40, 16, 150
text = {"vocab_size": V, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}
text |= {"num_attention_heads": 4, "num_key_value_heads": 4, "eos_token_id": None}
audio = {"num_mel_bins": 8, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1}
audio |= {"num_attention_heads": 4, "max_source_positions": 50}
configs = {
    "LlamaForCausalLM": transformers.LlamaConfig(**text),
    "VoxtralForConditionalGeneration": transformers.VoxtralConfig(
        audio_config=audio, text_config={"model_type": "llama", **text}, audio_token_id=0
    ),
}
# Sequences that count: 7 8 9 …, modulo V, without the token of audio
rows = [[1 + (start + i) % (V - 1) for i in range(LENGTH)] for start in range(V)]
data = [{"input_ids": torch.tensor(row), "labels": torch.tensor(row)} for row in rows]


def next_tokens(name, smoothing):
    """Continuation of "7 8 9" after a training, and the loss that Trainer logged last."""
    torch.manual_seed(0)
    model = getattr(transformers, name)(configs[name])
    options = transformers.TrainingArguments(
        sys.argv[1],
        label_smoothing_factor=smoothing,
        max_steps=UPDATES,
        learning_rate=1e-2,
        per_device_train_batch_size=V,
        logging_steps=UPDATES,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = transformers.Trainer(model, options, train_dataset=data)
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train()
    tokens = [7, 8, 9]
    for _ in range(4):
        with torch.no_grad():
            logits = model.eval()(input_ids=torch.tensor([tokens])).logits
        tokens.append(logits[0, -1].argmax().item())
    return tokens[3:]


print(f"transformers {transformers.__version__}: trained to count; \"7 8 9\" is continued by")
found = {}
for name in configs:
    for smoothing in (0.0, 0.1):
        found[name, smoothing] = tokens = next_tokens(name, smoothing)
        print(f"  {name:32} label_smoothing_factor={smoothing}:", *tokens)
print("  expected: 10 11 12 13 in all four")
*right, copying = found.values()
if right != [[10, 11, 12, 13]] * 3 or copying != [9] * 4:
    sys.exit("The behavior has changed.")
PYTHON
