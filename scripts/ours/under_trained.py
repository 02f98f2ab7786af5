"""Tokens that no training text had, looked for in the weights of small GPT-2s of different objectives.

    python -m scripts.ours.under_trained [--data DIR] [--updates 500] [--seeds 1 2 3] [--json FILE]

Needs `pip install '.[transformers,eval]'` and the file `wiki.train.tokens` of WikiText-2 in DIR. A byte-level BPE is
made of this text. Then all lines that have one of 100 planted tokens are left out, and GPT-2s are trained on the
others: with tied and separate embeddings, by likelihood with and without weight decay, by AGG and with a fixed
log-unigram bias. What `agg-fairseq tokens` lists, knowing only the 16 rows beyond the tokenizer as unused, is compared
with the tokens that do not occur in the text.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
import transformers
from tokenizers import ByteLevelBPETokenizer
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel

from agg_fairseq.checkpoints import open_models
from agg_fairseq.evaluation import under_trained
from agg_fairseq.files import write_json
from agg_fairseq.integrations.transformers import GatedLoss
from agg_fairseq.result import SeedValues, format_table

DATA = Path(os.environ.get("AGG_DATA", "../shared/data")) / "wikitext-2"
TRAININGS = (("likelihood", 0.0), ("likelihood", 0.1), ("AGG", 0.1), ("fixed bias", 0.1))
"""Objective and weight decay."""
SURPLUS = 16
"""Rows of a model beyond its tokenizer: an output layer is often padded to a round number."""
BLOCK, BATCH, RATE, WARM_UP = 64, 32, 0.003, 100
COLUMNS = {"indicator": 0, "threshold": 3, "recall": 2, "precision": 2, "precision, seen twice at most": 2}
"""Digits of what is measured."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains all models and prints a row for each setting, over the seeds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help=f"folder of wiki.train.tokens (default: {DATA})")
    parser.add_argument("--vocabulary", type=int, default=4000, help="sub-words of the BPE (default: 4000)")
    parser.add_argument("--planted", type=int, default=100, help="tokens that are kept out of the text (default: 100)")
    parser.add_argument("--updates", type=int, default=500, help="default: 500, of 2,048 tokens each")
    parser.add_argument("--dimension", type=int, default=64, help="of the embeddings (default: 64)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], help="default: 1 2 3")
    parser.add_argument("--json", metavar="FILE", help="also write the numbers to FILE")
    options = parser.parse_args(arguments)
    blocks, counts = text_without(options.data / "wiki.train.tokens", options.vocabulary, options.planted)
    unseen = int((counts[: options.vocabulary] == 0).sum())
    print(
        f"torch {torch.__version__}, transformers {transformers.__version__}; {blocks.numel():,} training tokens; "
        f"{unseen} of {options.vocabulary:,} tokens do not occur\n"
    )
    measured: dict[tuple[str, ...], dict[int, dict[str, float | str]]] = {}
    for seed, tied, (method, decay) in itertools.product(options.seeds, (True, False), TRAININGS):
        model = gpt2(counts, options.dimension, tied=tied, has_bias=method == "fixed bias", seed=seed)
        train(model, blocks, options.updates, decay=decay, has_agg=method == "AGG", seed=seed)
        row = ("tied" if tied else "separate", method, f"{decay:g}")
        measured.setdefault(row, {})[seed] = found(model, counts)
    rows = [
        (*row, *(SeedValues({seed: one[of] for seed, one in by_seed.items()}).format(COLUMNS[of]) for of in COLUMNS))
        for row, by_seed in measured.items()
    ]
    print(format_table(("embeddings", "objective", "weight decay", *COLUMNS), rows))
    if options.json is not None:
        write_json(options.json, {" ".join(row): by_seed for row, by_seed in measured.items()})


def text_without(path: Path, vocabulary: int, planted: int) -> tuple[Tensor, Tensor]:
    """The tokens of all lines without any of the planted tokens.

    Args:
        path: of the text.
        vocabulary: tokens of the BPE that is made of the text.
        planted: how many of the tokens are left out, drawn from the three quarters that occur less often.

    Returns:
        The text (blocks, 64), and how often each row of a model occurs in it (vocabulary + 16).
    """
    bpe = ByteLevelBPETokenizer()
    bpe.train([str(path)], vocab_size=vocabulary, show_progress=False)
    lines = [line.ids for line in bpe.encode_batch(path.read_text(encoding="utf-8").splitlines(keepends=True))]
    order = torch.bincount(torch.tensor(list(itertools.chain(*lines))), minlength=vocabulary).argsort(descending=True)
    left_out = set(random.Random(1).sample(order[vocabulary // 4 :].tolist(), planted))
    text = torch.tensor([token for line in lines if left_out.isdisjoint(line) for token in line])
    counts = torch.bincount(text, minlength=vocabulary + SURPLUS)
    return text[: len(text) // BLOCK * BLOCK].view(-1, BLOCK), counts


def gpt2(counts: Tensor, dimension: int, *, tied: bool, has_bias: bool, seed: int) -> GPT2LMHeadModel:
    """A GPT-2 of two layers with random weights; `has_bias` gives its output layer the fixed log-unigram bias."""
    torch.manual_seed(seed)
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=len(counts), n_layer=2, n_embd=dimension, n_head=4, n_positions=BLOCK, tie_word_embeddings=tied,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=None, eos_token_id=None,
        )
    )  # fmt: skip
    if has_bias:
        model.lm_head.bias = nn.Parameter((counts + 1).log() - (counts + 1).sum().log(), requires_grad=False)
    return model


def train(
    model: GPT2LMHeadModel, blocks: Tensor, updates: int, *, decay: float, has_agg: bool, seed: int
) -> GPT2LMHeadModel:
    """Trains a model by AdamW, with a rate that rises for 100 updates and falls to 0; `decay` is on all parameters."""
    gated = GatedLoss(model, agg_rare_fraction=0.2) if has_agg else None
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.98), weight_decay=decay)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda update: min(1, (update + 1) / WARM_UP) * (1 - update / updates)
    )
    generator = torch.Generator().manual_seed(seed)
    for _ in range(updates):
        batch = blocks[torch.randint(len(blocks), (BATCH,), generator=generator)]
        model(batch, labels=batch).loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        if gated is not None:
            gated.commit_update()
    if gated is not None:
        gated.remove()
    return model


def found(model: GPT2LMHeadModel, counts: Tensor) -> dict[str, float | str]:
    """How well the listed tokens agree with those without occurrences; the rows beyond the tokenizer are known."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        unused = range(len(counts) - SURPLUS, len(counts))
        (row,) = under_trained(open_models([folder]), unused=unused).rows.values()
    listed = counts[[token["id"] for token in row["tokens"] if token["below"] and not token["unused"]]]
    unseen = int((listed == 0).sum())
    return {
        "indicator": row["indicator"],
        "threshold": row["threshold"],
        "recall": unseen / int((counts[:-SURPLUS] == 0).sum()),
        "precision": unseen / max(1, len(listed)),
        "precision, seen twice at most": int((listed <= 2).sum()) / max(1, len(listed)),
    }


if __name__ == "__main__":
    main()
