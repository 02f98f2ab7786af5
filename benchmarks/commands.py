"""What commands cost, beside the fastest other way to the same numbers that we know.

    python -m benchmarks.commands [ROW …] [--scale 1] [--repeats 3] [--json FILE]

Each way runs in a process of its own, on made-up data: CPU seconds of it and of the processes that
it starts, the least of some repeats, and its peak memory beyond the data it was given. `--scale 1`
is a vocabulary of 267,744 tokens where that takes seconds; the docstring of a row says its size.
`--small` compares the numbers of both ways alone, on data of a few kilobytes.
"""

from __future__ import annotations

import argparse
import inspect
import io
import json
import logging
import math
import multiprocessing
import os
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from agg_fairseq.checkpoints import OutputEmbedding
from agg_fairseq.files import write_json

from .measuring import cpu_peak_mib, machine, row

SMALL = 0.0
HEADER = (
    "| row | scale | CPU s | peer | ratio | MiB | peer | ratio |\n|:--|--:|--:|--:|--:|--:|--:|--:|"
)


@dataclass(frozen=True)
class Ways:
    """Two ways to the same numbers, or texts, which differ by at most `tolerance` of the larger."""

    ours: Callable[[], Any]
    peer: Callable[[], Any]
    tolerance: float = 1e-9


@dataclass(frozen=True)
class Size:
    """How large the data of a row are made."""

    scale: float
    folder: Path

    def __call__(self, full: int, least: int) -> int:
        """A number that is `full` at the scale 1."""
        return max(least, round(full * self.scale))


ROWS: dict[str, Callable[[Size], Ways]] = {}


def benchmark(function: Callable[[Size], Ways]) -> Callable[[Size], Ways]:
    """Adds a row to the table, under the name of its function."""
    ROWS[function.__name__.replace("_", "-")] = function
    return function


# Data


def embeddings(size: int, dimension: int) -> Tensor:
    """(V, D) like those of a trained model: a common mean, and variances that fall."""
    generator = torch.Generator().manual_seed(0)
    scales = torch.logspace(0, -1.5, dimension) * (3 / dimension**0.5)
    mean = torch.randn(dimension, generator=generator) / dimension**0.5
    return torch.randn(size, dimension, generator=generator) * scales + mean


def zipf(vocabulary: int, tokens: int, seed: int = 0) -> np.ndarray:
    """(tokens,) int32 in [4, V), those of a smaller number more often, as in a sorted dict.txt."""
    ends = np.cumsum(1 / (np.arange(1, vocabulary - 3) + 2.7))
    draws = np.random.default_rng(seed).random(tokens) * ends[-1]
    return (np.searchsorted(ends, draws).clip(max=vocabulary - 5) + 4).astype(np.int32)


def binarize(folder: Path, vocabulary: int, **splits: np.ndarray) -> Path:
    """A folder as of fairseq-preprocess: tokens are renumbered in the order of their counts in
    `train`."""
    from fairseq.data.indexed_dataset import MMapIndexedDatasetBuilder

    folder.mkdir(exist_ok=True)
    counts = np.bincount(splits["train"], minlength=vocabulary)
    order = np.append(np.arange(4), 4 + np.argsort(-counts[4:], kind="stable"))
    number = np.argsort(order).astype(np.int32)
    counts = counts[order]
    with open(folder / "dict.txt", "w", encoding="utf-8") as file:
        file.writelines(f"w{token} {counts[token]}\n" for token in range(4, vocabulary))
    for name, tokens in splits.items():
        builder = MMapIndexedDatasetBuilder(f"{folder}/{name}.bin", dtype=np.int32)
        for line in np.array_split(number[tokens], max(1, len(tokens) // 1000)):
            builder.add_item(torch.from_numpy(line))
        builder.finalize(f"{folder}/{name}.idx")
    return folder


def language_model(path: Path, data: Path, *arguments: str) -> Path:
    """A checkpoint of fairseq, not trained, whose W is that of `embeddings`."""
    from fairseq import options, tasks
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf
    from omegaconf import OmegaConf

    import agg_fairseq
    from agg_fairseq.fairseq_plugin.trainer import fill_placeholder

    agg_fairseq.register()
    parser = options.get_training_parser("language_modeling")
    given = [str(data), "--task", "language_modeling", "--arch", "transformer_lm", *arguments]
    given += "--criterion mle --decoder-layers 2 --decoder-attention-heads 2 --dropout 0".split()
    given += "--share-decoder-input-output-embed --optimizer adam".split()
    cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, given))
    task = tasks.setup_task(cfg.task)
    model = task.build_model(cfg.model)
    fill_placeholder(model, task, "train")
    with torch.no_grad():
        weight = model.decoder.embed_tokens.weight
        weight.copy_(embeddings(*weight.shape))
    history = {"num_updates": 1, "optimizer_name": "Adam", "lr_scheduler_state": {}}
    torch.save({
        "model": model.state_dict(), "cfg": OmegaConf.to_container(cfg), "args": None,
        "extra_state": {"train_iterator": {"epoch": 1}}, "optimizer_history": [history],
    }, path)  # fmt: skip
    return path


