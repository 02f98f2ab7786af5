"""What a larger β₂ gains on a text: trains small language models in plain PyTorch, and prints a
table (docs/rule.md).

    python -m scripts.ours.rule FOLDER TEXT KEY=VALUE…     trains one, unless FOLDER has it
    python -m scripts.ours.rule FOLDER                     prints the table of those in FOLDER

TEXT is a name (de, en, wt2; docs, the documentation of Python; code, its standard library; or the
path of a file), maybe /k for a k-th of its training part, and how it is split: `de:unk2` has the
German captions of Multi30k in words, `<unk>` instead of those seen once; `wt2/10:bpe4000` a tenth
of WikiText-2 in 4,000 sub-words. The model is that of configs/cures/mle.yaml.
"""

import collections
import itertools
import json
import math
import os
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from agg_fairseq.f2 import FactorizedSoftmax, mefmax
from agg_fairseq.files import write_json
from agg_fairseq.functional import forgetting, forgotten, gated_linear, log_unigram
from agg_fairseq.gating import AggGating, AgpsGating, Gating
from agg_fairseq.result import SeedValues, format_table

from ..data import python_documentation

DATA = Path(os.environ.get("DATA", "data"))
FILES = {"de": "multi30k/{}.de", "en": "multi30k/{}.en", "wt2": "wikitext-2/wiki.{}.tokens"}
BLOCK, UNITS, WARMUP = 64, 64, 100
UNKNOWN = 1  # the row of <unk>; row 0 is </s>
DEFAULTS = {"T": 256, "epochs": 3, "lr": 0.01, "beta2": 0.98}
DEFAULTS |= {"seed": 1, "method": "mle", "dropout": 0.0, "decay": 0.01}
Blocks = tuple[Tensor, Tensor]  # inputs and targets (blocks, 64)
# the fewest occurrences of each bin but the first, which has none
BINS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]


