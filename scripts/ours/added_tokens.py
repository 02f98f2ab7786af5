"""What becomes of tokens that are added to a trained model: fine-tunes small GPT-2s of transformers,
and prints a table (docs/added-tokens.md).

    python -m scripts.ours.added_tokens RUNS [--data DIR] [--seeds 1 2 3] [--json FILE]

A GPT-2 of 2 layers of 64 units is trained on WikiText-2 in 4,000 sub-words (800 updates of 512
tokens, β₂ = 0.999), and then 200 updates on the English captions of Multi30k, of which the 50 words
that take most sub-words become a token each. Needs the folders `wikitext-2` and `multi30k` in DIR;
ten minutes of a core of an AMD EPYC. What is in RUNS is not trained again.
"""

import argparse
import collections
import functools
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, ByteLevelBPETokenizer, Tokenizer
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel, set_seed
from transformers.utils import logging

from agg_fairseq.checkpoints import open_models
from agg_fairseq.evaluation import PlainText, perplexity
from agg_fairseq.files import write_json
from agg_fairseq.gating import AggGating
from agg_fairseq.integrations import add_log_unigram
from agg_fairseq.integrations.transformers import GatedHead
from agg_fairseq.result import SeedValues, format_table

from ..results import format_lines, surroundings

BLOCK, BATCH, VOCABULARY, ADDED = 64, 8, 4000, 50
UPDATES, FURTHER, RATE, FURTHER_RATE = 800, 200, 0.01, 0.003
ROWS: dict[str, dict[str, Any]] = {
    "before": {"updates": 0, "added": False},
    "no added tokens": {"added": False},
    "added tokens": {},
    "rows begin as the mean of their pieces": {"pieces": True},
    "AGG, window of 50": {"window": 50},
    "AGG, window of 200": {"window": 200},
    "AGG, window of 50, β₂ = 0.98": {"window": 50, "beta2": 0.98},
    "β₂ = 0.98": {"beta2": 0.98},
    "fixed bias": {"bias": True},
    "1% of old text": {"old": 0.01},
}
"""Rows of the table, with what they change."""
TITLES = {"new text": 2, "old text": 1, "added tokens": 1, "E/O": 2, "cosine": 2}  # and digits


