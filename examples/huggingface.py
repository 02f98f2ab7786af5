"""A small GPT-2 trained with the Trainer of Hugging Face transformers: likelihood, a larger β₂,
AGG, and a fixed bias.

    python examples/huggingface.py [--data DIR] [--updates 400] [--window 20] [--output runs/huggingface]

Needs `pip install '.[transformers]'` and the `wiki.*.tokens` files of WikiText-2 (or WikiText-103)
in DIR. Trains a byte-level BPE on the training text, then the same model five times with the same
seed: with plain likelihood and β₂ = 0.98; with β₂ = 0.999, Trainer's default; with AGG, and with
AGG and a fixed bias (both 0.98); and with the bias and β₂ = 0.999. It prints the columns of
`agg-fairseq eval-lm`; docs/huggingface.md has the table.

The models are saved with their tokenizer in the output folder, whose sub-folders `agg-fairseq
eval-lm`, `isotropy`, `neighbors` and others take.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import torch
from tokenizers import ByteLevelBPETokenizer
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

from agg_fairseq.checkpoints import open_models
from agg_fairseq.columns import COMPARED
from agg_fairseq.errors import UserError, fail
from agg_fairseq.evaluation import PlainText, perplexity
from agg_fairseq.gating import AggGating
from agg_fairseq.integrations import add_log_unigram, label_counts
from agg_fairseq.integrations.transformers import GatedHead

DATA = Path(os.environ.get("AGG_DATA", "../shared/data")) / "wikitext-2"
LAYERS, DIMENSION, HEADS = 2, 128, 4


def main(arguments: list[str] | None = None) -> None:
    """Trains the models and prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, default=DATA, help=f"folder of wiki.*.tokens (default: {DATA})"
    )
    parser.add_argument(
        "--output", type=Path, default=Path("runs/huggingface"), help="default: runs/huggingface"
    )
    parser.add_argument(
        "--vocabulary", type=int, default=8000, help="sub-words of the BPE (default: 8000)"
    )
    parser.add_argument(
        "--updates", type=int, default=400, help="default: 400, of 2,048 tokens each"
    )
    parser.add_argument("--block", type=int, default=128, help="tokens per example (default: 128)")
    parser.add_argument("--batch", type=int, default=16, help="examples per update (default: 16)")
    parser.add_argument(
        "--rare-fraction", type=float, default=0.3, help="of the vocabulary, for AGG (default: 0.3)"
    )
    parser.add_argument("--window", type=int, default=20, help="of AGG, in updates (default: 20)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    try:
        compare(options)
    except (UserError, ValueError) as error:
        fail(str(error))


def compare(options: argparse.Namespace) -> None:
    """Prepares the data, trains the model with each method, and evaluates all as `agg-fairseq
    eval-lm` does."""
    files = {split: options.data / f"wiki.{split}.tokens" for split in ("train", "test")}
    for path in files.values():
        if not path.is_file():
            raise UserError(
                f"found no {path}; expected WikiText-2 there, give --data DIR or set AGG_DATA"
            )
    bpe = ByteLevelBPETokenizer()
    bpe.train([str(files["train"])], vocab_size=options.vocabulary, show_progress=False)
    train, vocabulary = blocks(bpe, files["train"], options.block), bpe.get_vocab_size()
    print(
        f"{len(train) * options.block:,} training tokens, vocabulary of {vocabulary:,}, "
        f"{options.updates} updates"
    )
    agg = {"rare_fraction": options.rare_fraction, "window": options.window}
    methods = {  # β₂, options of AGG, and whether there is a fixed bias
        "mle": (0.98, None, False), "mle-beta2-0.999": (0.999, None, False),
        "agg": (0.98, agg, False), "bias-fixed-agg": (0.98, agg, True),
        "bias-fixed-beta2-0.999": (0.999, None, True),
    }  # fmt: skip
    for name, (beta2, gated, has_bias) in methods.items():
        set_seed(options.seed)
        model = GPT2LMHeadModel(
            GPT2Config(
                vocab_size=vocabulary, n_layer=LAYERS, n_embd=DIMENSION, n_head=HEADS, n_positions=options.block,
                bos_token_id=None, eos_token_id=None,
            )
        )  # fmt: skip
        if has_bias:
            add_log_unigram(model, label_counts(train, vocabulary))
        # The one line that makes it AGG:
        callbacks = [GatedHead(model, AggGating(vocabulary, **gated))] if gated else []
        training = TrainingArguments(
            output_dir=str(options.output / name), max_steps=options.updates, seed=options.seed,
            per_device_train_batch_size=options.batch, learning_rate=0.003, lr_scheduler_type="inverse_sqrt",
            warmup_steps=min(100, options.updates // 2), adam_beta2=beta2, weight_decay=0.01,
            logging_steps=max(1, options.updates // 10), save_strategy="no", report_to=[], disable_tqdm=True,
            dataloader_pin_memory=torch.cuda.is_available(),
        )  # fmt: skip
        Trainer(model, training, train_dataset=train, callbacks=callbacks).train()
        model.save_pretrained(options.output / name)
        bpe.save(str(options.output / name / "tokenizer.json"))
    text = PlainText(files["test"], files["train"], tokens_per_sample=options.block)
    result = perplexity(open_models([options.output / name for name in methods]), text)
    print(result.table(COMPARED))


def blocks(bpe: ByteLevelBPETokenizer, path: Path, size: int) -> list[dict[str, torch.Tensor]]:
    """The tokens of a text in examples of `size`, for Trainer; a rest at the end is left out."""
    lines = path.read_text("utf-8-sig").splitlines(keepends=True)
    tokens = torch.tensor([token for line in bpe.encode_batch(lines) for token in line.ids])
    whole = len(tokens) // size
    return [
        {"input_ids": block, "labels": block} for block in tokens[: whole * size].view(whole, size)
    ]


if __name__ == "__main__":
    main()