def lines(name: str) -> list[list[str]]:
    """Lines of each split; of a file, of each 20 blocks of 50, one is for valid, one for test."""
    if name in FILES:
        files = [DATA / FILES[name].format(split) for split in ("train", "valid", "test")]
        texts = [file.read_text().split("\n") for file in files]
    elif name == "docs":
        texts = list(python_documentation.split(python_documentation.documents()).values())
    else:
        library = Path(sysconfig.get_paths()["stdlib"])
        files = sorted(library.glob("*.py")) if name == "code" else [Path(name)]
        whole = "\n".join(file.read_text(errors="replace") for file in files)
        texts = [[], [], []]
        for number, line in enumerate(filter(str.strip, whole.split("\n"))):
            texts[{0: 1, 1: 2}.get(number // 50 % 20, 0)].append(line)
    return [list(filter(str.strip, text)) for text in texts]


def read_text(text: str) -> tuple[Tensor, Blocks, Blocks, Blocks]:
    """Counts (V,) in the training part, and the blocks of each part. Without an option, a
    dictionary has all words of the training part."""
    text, _, option = text.partition(":")
    name, _, part = text.partition("/") if not Path(text).exists() else (text, "", "1")
    texts, step = lines(name), int(part or 1)
    if name in ("de", "en", "docs"):
        texts[0] = texts[0][::step]
    else:  # articles stay whole
        texts[0] = texts[0][: len(texts[0]) // step]
    cut: Callable[[str], list[str]] = str.split
    if option.startswith("bpe"):
        from tokenizers import ByteLevelBPETokenizer

        bpe = ByteLevelBPETokenizer(add_prefix_space=True)
        bpe.train_from_iterator(texts[0], int(option[3:]), min_frequency=0, show_progress=False)
        cut = lambda line: bpe.encode(line).tokens  # noqa: E731
    found = collections.Counter(itertools.chain.from_iterable(map(cut, texts[0])))
    least = int(option[3:]) if option.startswith("unk") else 1
    ids: dict[str, int] = {}
    for word in sorted(found, key=lambda word: (-found[word], word)):
        if found[word] >= least and word != "<unk>":
            ids[word] = len(ids) + UNKNOWN + 1
    streams = []
    for split_lines in texts:
        stream = []
        for line in split_lines:
            stream += [*(ids.get(word, UNKNOWN) for word in cut(line)), 0]
        streams.append(torch.tensor(stream))
    counts = torch.bincount(streams[0], minlength=UNKNOWN + 1)
    return counts, *map(blocks, streams, (None, 13_000 // BLOCK, 40_000 // BLOCK))


def blocks(stream: Tensor, at_most: int | None) -> Blocks:
    """A block sees the last token before it, and no other."""
    size = len(stream) // BLOCK * BLOCK
    inputs = torch.cat([torch.zeros(1, dtype=torch.long), stream[: size - 1]])
    return inputs.view(-1, BLOCK)[:at_most], stream[:size].view(-1, BLOCK)[:at_most]


class Model(nn.Module):
    """Features (B, T, D) of a pre-norm Transformer whose embedding is tied to W."""

    def __init__(self, vocabulary: int, dropout: float, units: int = UNITS) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(vocabulary, units) * units**-0.5)
        frequencies = torch.exp(torch.arange(units // 2) * -(math.log(10000) / (units // 2 - 1)))
        angles = torch.arange(2, BLOCK + 2)[:, None] * frequencies[None]
        self.positions = torch.cat([angles.sin(), angles.cos()], 1)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                units, units // 16, 4 * units, dropout, batch_first=True, norm_first=True
            )
            for _ in range(2)
        )
        for layer in self.layers:
            for linear in (layer.linear1, layer.linear2):
                nn.init.xavier_uniform_(linear.weight)
                nn.init.zeros_(linear.bias)
        self.norm, self.dropout = nn.LayerNorm(units), nn.Dropout(dropout)
        self.mask = nn.Transformer.generate_square_subsequent_mask(BLOCK)

    def forward(self, inputs: Tensor) -> Tensor:
        """Features (B, T, D) of tokens (B, T)."""
        scale = self.weight.size(1) ** 0.5
        features = self.dropout(F.embedding(inputs, self.weight) * scale + self.positions)
        for layer in self.layers:
            features = layer(features, self.mask, is_causal=True)
        return self.norm(features)


class OutputLayer:
    """The loss and the probabilities of a method (mle, agg, agps, f2 or bias) with the output
    embedding W; an epoch is a number of updates."""

    def __init__(self, method: str, weight: Tensor, counts: Tensor, epoch: int) -> None:
        self.weight, self.bias, self.factorized = weight, None, None
        size = len(counts)
        self.gating = Gating(size)
        special = torch.arange(size) == 0  # <unk> is gated like any other rare token
        if method == "agg":
            self.gating = AggGating(size, rare_fraction=0.3, window=epoch, excluded=special)
        elif method == "agps":
            given = {"rare_rank": round(0.7 * size), "mu1": 20, "mu2": 2}
            self.gating = AgpsGating(size, counts=counts, excluded=special, **given)
        elif method == "f2":
            self.factorized = FactorizedSoftmax(UNITS, mefmax(counts), weight)
        elif method == "bias":
            self.bias = log_unigram(counts)

    def loss(self, features: Tensor, target: Tensor) -> Tensor:
        """The mean over targets (B, T)."""
        if self.factorized is not None:
            return self.factorized(features, target).loss
        logits = gated_linear(features, self.weight, self.bias, target, self.gating(target))
        return F.cross_entropy(logits.flatten(0, 1), target.flatten())

    def log_prob(self, features: Tensor) -> Tensor:
        """(B, T, V)."""
        if self.factorized is not None:
            return self.factorized.log_prob(features)
        return F.linear(features, self.weight, self.bias).log_softmax(-1)


@torch.no_grad()
def evaluate(
    model: Model, layer: OutputLayer, data: Blocks, token_bins: Tensor
) -> dict[str, list[float]]:
    """Number of targets and the sum of their −log P in nats, by occurrences in the training part."""
    inputs, targets = data
    model.eval()
    parts = zip(inputs.split(4), targets.split(4), strict=True)
    nll = torch.cat([-layer.log_prob(model(x)).gather(2, y[..., None]).flatten() for x, y in parts])
    model.train()
    bins, zeros = token_bins[targets.flatten()], torch.zeros(len(BINS) + 1)
    return {
        "targets": zeros.index_add(0, bins, torch.ones_like(nll)).tolist(),
        "nll": zeros.index_add(0, bins, nll).tolist(),
    }


def shuffled_batches(size: int, per_update: int, seed: int) -> Iterator[Tensor]:
    """The blocks of each update, without end."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        yield from torch.randperm(size, generator=generator).split(per_update)


def train(text: str, options: dict) -> dict:
    """Trains a model; the best of its checkpoints by validation is measured on the test part."""
    counts, (inputs, targets), valid, test = read_text(text)
    torch.manual_seed(options["seed"])
    model = Model(len(counts), options["dropout"])
    per_update = options["T"] // BLOCK
    epoch = math.ceil(len(inputs) / per_update)
    updates = round(epoch * options["epochs"])
    layer = OutputLayer(options["method"], model.weight, counts, epoch)

    others = [p for name, p in model.named_parameters() if name != "weight"]
    if layer.factorized is not None:
        others.append(layer.factorized.class_weight)
    parameters = [model.weight, *others]
    beta2, rate = options["beta2"], options["lr"]
    w_group = {"betas": (0.9, options.get("beta2_of_W", beta2)), "weight_decay": options["decay"]}
    groups = [{"params": [model.weight], **w_group}, {"params": others}]
    optimizer = torch.optim.AdamW(groups, rate, (0.9, beta2), weight_decay=0.01, fused=True)

    token_bins = torch.bucketize(counts, torch.tensor(BINS), right=True)
    checks = {round(updates * n / 6) for n in range(1, 7)}
    checks |= {epoch * n for n in range(1, int(options["epochs"]) + 1)}
    best, best_update, kept = math.inf, 0, []
    batches = itertools.islice(shuffled_batches(len(inputs), per_update, options["seed"]), updates)
    for update, batch in enumerate(batches, 1):
        done = (update - 1 - WARMUP) / max(updates - WARMUP, 1)
        for group in optimizer.param_groups:  # falls to a tenth
            group["lr"] = rate * (update / WARMUP if update <= WARMUP else 1 - 0.9 * done)
        loss = layer.loss(model(inputs[batch]), targets[batch])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        if layer.factorized is None:
            layer.gating.commit_update()
        if update in checks:
            found = evaluate(model, layer, valid, token_bins)
            nll = sum(found["nll"]) / sum(found["targets"])
            if nll < best:
                best, best_update, kept = nll, update, [p.detach().clone() for p in parameters]
            elif nll > best + 0.1:
                break  # it has been too long by far
    with torch.no_grad():
        for parameter, value in zip(parameters, kept, strict=True):
            parameter.copy_(value)
    measured = evaluate(model, layer, test, token_bins)
    facts = {"counts": counts.tolist(), "best_update": best_update, "test": measured}
    return {"text": text, **options, **facts}


def table(folder: Path) -> None:
    """A line per setting: test perplexity over the seeds, and how 0.999 changes it."""
    settings = [key for key in DEFAULTS if key not in ("beta2", "seed")]
    runs: dict[tuple, dict[int, dict]] = {}
    for file in sorted(folder.glob("*.json")):
        run = json.loads(file.read_text())
        keys = ("text", *settings, "beta2_of_W", "beta2")
        runs.setdefault(tuple(map(run.get, keys)), {})[run["seed"]] = run
    lines = []
    for (*setting, beta2), by_seed in runs.items():
        first = next(iter(by_seed.values()))
        counts, update_size = torch.tensor(first["counts"]), first["T"]
        share = counts[forgotten(counts, update_size, beta2)].sum().item() / counts.sum().item()
        seen, overall = perplexities(by_seed)
        changes: list[str | None] = [None] * 3
        larger = runs.get((*setting[:-1], None, 0.999))
        if larger and beta2 != 0.999:
            gain = forgetting(counts, update_size, beta2) - forgetting(counts, update_size, 0.999)
            changes = [f"{100 * math.expm1(-gain):.1f}"]
            for new, old in zip(perplexities(larger), (seen, overall), strict=True):
                changes.append(new.change(old, relative=True).format(1))
        lines.append([*setting, beta2, f"{share:.3f}", seen.format(1), overall.format(1), *changes])
    titles = ("β₂ of W", "β₂", "s", "seen", "all", "rule, %", "0.999: seen, %", "all, %")
    print(format_table(["text", *settings, *titles], lines))


def perplexities(by_seed: dict[int, dict]) -> tuple[SeedValues, SeedValues]:
    """Of the test targets that occur in training, and of all."""
    seen, overall = {}, {}
    for seed, run in by_seed.items():
        nll, targets = run["test"]["nll"], run["test"]["targets"]
        overall[seed] = math.exp(sum(nll) / sum(targets))
        seen[seed] = math.exp(sum(nll[1:]) / sum(targets[1:]))  # bin 0 has those that never occur
    return SeedValues(seen), SeedValues(overall)


def main(folder: str, text: str | None = None, *settings: str) -> None:
    """See the help at the top."""
    if text is None:
        return table(Path(folder))
    options = dict(DEFAULTS)
    for setting in settings:
        key, value = setting.split("=")
        options[key] = type(DEFAULTS.get(key, 0.0))(value)
    name = "-".join([text, *(f"{key}={value}" for key, value in options.items())]).replace("/", "_")
    path = Path(folder) / f"{name}.json"
    if not path.exists():
        write_json(path, train(text, options))
        print(path, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