# Rows


@benchmark
def counter(size: Size) -> Ways:
    """A full window of 3,150 updates of 32,768 tokens, V = 267,744, against one array of slots."""
    from agg_fairseq.modules import TokenCounter

    vocabulary, window = size(267_744, 50), size(3150, 5)
    tokens = torch.from_numpy(zipf(vocabulary, 16 * size(32_768, 40))).long()
    updates = tokens.chunk(16)

    def ours() -> Tensor:
        made = TokenCounter(vocabulary, window)
        for update in range(window + 3):
            made.add(updates[update % 16])
            made.commit()
        return made.appearances

    def peer() -> Tensor:
        most = max(len(update.unique()) for update in updates)
        slots, sizes = torch.zeros(window, 2, most, dtype=torch.int32), [0] * window
        appearances, counts = torch.zeros(2, vocabulary, dtype=torch.int64)
        for update in range(window + 3):
            slot, number = slots[update % window], sizes[update % window]
            appearances.index_add_(0, slot[0, :number], slot[1, :number].long(), alpha=-1)
            counts.zero_().index_add_(0, (t := updates[update % 16]), torch.ones_like(t))
            found = counts.nonzero().squeeze(1)
            sizes[update % window] = number = len(found)
            slot[0, :number], slot[1, :number] = found, counts[found]
            appearances += counts
        return appearances

    return Ways(ours, peer, 0)


def scoring(size: Size, vocabulary: int, tokens: int) -> Ways:
    """eval-lm of a text, beside fairseq-eval-lm."""
    from agg_fairseq.checkpoints import open_models
    from agg_fairseq.evaluation import BinarizedText, perplexity

    texts = {"train": zipf(vocabulary, size(2_000_000, 2000)), "test": zipf(vocabulary, tokens, 1)}
    data = binarize(size.folder / "data", vocabulary, **texts)
    width = str(size(512, 16))
    model = language_model(
        size.folder / "model.pt", data, "--decoder-embed-dim", width, "--tokens-per-sample", "512"
    )

    def ours() -> float:
        text = BinarizedText(data, tokens_per_sample=512)
        found = perplexity(open_models([model]), text, geometry=["isoscore"], device="cpu")
        return found.value(next(iter(found.rows)), "perplexity", "total")

    def peer() -> float:
        from fairseq import options
        from fairseq.dataclass.utils import convert_namespace_to_omegaconf
        from fairseq_cli.eval_lm import main

        given = f"{data} --path {model} --tokens-per-sample 512 --max-tokens 2048 --cpu".split()
        parsed = options.parse_args_and_arch(options.get_eval_lm_parser(), given)
        found = main(convert_namespace_to_omegaconf(parsed))
        return math.exp(found["loss"] * math.log(2))

    return Ways(ours, peer, 1e-5)


