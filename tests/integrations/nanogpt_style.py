"""A training script in the style of nanoGPT, in raw PyTorch with options as globals;
examples/nanogpt.md changes it."""
# fmt: off

import os

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

out_dir = "out"
init_from = "scratch"
vocab_size = 40
block_size = 8
batch_size = 3
gradient_accumulation_steps = 2
max_iters = 6
eval_interval = 3
learning_rate = 0.01
ddp = False
device = "cpu"
globals().update(globals().get("overrides", {}))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(vocab_size, 16)
        self.mix = nn.GRU(16, 16, batch_first=True)
        self.lm_head = nn.Linear(16, vocab_size, bias=False)
        self.wte.weight = self.lm_head.weight

    def forward(self, idx, targets=None):
        x, _ = self.mix(self.wte(idx))
        if targets is not None:
            logits = self.lm_head(x)
            loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)
        else:
            logits = self.lm_head(x[:, [-1], :])
            loss = None
        return logits, loss


generator = torch.Generator().manual_seed(1)
tokens = torch.multinomial(
    1 / torch.arange(1, vocab_size + 1.0), 4000, replacement=True, generator=generator
)


def get_batch():
    ix = torch.randint(len(tokens) - block_size, (batch_size,))
    x = torch.stack([tokens[i : i + block_size] for i in ix])
    y = torch.stack([tokens[i + 1 : i + 1 + block_size] for i in ix])
    return x.to(device), y.to(device)


torch.manual_seed(1337)
iter_num = 0
losses = []
model = GPT().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
if init_from == "resume":
    checkpoint = torch.load(os.path.join(out_dir, "ckpt.pt"), map_location=device)
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    iter_num = checkpoint["iter_num"]
if ddp:
    model = DDP(model)
raw_model = model.module if ddp else model


while True:
    if iter_num % eval_interval == 0:
        torch.manual_seed(iter_num)  # not nanoGPT's: so that a resumed training sees the same data
        checkpoint = {
            "model": raw_model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "iter_num": iter_num,
        }
        torch.save(checkpoint, os.path.join(out_dir, "ckpt.pt"))
        X, Y = get_batch()
    for micro_step in range(gradient_accumulation_steps):
        if ddp:
            model.require_backward_grad_sync = micro_step == gradient_accumulation_steps - 1
        logits, loss = model(X, Y)
        loss = loss / gradient_accumulation_steps
        X, Y = get_batch()
        loss.backward()
    losses.append(loss.item())
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    iter_num += 1
    if iter_num >= max_iters:
        break