def main() -> None:
    """Trains what RUNS lacks, and prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("runs", type=Path)
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    texts = Texts(options.data, options.runs)
    rows = []
    for seed in options.seeds:
        for name, changes in ROWS.items():
            file = options.runs / f"{seed}-{name.replace(' ', '-')}.json"
            if not file.is_file():
                write_json(file, train_and_measure(texts, seed, options.runs, **changes))
            rows.append({"name": [name, str(seed)], **json.loads(file.read_text())})
    table = []
    for name in ROWS:
        matching = [row for row in rows if row["name"][0] == name]
        table.append([name])
        for title, digits in TITLES.items():
            values = SeedValues(dict(enumerate(row.get(title) for row in matching)))
            table[-1].append(values.format(digits))
    print(format_table(["", *TITLES], table))
    if options.json is not None:
        facts = {"command": "python -m scripts.ours.added_tokens runs/added-tokens --data DIR"}
        facts |= {"text": "WikiText-2, then the English captions of Multi30k", **surroundings()}
        labels = {"labels": ["", "seed"], "columns": [*TITLES]}
        options.json.write_text(
            format_lines({"facts": facts, **labels, "rows": rows}), encoding="utf-8"
        )


class Texts:
    """Old and new text, and their tokenizer, without added tokens and with them."""

    def __init__(self, data: Path, runs: Path) -> None:
        runs.mkdir(parents=True, exist_ok=True)
        self.old = data / "wikitext-2" / "wiki.train.tokens"
        self.new = data / "multi30k" / "train.en"
        self.new_test, self.old_test = data / "multi30k" / "test.en", runs / "old-test.txt"
        with (data / "wikitext-2" / "wiki.test.tokens").open(encoding="utf-8") as file:
            self.old_test.write_text("".join(file.readlines()[:250]), encoding="utf-8")
        bpe = ByteLevelBPETokenizer()
        bpe.train([str(self.old)], vocab_size=VOCABULARY, show_progress=False)
        self.plain, self.extended = (Tokenizer.from_str(bpe.to_str()) for _ in range(2))
        counts = collections.Counter(self.new.read_text(encoding="utf-8").split())
        words = filter(str.isalpha, counts)
        self.words = sorted(words, key=lambda word: (-self.saved(word, counts), word))[:ADDED]
        # with the space before the word, as the pieces of the BPE
        added = [AddedToken(word, single_word=True, lstrip=True) for word in self.words]
        self.extended.add_tokens(added)
        self.listed = runs / "added.txt"
        self.listed.write_text("".join(f"{word}\n" for word in self.words), encoding="utf-8")

    def saved(self, word: str, counts: dict[str, int]) -> int:
        """Sub-words that the text needs less of if the word is a token."""
        return counts[word] * (len(self.plain.encode(f" {word}").ids) - 1)


@functools.cache
def read_blocks(path: Path, tokenizer: Tokenizer) -> Tensor:
    """(n, BLOCK), the tokens of a text."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    tokens = [token for line in tokenizer.encode_batch(lines) for token in line.ids]
    return torch.tensor(tokens[: len(tokens) // BLOCK * BLOCK]).view(-1, BLOCK)


def train_and_measure(
    texts: Texts,
    seed: int,
    runs: Path,
    *,
    updates: int = FURTHER,
    added: bool = True,
    pieces: bool = False,
    window: int = 0,
    beta2: float = 0.999,
    bias: bool = False,
    old: float = 0.0,
) -> dict[str, float]:
    """Fine-tunes the model of a seed, and returns the values of its row by title."""
    before = runs / f"{seed}-before"
    if not before.is_dir():
        set_seed(seed)
        sizes = {"n_layer": 2, "n_embd": 64, "n_head": 4, "n_positions": BLOCK}
        special = {"bos_token_id": None, "eos_token_id": None}
        config = GPT2Config(vocab_size=texts.plain.get_vocab_size(), **sizes, **special)
        model = GPT2LMHeadModel(config)
        train(model, read_blocks(texts.old, texts.plain), UPDATES, RATE, 0.999)
        save(model, texts.plain, before)
    set_seed(seed)
    model = GPT2LMHeadModel.from_pretrained(before)
    tokenizer = texts.extended if added else texts.plain
    if added:
        model.resize_token_embeddings(tokenizer.get_vocab_size())  # around the mean row
    weight = model.lm_head.weight.data
    if pieces:
        for word in texts.words:
            rows = weight[texts.plain.encode(f" {word}").ids]
            weight[tokenizer.token_to_id(word)] = rows.mean(0)
    blocks = read_blocks(texts.new, tokenizer)
    if bias:
        add_log_unigram(model, torch.bincount(blocks.flatten(), minlength=len(weight)))
    if old:
        others = read_blocks(texts.old, tokenizer)
        chosen = torch.randperm(len(others))[: round(old * len(blocks))]
        blocks = torch.cat([blocks, others[chosen]])
    end = None
    if window:
        gating = AggGating(len(weight), rare_fraction=0.3, window=window)
        end = GatedHead(model, gating).commit_update
    train(model, blocks, updates, FURTHER_RATE, beta2, end)
    folder = runs / f"{seed}-model"
    save(model, tokenizer, folder)
    groups = {"tokens": texts.listed} if added else {"occurrences_in": texts.new_test}
    models = open_models([folder], ["model"])
    measured = {}
    for title, text in (("new text", texts.new_test), ("old text", texts.old_test)):
        found = perplexity(models, PlainText(text, tokens_per_sample=BLOCK), **groups)
        measured[title] = found["model"]
    values = {title: found["perplexity_per"]["word"] for title, found in measured.items()}
    if added:
        new = measured["new text"]
        values |= {"added tokens": new["perplexity"]["listed"]}
        values |= {"E/O": new["expected_over_observed"]["listed"]}
        values |= {"cosine": new["mean_cosine"]["listed"]}
    return values


def train(
    model: GPT2LMHeadModel, blocks: Tensor, updates: int, rate: float, beta2: float,
    end: Callable[[], None] | None = None,
) -> None:  # fmt: skip
    """Updates of 512 tokens with AdamW; the learning rate falls to a tenth."""
    optimizer = torch.optim.AdamW(model.parameters(), rate, (0.9, beta2), weight_decay=0.01)
    warmup = min(100, max(1, updates // 5))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warmup, 1 - 0.9 * step / max(updates, 1))
    )
    model.train()
    order: list[int] = []
    while len(order) < updates * BATCH:
        order += random.sample(range(len(blocks)), len(blocks))
    for update in range(updates):
        batch = blocks[order[update * BATCH : (update + 1) * BATCH]]
        model(input_ids=batch, labels=batch).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        if end is not None:
            end()


def save(model: GPT2LMHeadModel, tokenizer: Tokenizer, folder: Path) -> None:
    """A folder that `agg-fairseq eval-lm` reads."""
    model.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))


if __name__ == "__main__":
    main()