@benchmark
def eval_lm_start(size: Size) -> Ways:
    """eval-lm of 100 tokens, V = 267,744, D = 512: all that comes before the first token."""
    return scoring(size, size(267_744, 60), 100)


@benchmark
def eval_lm_44256(size: Size) -> Ways:
    """eval-lm of 8,192 tokens, V = 44,256, D = 512."""
    return scoring(size, size(44_256, 60), size(8192, 90))


@benchmark
def eval_lm_267744(size: Size) -> Ways:
    """eval-lm of 4,096 tokens, V = 267,744, D = 512."""
    return scoring(size, size(267_744, 60), size(4096, 90))


@benchmark
def isotropy(size: Size) -> Ways:
    """All measures of W, 16,734 x 1,024, and of three groups, beside I(W) and IsoScore of all rows
    alone in plain float64."""
    from agg_fairseq.evaluation.isotropy import geometry_by_group

    weight = embeddings(size(16_734, 40), size(1024, 8))
    ends = [round(share * len(weight)) for share in (0.3, 0.8)]
    groups = dict(zip("abc", torch.arange(len(weight)).tensor_split(ends), strict=True))

    def ours() -> list[float]:
        model = SimpleNamespace(output_embedding=OutputEmbedding("W", None, weight))
        found = geometry_by_group(model, groups)
        return [found["isotropy"]["total"], found["isoscore"]["total"]]

    def peer() -> list[float]:
        w = weight.double()
        log_z = (w @ torch.linalg.eigh(w.t() @ w)[1]).logsumexp(0)
        moved = w - w.mean(0)
        scatter, dimension = moved.t() @ moved, w.size(1)
        used = scatter.trace() ** 2 / scatter.square().sum()
        isoscore = (used - 1) / (dimension - 1)
        return [(log_z.min() - log_z.max()).exp().item(), isoscore.item()]

    return Ways(ours, peer, 1e-6)


@benchmark
def generate_lm_prefixes(size: Size) -> Ways:
    """generate-lm, greedy, of 32 lines of 20 to 51 tokens, V = 44,256, D = 512, beside a plain loop
    with a cache."""
    from agg_fairseq.checkpoints import Checkpoint
    from agg_fairseq.evaluation import generate_texts
    from agg_fairseq.fairseq_plugin.models.from_checkpoint import build_model

    vocabulary, length = size(44_256, 60), size(100, 5)
    train, drawn = zipf(vocabulary, size(10**6, 2000)), zipf(vocabulary, 52 * 32, 1)
    data = binarize(size.folder / "data", vocabulary, train=train)
    prefixes = [" ".join(f"w{token}" for token in drawn[52 * n :][: 20 + n]) for n in range(32)]
    lines, output = size.folder / "lines", size.folder / "texts.jsonl"
    lines.write_text("\n".join(prefixes[::-1]))
    width = str(size(512, 16))
    model = Checkpoint(language_model(size.folder / "0.pt", data, "--decoder-embed-dim", width))

    def ours() -> list[str]:
        generate_texts(model, data, output, prefixes=lines, length=length, device="cpu")
        with open(output, encoding="utf-8") as file:
            return [json.loads(line)["continuation"] for line in file]

    @torch.no_grad()
    def peer() -> list[str]:
        network, task = build_model(model, data)
        dictionary = task.source_dictionary
        texts = [
            list(map(dictionary.index, line.split())) for line in lines.read_text().split("\n")
        ]
        known = torch.tensor([len(text) for text in texts])
        tokens = torch.zeros(len(texts), int(known.max()) + length, dtype=torch.int64)
        for number, text in enumerate(texts):
            tokens[number, : len(text)] = torch.tensor(text)
        state: dict[str, Any] = {}
        for step in range(1, tokens.size(1)):
            logits = network.decoder(tokens[:, :step], incremental_state=state)[0][:, -1]
            logits[:, :2] = -torch.inf
            tokens[:, step] = torch.where(step < known, tokens[:, step], logits.argmax(1))
        ends = zip(tokens.tolist(), known.tolist(), strict=True)
        return [" ".join(dictionary[t] for t in text[n : n + length]) for text, n in ends]

    return Ways(ours, peer, 0)


