#!/usr/bin/env bash
# torch's Muon trains GPT-2 differently from the same network with nn.Linear, since transformers'
# Conv1D is transposed.
#
# Expected: Conv1D (in, out) and nn.Linear (out, in) with the same weights compute the same, and
#   are trained alike; Muon's orthogonal update of Gᵀ is the transposed update of G.
# Seen (torch 2.13.0, transformers 5.23.0): Muon scales the update by √max(1, rows / columns), by
#   default. Where nn.Linear would step twice as far (the first matrix of the feed-forward layer,
#   4D × D), Conv1D does not, and where it would not (the second), Conv1D does; the matrix of
#   attention's queries, keys and values steps by 1/√3 as far.
# Why it matters: learning rates of Muon do not carry over between GPT-2 of transformers and the
#   same GPT-2 elsewhere (nanoGPT), and comparisons of optimizers on both differ by layer.
#   adjust_lr_fn="match_rms_adamw" does not depend on the orientation.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq torch==2.13.0 transformers==5.23.0
"$folder/venv/bin/python" - <<'PYTHON'
import copy
import sys

import torch
import transformers

transformers.logging.set_verbosity_error()
torch.manual_seed(0)


def with_linear(model):
    """A copy of the model with nn.Linear for each Conv1D."""
    model = copy.deepcopy(model)
    for module in list(model.modules()):
        for name, conv in list(module.named_children()):
            if isinstance(conv, transformers.pytorch_utils.Conv1D):
                linear = torch.nn.Linear(*conv.weight.shape)
                linear.weight.data, linear.bias.data = (
                    conv.weight.data.t().contiguous(),
                    conv.bias.data,
                )
                setattr(module, name, linear)
    return model


def update(model, optimizer):
    """The loss, and how far the first update moves the matrices of a block."""
    matrices = [
        parameter for parameter in model.transformer.h[0].parameters() if parameter.ndim == 2
    ]
    before = [matrix.detach().clone() for matrix in matrices]
    loss = model(batch, labels=batch).loss
    loss.backward()
    optimizer(matrices).step()
    return loss.item(), [(new - old).norm().item() for new, old in zip(matrices, before)]


config = transformers.GPT2Config(
    vocab_size=100, n_embd=64, n_layer=1, n_head=4, bos_token_id=0, eos_token_id=0
)
models = [transformers.GPT2LMHeadModel(config).eval()]
models.append(with_linear(models[0]))
batch = torch.randint(100, (16, 32))

print(
    f"torch {torch.__version__}, transformers {transformers.__version__}: a block of GPT-2, one update"
)
print("  how far Conv1D moves / nn.Linear moves      q, k, v   output   4D × D   D × 4D")
ratios = {}
for name, optimizer in {
    "AdamW": lambda p: torch.optim.AdamW(p, weight_decay=0),
    "Muon": lambda p: torch.optim.Muon(p, weight_decay=0),
    "Muon, match_rms_adamw": lambda p: torch.optim.Muon(
        p, weight_decay=0, adjust_lr_fn="match_rms_adamw"
    ),
}.items():
    (loss, moved), (loss_of_linear, moved_linear) = (
        update(copy.deepcopy(model), optimizer) for model in models
    )
    if abs(loss - loss_of_linear) > 1e-5:
        sys.exit("The two models do not compute the same.")
    ratios[name] = [x / y for x, y in zip(moved, moved_linear)]
    print(f"  {name:40}", *(f"{ratio:8.2f}" for ratio in ratios[name]))
print("  expected: 1 everywhere; seen: not with Muon's default")


def equal(found, expected):
    return all(abs(x - y) < 0.05 for x, y in zip(found, expected))


if not (equal(ratios["AdamW"], [1] * 4) and equal(ratios["Muon"], [3**-0.5, 1, 0.5, 2])):
    sys.exit("The behavior has changed.")
PYTHON
