"""Fine-tunes a small GPT-2 with the Trainer of transformers, and keeps the tokens that the new text
lacks.

    python examples/fine_tuning.py [--old DIR] [--new TRAIN TEST] [--output runs/fine-tuning-gpt2]

Needs `pip install '.[transformers]'`, the `wiki.*.tokens` files of WikiText-2 in the folder of the
old text, and two files of another text. Trains a model on the old text, then on the new one with
plain likelihood, with AGG, and with an output embedding of its own (untied), all with β₂ = 0.999.
Constants that are fitted on the validation split of the old text become a bias of the output layer:
40% and 100% of them. It prints the perplexities of both texts; docs/fine-tuning.md has our numbers.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import torch
from tokenizers import ByteLevelBPETokenizer
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

from agg_fairseq.checkpoints import open_models
from agg_fairseq.errors import UserError, fail
from agg_fairseq.evaluation import PlainText, perplexity
from agg_fairseq.gating import AggGating
from agg_fairseq.integrations.transformers import GatedHead

DATA = Path(os.environ.get("AGG_DATA", "../shared/data"))
CAPTIONS = tuple(DATA / "multi30k" / f"{split}.en" for split in ("train", "test"))
BLOCK = 64  # tokens per example


def main(arguments: list[str] | None = None) -> None:
    """Trains the models and prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--old", type=Path, default=DATA / "wikitext-2", help="default: %(default)s"
    )
    parser.add_argument(
        "--new", type=Path, nargs=2, default=CAPTIONS, metavar="FILE", help="default: %(default)s"
    )
    parser.add_argument(
        "--output", type=Path, default=Path("runs/fine-tuning-gpt2"), help="default: %(default)s"
    )
    parser.add_argument(
        "--vocabulary", type=int, default=8000, help="sub-words of the BPE (default: 8000)"
    )
    parser.add_argument(
        "--updates",
        type=int,
        default=1200,
        help="on the old text (default: 1200), a third on the new",
    )
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    old = {split: options.old / f"wiki.{split}.tokens" for split in ("train", "valid", "test")}
    try:
        for path in (*old.values(), *options.new):
            if not path.is_file():
                raise UserError(
                    f"found no {path}; expected a text there; give --old and --new, or set AGG_DATA"
                )
        compare(options, old, *options.new)
    except (UserError, ValueError) as error:
        fail(str(error))


def compare(options: argparse.Namespace, old: dict[str, Path], new: Path, new_test: Path) -> None:
    """Trains on the old text, then on the new one; evaluates each model on both, without and with
    constants."""
    bpe = ByteLevelBPETokenizer()
    bpe.train([str(old["train"])], vocab_size=options.vocabulary, show_progress=False)
    vocabulary = bpe.get_vocab_size()
    old_blocks, new_blocks = blocks(bpe, old["train"]), blocks(bpe, new)
    set_seed(options.seed)
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=vocabulary, n_layer=2, n_embd=64, n_head=4, n_positions=BLOCK, bos_token_id=None,
            eos_token_id=None,
        )
    )  # fmt: skip
    folders = {"before": options.output / "before"}
    train(model, old_blocks, options.updates, 0.01, options.seed, folders["before"], bpe)
    further = max(1, options.updates // 3)
    for name in ("mle", "agg", "untied"):
        model = GPT2LMHeadModel.from_pretrained(folders["before"])
        if name == "untied":
            model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
            model.config.tie_word_embeddings = False
        gating = AggGating(vocabulary, rare_fraction=0.5, window=further)
        gated = [GatedHead(model, gating)] if name == "agg" else []
        folders[name] = options.output / name
        train(model, new_blocks, further, 0.003, options.seed, folders[name], bpe, gated)
        tuned, text = open_models([folders[name]]), PlainText(old["test"], old["train"], BLOCK)
        fitted = perplexity(
            tuned, text, occurrences_in=new, calibrate=PlainText(old["valid"], old["train"], BLOCK)
        )
        group = next(iter(text.load_vocabularies(tuned).values())).groups(
            "types", occurrences_in=new
        )
        # 0 for tokens of no group
        constants = torch.tensor([*fitted[next(iter(tuned))]["offsets"].values(), 0.0])
        for share in (0.4, 1.0):
            model.lm_head.bias = torch.nn.Parameter(share * constants[group.group_ids])
            folders[f"{name}, {share:.0%}"] = options.output / f"{name}-{share:.0%}"
            save(model, bpe, folders[f"{name}, {share:.0%}"])
    models = open_models([*folders.values()])
    by_text = [
        perplexity(models, PlainText(test, old["train"], BLOCK), occurrences_in=new)
        for test in (new_test, old["test"])
    ]
    print(
        "|  | new text | old text | absent | within absent | E/O absent "
        "|\n|---|--:|--:|--:|--:|--:|"
    )
    for name, row in zip(folders, models, strict=True):
        new_row, old_row = (result[row] for result in by_text)
        values = [
            new_row["perplexity"]["total"],
            old_row["perplexity"]["total"],
            old_row["perplexity"]["absent"],
            # fmt: skip
            old_row["within_perplexity"]["absent"],
            old_row["expected_over_observed"]["absent"],
        ]
        print("|", " | ".join([name, *(f"{value:,.2f}" for value in values)]), "|")


def train(
    model: GPT2LMHeadModel, examples: list, updates: int, rate: float, seed: int, folder: Path,
    bpe: ByteLevelBPETokenizer, callbacks: list | None = None,
) -> None:  # fmt: skip
    """Trains with Trainer's default β₂ of 0.999, in updates of 1,024 tokens, and saves model and
    tokenizer."""
    training = TrainingArguments(
        output_dir=str(folder), seed=seed, max_steps=updates, per_device_train_batch_size=1024 // BLOCK,
        learning_rate=rate, warmup_steps=min(100, updates // 2), weight_decay=0.01,
        logging_steps=max(1, updates // 10), save_strategy="no", report_to=[], disable_tqdm=True,
        dataloader_pin_memory=torch.cuda.is_available(),
    )  # fmt: skip
    Trainer(model, training, train_dataset=examples, callbacks=callbacks).train()
    save(model, bpe, folder)


def save(model: GPT2LMHeadModel, bpe: ByteLevelBPETokenizer, folder: Path) -> None:
    """A folder that `agg-fairseq eval-lm` and `integrations.load_pretrained` read."""
    model.save_pretrained(folder)
    bpe.save(str(folder / "tokenizer.json"))


def blocks(bpe: ByteLevelBPETokenizer, path: Path) -> list[dict[str, torch.Tensor]]:
    """The tokens of a text in examples for Trainer; a rest at the end is left out."""
    lines = path.read_text("utf-8-sig").splitlines(keepends=True)
    tokens = torch.tensor([token for line in bpe.encode_batch(lines) for token in line.ids])
    whole = len(tokens) // BLOCK
    return [
        {"input_ids": block, "labels": block}
        for block in tokens[: whole * BLOCK].view(whole, BLOCK)
    ]


if __name__ == "__main__":
    main()