@benchmark
def alignments(size: Size) -> Ways:
    """The links of 400,000 pairs of 17 tokens, beside a numpy.unique of what NumPy parses."""
    from agg_fairseq.data.alignments import read_links
    from agg_fairseq.data.binarized import Sentences

    pairs, vocabulary = size(400_000, 20), size(16_384, 40)
    tokens = zipf(vocabulary, 2 * 17 * pairs).reshape(2, pairs, 17)
    tokens = np.pad(tokens, ((0, 0), (0, 0), (0, 1)), constant_values=2)
    ends, path = np.arange(1, pairs + 1) * 18, size.folder / "links"
    sides = Sentences(tokens[0].ravel(), ends), Sentences(tokens[1].ravel(), ends)
    line = " ".join(f"{at}-{16 - at}" for at in range(17))
    path.write_text(f"{line}\n" * pairs)

    def peer() -> list[int]:
        at = np.fromstring(path.read_text().replace("-", " "), dtype=np.int64, sep=" ").reshape(
            pairs, 17, 2
        )
        side_tokens = [np.take_along_axis(tokens[side], at[..., side], 1) for side in (0, 1)]
        keys = (side_tokens[0].astype(np.int64) * vocabulary + side_tokens[1]).ravel()
        counts = np.unique(keys, return_counts=True)[1]
        return [len(counts), int(counts.max())]

    def ours() -> list[int]:
        counts = read_links(path, sides).count
        return [len(counts), int(counts.max())]

    return Ways(ours, peer, 0)


