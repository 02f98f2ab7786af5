"""A whole step of fairseq-train with our criterions, compared with the same step with fairseq's
`cross_entropy`.

    python -m benchmarks.train_step [--device cpu|cuda] [--json FILE]

Each variant is fairseq's own `Trainer` over its own `transformer_lm`, on random text under Zipf's
law: batches from the iterator, forward, backward, clipping, Adam and the logs, as in
`fairseq-train`. In each of `--repeats` rounds every variant trains one update; times are medians
over rounds, and ratios medians of the ratios within a round.
Target: `agg` at most 1.02 × `cross_entropy`.
"""

import argparse
import logging
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch

from .measuring import STEPS_IN_A_ROW, Step, devices, interleaved, machine, row, zipf

SIZES = {  # device: options of the model and of the batch
    "cpu": "--decoder-layers 6 --decoder-embed-dim 512 --decoder-ffn-embed-dim 2048 "
    "--decoder-attention-heads 8 "
    "--tokens-per-sample 512 --max-tokens 1024 --cpu",
    "cuda": "--decoder-layers 12 --decoder-embed-dim 768 --decoder-ffn-embed-dim 3072 "
    "--decoder-attention-heads 12 "
    "--tokens-per-sample 512 --max-tokens 16384 --fp16",
}
VARIANTS = {
    "cross_entropy": "",
    "mle": "",
    "agg": "--agg-rare-fraction 0.2",
    "agps": "--agps-rare-rank {rank}",
    "cosreg": "",
}
TRAINING = (
    "--task language_modeling --arch transformer_lm --share-decoder-input-output-embed --optimizer "
    "adam --lr 0.0001 "
    "--clip-norm 1 --max-update 1000000 --seed 1 --no-save --required-batch-size-multiple 1 "
    "--num-workers 0"
).split()
VOCABULARY = 44_256
RARE_RANK = 0.565
"""Rank of the first rare token as a share of V: 25,000 of 44,256 in the AGPS paper."""


def main() -> None:
    """Trains all variants in turn and prints a table per device."""
    options = parser().parse_args()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")  # hydra warns about options of fairseq
    results = []
    with tempfile.TemporaryDirectory() as folder:
        updates = STEPS_IN_A_ROW * options.repeats + 2  # on a GPU, a round is so many
        for device in devices(options.device):
            arguments = [*TRAINING, *SIZES[device].split()]
            tokens = int(arguments[arguments.index("--max-tokens") + 1])
            write_corpus(Path(folder), options.vocabulary, tokens * updates)
            rank = round(RARE_RANK * options.vocabulary)
            own = {name: VARIANTS[name].format(rank=rank).split() for name in options.variants}
            steps = {
                name: train_step(folder, name, [*arguments, *own[name]])
                for name in options.variants
            }
            print(
                f"\n{machine(device)}, V = {options.vocabulary:,}, {SIZES[device]}, median of "
                f"{options.repeats}\n"
            )
            print("| criterion | ms per update | × cross_entropy |\n|:--|--:|--:|")
            for name, (seconds, ratio) in interleaved(steps, options.repeats, device).items():
                print(row((name, f"{1000 * seconds:,.0f}", f"{ratio:.3f}")), flush=True)
                results.append(
                    {"criterion": name, "device": device, "ms": 1000 * seconds, "time_ratio": ratio}
                )
    if options.json:
        from agg_fairseq.files import write_json

        write_json(
            options.json,
            {"results": results, "machines": [machine(d) for d in devices(options.device)]},
        )


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--device", help="cpu or cuda (default: cpu, and cuda where there is one)")
    made.add_argument("--repeats", type=int, default=15, help="timed rounds (default: 15)")
    made.add_argument(
        "--vocabulary", type=int, default=VOCABULARY, metavar="V", help=f"default: {VOCABULARY}"
    )
    made.add_argument(
        "--variants",
        nargs="+",
        default=[*VARIANTS],
        choices=[*VARIANTS],
        metavar="V",
        help="default: all",
    )
    made.add_argument("--json", metavar="FILE", help="also write the numbers to FILE")
    return made


def train_step(data: str, criterion: str, arguments: list[str]) -> Step:
    """One update of a newly built model on its next batch, as a function to be timed."""
    from fairseq import options, tasks
    from fairseq.data import iterators
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf
    from fairseq.trainer import Trainer

    import agg_fairseq.fairseq_plugin.criterions  # noqa: F401 — registers

    given = [data, *arguments, "--criterion", criterion]
    cfg = convert_namespace_to_omegaconf(
        options.parse_args_and_arch(options.get_training_parser(), given)
    )
    torch.manual_seed(cfg.common.seed)
    task = tasks.setup_task(cfg.task)
    trainer = Trainer(cfg, task, task.build_model(cfg.model), task.build_criterion(cfg.criterion))
    epoch = trainer.get_train_iterator(epoch=1)
    trainer.begin_epoch(1)
    batches = iter(iterators.GroupedIterator(epoch.next_epoch_itr(shuffle=True), 1))
    return lambda: trainer.train_step(next(batches))


def write_corpus(folder: Path, vocabulary: int, tokens: int) -> None:
    """A dictionary of V tokens and training text under Zipf's law, in the files of
    fairseq-preprocess."""
    from fairseq.data import Dictionary, indexed_dataset

    dictionary = Dictionary()
    for index in range(vocabulary - len(dictionary)):
        dictionary.add_symbol(f"w{index}", n=vocabulary - index)
    dictionary.save(str(folder / "dict.txt"))
    torch.manual_seed(0)
    text = zipf(vocabulary, tokens)
    builder: Any = indexed_dataset.make_builder(
        str(folder / "train.bin"), impl="mmap", vocab_size=vocabulary
    )
    for line in text.split(64):
        builder.add_item(torch.cat([line, torch.tensor([dictionary.eos()])]))
    builder.finalize(str(folder / "train.idx"))


if __name__ == "__main__":
    main()