def logs(folder: Path, runs: int, lines: int) -> list[Path]:
    """Logs as of fairseq-train, of an update in a line, and 20 validations."""
    others = (
        "wps 9999.9 ups 1.5 wpb 8192 bsz 16 lr 0.0001 gnorm 0.5 train_wall 70 gb_free 9.5 wall 80"
    )
    values, found = dict(zip(others.split()[::2], others.split()[1::2], strict=True)), []
    start = "2026-01-01 00:00:00 | INFO |"
    for run in range(runs):
        found.append(folder / f"{run}.log")
        with open(found[-1], "w", encoding="utf-8") as file:
            for update in range(1, lines + 1):
                own = {"epoch": 1, "loss": "9.1", "ppl": f"{600 - update / lines:.4f}"}
                numbers = own | values | {"num_updates": str(update)}
                file.write(f"{start} train_inner | {json.dumps(numbers)}\n")
                if update % (lines // 20) == 0:
                    own = {"epoch": 1, "valid_ppl": "500", "valid_num_updates": str(update)}
                    file.write(f"{start} valid | {json.dumps(own)}\n")
    return found


@benchmark
def learning_curves(size: Size) -> Ways:
    """plot learning-curves of 6 logs of 50,000 lines, beside a json.loads of each line."""
    import matplotlib.backends.backend_svg  # noqa: F401 — which takes as long as a log

    from agg_fairseq import plots

    paths = {path.name: path for path in logs(size.folder, 6, size(50_000, 40))}

    def ours() -> list[float]:
        figure = plots.learning_curves(paths)
        plots.save(figure, io.BytesIO(), "svg")
        return [line.get_ydata()[-1] for axis in figure.axes for line in axis.lines]

    def peer() -> list[float]:
        training, valid = [], []
        for path in paths.values():
            with open(path, encoding="utf-8") as file:
                for line in file:
                    values = json.loads(line[line.index("{") :])
                    if "ppl" in values:
                        last = float(values["ppl"])
                    else:
                        last_valid = float(values["valid_ppl"])
            training.append(last)
            valid.append(last_valid)
        return training + valid

    return Ways(ours, peer)


@benchmark
def cosreg(size: Size) -> Ways:
    """CosReg and its gradient, V = 267,744, D = 256, beside its formula."""
    from agg_fairseq.functional import cosine_regularizer

    weight = embeddings(size(267_744, 50), size(256, 8)).requires_grad_()

    def ours() -> list[float]:
        value = cosine_regularizer(weight)
        (gradient,) = torch.autograd.grad(value, weight)
        return [value.item(), gradient.norm().item()]

    @torch.no_grad()
    def peer() -> list[float]:
        norms = weight.norm(dim=1)
        total, number = norms.reciprocal() @ weight, len(weight)
        along = (weight @ total) / norms**3
        gradient = torch.outer(norms.reciprocal(), total).addcmul_(weight, along[:, None], value=-1)
        gradient *= 2 / number**2
        return [((total.square().sum() - number) / number**2).item(), gradient.norm().item()]

    return Ways(ours, peer, 1e-4)


# Measuring


def measured(way: Callable[[], Any]) -> tuple[float, float]:
    """CPU seconds and peak MiB of a way in a process of its own, which is a copy of this one."""
    context = multiprocessing.get_context("fork")
    found, result = context.Pipe(duplex=False)

    def measure() -> None:
        start = os.times()
        peak = cpu_peak_mib(way)
        result.send((sum(os.times()[:4]) - sum(start[:4]), peak))

    process = context.Process(target=measure)
    process.start()
    result.close()  # so that the end of a process that failed is seen
    seconds, peak = found.recv()
    process.join()
    return seconds, peak


def check(ways: Ways) -> None:
    """Raises AssertionError if the two ways do not agree."""
    ours, theirs = ways.ours(), ways.peer()
    if not ways.tolerance:
        same = ours.equal(theirs) if isinstance(ours, Tensor) else ours == theirs
        assert same, (ours, theirs)
        return
    ours, theirs = (torch.as_tensor(one, dtype=torch.float64) for one in (ours, theirs))
    torch.testing.assert_close(ours, theirs, rtol=ways.tolerance, atol=0, equal_nan=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures rows, and prints a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of {', '.join(ROWS)}")
    parser.add_argument("--scale", nargs="+", type=float, default=[1.0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--small", action="store_true", help="compare numbers, without a time")
    parser.add_argument("--json", metavar="FILE", help="also write the numbers to FILE")
    options = parser.parse_args(arguments)
    logging.disable(logging.INFO)
    warnings.simplefilter("ignore")
    if options.small:
        for name in options.rows or ROWS:
            with tempfile.TemporaryDirectory() as folder:
                check(ROWS[name](Size(SMALL, Path(folder))))
        return
    print(f"{machine('cpu')}, least of {options.repeats}\n\n{HEADER}")
    results: list[dict[str, Any]] = []
    for name in options.rows or ROWS:
        for scale in options.scale:
            with tempfile.TemporaryDirectory() as folder:
                ways = ROWS[name](Size(scale, Path(folder)))
                runs = [(measured(ways.ours), measured(ways.peer)) for _ in range(options.repeats)]
            (ours, mib), (theirs, their_mib) = np.array(runs).min(0).tolist()
            ratio = ours / max(theirs, 0.01)  # ticks of 10 ms
            memory_ratio = mib / max(their_mib, 1)
            found = {"row": name, "scale": scale, "seconds": ours, "peer_seconds": theirs}
            found |= {"ratio": ratio, "mib": mib, "peer_mib": their_mib}
            found |= {"memory_ratio": memory_ratio, "size": inspect.getdoc(ROWS[name])}
            results.append(found)
            cells = [name, f"{scale:g}", f"{ours:.2f}", f"{theirs:.2f}", f"{ratio:.2f}"]
            cells += [f"{mib:,.0f}", f"{their_mib:,.0f}", f"{memory_ratio:.2f}"]
            print(row(cells), flush=True)
    if options.json:
        write_json(options.json, {"results": results, "machines": [machine("cpu")]})


if __name__ == "__main__":
    main()
