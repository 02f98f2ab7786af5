"""What a larger β₂ gains on a text: trains small language models in plain PyTorch, and prints a
table (docs/rule.md).

    python -m scripts.ours.rule FOLDER TEXT KEY=VALUE…     trains one, unless FOLDER has it
    python -m scripts.ours.rule FOLDER                     prints the table of those in FOLDER

TEXT is a name, maybe /k for a k-th of its training part, and how it is split: `de:unk2` has the
German captions of Multi30k in words, `<unk>` instead of those seen once; `wt2/10:bpe4000` a tenth
of WikiText-2 in 4,000 sub-words. Names: `de`, `en`, `wt2`, `docs` (the documentation of Python),
`code` (its standard library), or the path of a file. The model is that of configs/cures/mle.yaml: a
tied Transformer of 2 layers of 64 units, in blocks of 64 tokens.
"""

import collections
import itertools
import json
import math
import os
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from agg_fairseq.f2 import FactorizedSoftmax, mefmax
from agg_fairseq.files import write_json
from agg_fairseq.functional import forgetting, forgotten, log_unigram
from agg_fairseq.objective import AggObjective, AgpsObjective
from agg_fairseq.result import SeedValues, format_table

from ..data import python_documentation

DATA = Path(os.environ.get("DATA", "data"))
FILES = {"de": "multi30k/{}.de", "en": "multi30k/{}.en", "wt2": "wikitext-2/wiki.{}.tokens"}
BLOCK, UNITS, WARMUP = 64, 64, 100
UNKNOWN = 1  # the row of <unk>; row 0 is </s>
DEFAULTS = {
    "T": 256,
    "epochs": 3,
    "lr": 0.01,
    "beta2": 0.98,
    "seed": 1,
    "method": "mle",
    "dropout": 0.0,
    "decay": 0.01,
}
# the fewest occurrences of each bin but the first, which has none
BINS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]


def lines(name: str) -> list[list[str]]:
    """Lines of each split; of 20 blocks of 50 lines of a file, one is for valid, and one for
    test."""
    if name in FILES:
        texts = [
            (DATA / FILES[name].format(split)).read_text().split("\n")
            for split in ("train", "valid", "test")
        ]
    elif name == "docs":
        texts = list(python_documentation.split(python_documentation.documents()).values())
    else:
        texts = [[], [], []]
        files = (
            sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
            if name == "code"
            else [Path(name)]
        )
        whole = [
            line
            for file in files
            for line in file.read_text(errors="replace").split("\n")
            if line.strip()
        ]
        for number, line in enumerate(whole):
            texts[{0: 1, 1: 2}.get(number // 50 % 20, 0)].append(line)
    return [[line for line in text if line.strip()] for text in texts]


def tokens(text: str) -> list[Tensor]:
    """The ids of each split. Without an option, a dictionary has all words of the training part."""
    text, _, option = text.partition(":")
    name, _, part = text.partition("/") if not Path(text).exists() else (text, "", "1")
    texts, step = lines(name), int(part or 1)
    # Articles stay whole; captions are independent.
    texts[0] = (
        texts[0][::step] if name in ("de", "en", "docs") else texts[0][: len(texts[0]) // step]
    )
    words = [[line.split() for line in lines_] for lines_ in texts]
    if option.startswith("bpe"):
        from tokenizers import ByteLevelBPETokenizer

        bpe = ByteLevelBPETokenizer(add_prefix_space=True)
        bpe.train_from_iterator(texts[0], int(option[3:]), min_frequency=0, show_progress=False)
        words = [[encoded.tokens for encoded in bpe.encode_batch(lines_)] for lines_ in texts]
    counts = collections.Counter(word for line in words[0] for word in line)
    least = int(option[3:]) if option.startswith("unk") else 1
    known = [word for word in counts if counts[word] >= least and word != "<unk>"]
    ids = {
        word: row
        for row, word in enumerate(sorted(known, key=lambda word: (-counts[word], word)), 2)
    }
    return [
        torch.tensor([row for line in w for row in (*(ids.get(word, UNKNOWN) for word in line), 0)])
        for w in words
    ]


def blocks(stream: Tensor, at_most: int | None = None) -> tuple[Tensor, Tensor]:
    """Inputs and targets (blocks, 64): a block sees the last token before it, and no other."""
    size = len(stream) // BLOCK * BLOCK
    inputs = torch.cat([torch.zeros(1, dtype=torch.long), stream[: size - 1]])
    return inputs.view(-1, BLOCK)[:at_most], stream[:size].view(-1, BLOCK)[:at_most]


class Model(nn.Module):
    """Features (B, T, D) of a pre-norm Transformer whose embedding is tied to W."""

    def __init__(self, vocabulary: int, dropout: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(vocabulary, UNITS) * UNITS**-0.5)
        frequencies = torch.exp(torch.arange(UNITS // 2) * -(math.log(10000) / (UNITS // 2 - 1)))
        angles = torch.arange(2, BLOCK + 2)[:, None] * frequencies[None]
        self.positions = torch.cat([angles.sin(), angles.cos()], 1)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                UNITS, 4, 4 * UNITS, dropout, batch_first=True, norm_first=True
            )
            for _ in range(2)
        )
        for layer in self.layers:
            for linear in (layer.linear1, layer.linear2):
                nn.init.xavier_uniform_(linear.weight)
                nn.init.zeros_(linear.bias)
        self.norm, self.dropout = nn.LayerNorm(UNITS), nn.Dropout(dropout)
        self.mask = nn.Transformer.generate_square_subsequent_mask(BLOCK)

    def forward(self, inputs: Tensor) -> Tensor:
        """Features (B, T, D) of tokens (B, T)."""
        features = self.dropout(F.embedding(inputs, self.weight) * UNITS**0.5 + self.positions)
        for layer in self.layers:
            features = layer(features, self.mask, is_causal=True)
        return self.norm(features)


@torch.no_grad()
def evaluate(
    model: Model, log_prob: Callable[[Tensor], Tensor], data: tuple[Tensor, Tensor], bin_of: Tensor
) -> dict[str, list[float]]:
    """Number of targets and the sum of their −log P in nats, by how often they occur in the
    training part."""
    inputs, targets = data
    model.eval()
    parts = zip(inputs.split(4), targets.split(4), strict=True)
    nll = torch.cat([-log_prob(model(x)).gather(2, y[..., None]).flatten() for x, y in parts])
    model.train()
    bins, zeros = bin_of[targets.flatten()], torch.zeros(len(BINS) + 1)
    sums = {
        "targets": zeros.index_add(0, bins, torch.ones_like(nll)),
        "nll": zeros.index_add(0, bins, nll),
    }
    return {name: values.tolist() for name, values in sums.items()}


def train(text: str, options: dict) -> dict:
    """Trains a model; the best of its checkpoints by validation is measured on the test part."""
    train_ids, valid_ids, test_ids = tokens(text)
    vocabulary = 1 + max(UNKNOWN, int(train_ids.max()))
    counts = torch.bincount(train_ids, minlength=vocabulary)
    torch.manual_seed(options["seed"])
    model = Model(vocabulary, options["dropout"])
    inputs, targets = blocks(train_ids)
    per_update = options["T"] // BLOCK
    epoch = math.ceil(len(inputs) / per_update)
    updates = round(epoch * options["epochs"])

    special = torch.arange(vocabulary) == 0  # <unk> is gated like any other token that is rare
    objective, factorized, bias, others = (
        None,
        None,
        0.0,
        [p for n, p in model.named_parameters() if n != "weight"],
    )
    if options["method"] == "agg":
        objective = AggObjective(vocabulary, rare_fraction=0.3, window=epoch, excluded=special)
    elif options["method"] == "agps":
        rank = round(0.7 * vocabulary)
        objective = AgpsObjective(
            vocabulary, rare_rank=rank, counts=counts, excluded=special, mu1=20, mu2=2
        )
    elif options["method"] == "f2":
        factorized = FactorizedSoftmax(UNITS, mefmax(counts), model.weight)
        others.append(factorized.class_weight)
    elif options["method"] == "bias":
        bias = log_unigram(counts)

    def log_prob(features: Tensor) -> Tensor:
        if factorized is not None:
            return factorized.log_prob(features)
        return (features @ model.weight.T + bias).log_softmax(-1)

    beta2, rate = options["beta2"], options["lr"]
    of_weight = {"betas": (0.9, options.get("beta2_of_W", beta2)), "weight_decay": options["decay"]}
    optimizer = torch.optim.AdamW(
        [{"params": [model.weight], **of_weight}, {"params": others}],
        rate,
        (0.9, beta2),
        weight_decay=0.01,
        fused=True,
    )
    parameters = [model.weight, *others]
    bin_of = torch.bucketize(counts, torch.tensor(BINS), right=True)
    valid, test = blocks(valid_ids, 13_000 // BLOCK), blocks(test_ids, 40_000 // BLOCK)
    checks = {round(updates * n / 6) for n in range(1, 7)} | {
        epoch * n for n in range(1, int(options["epochs"]) + 1)
    }
    generator = torch.Generator().manual_seed(options["seed"])
    batches = (
        batch
        for _ in itertools.count()
        for batch in torch.randperm(len(inputs), generator=generator).split(per_update)
    )
    best, best_update, kept = math.inf, 0, []
    for update, batch in enumerate(batches, 1):
        done = (update - 1 - WARMUP) / max(updates - WARMUP, 1)
        for group in optimizer.param_groups:  # falls to a tenth
            group["lr"] = rate * (update / WARMUP if update <= WARMUP else 1 - 0.9 * done)
        features, target = model(inputs[batch]), targets[batch]
        if objective is not None:
            loss = objective(features, model.weight, target).loss / target.numel()
        elif factorized is not None:
            loss = factorized(features, target).loss
        else:
            loss = F.cross_entropy(
                (features @ model.weight.T + bias).flatten(0, 1), target.flatten()
            )
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        if objective is not None:
            objective.commit_update()
        if update in checks:
            found = evaluate(model, log_prob, valid, bin_of)
            loss_of_valid = sum(found["nll"]) / sum(found["targets"])
            if loss_of_valid < best:
                best, best_update, kept = (
                    loss_of_valid,
                    update,
                    [p.detach().clone() for p in parameters],
                )
            elif loss_of_valid > best + 0.1:
                break  # it has been too long by far
        if update == updates:
            break
    with torch.no_grad():
        for parameter, value in zip(parameters, kept, strict=True):
            parameter.copy_(value)
    test = evaluate(model, log_prob, test, bin_of)
    return {
        "text": text,
        **options,
        "counts": counts.tolist(),
        "best_update": best_update,
        "test": test,
    }


def table(folder: Path) -> None:
    """A line per setting: test perplexity, and how 0.999 changes it, by the rule and as measured,
    over the seeds."""
    settings = [key for key in DEFAULTS if key not in ("beta2", "seed")]
    runs: dict[tuple, dict[int, dict]] = {}
    for file in sorted(folder.glob("*.json")):
        run = json.loads(file.read_text())
        setting = (
            run["text"],
            *(run[key] for key in settings),
            run.get("beta2_of_W"),
            run["beta2"],
        )
        runs.setdefault(setting, {})[run["seed"]] = run
    lines = []
    for (*setting, beta2), by_seed in runs.items():
        first = next(iter(by_seed.values()))
        counts = torch.tensor(first["counts"])
        share = counts[forgotten(counts, first["T"], beta2)].sum().item() / counts.sum().item()
        measured, changes = perplexities(by_seed), [None] * 3
        larger = runs.get((*setting[:-1], None, 0.999))
        if larger and beta2 != 0.999:
            gain = forgetting(counts, first["T"], beta2) - forgetting(counts, first["T"], 0.999)
            changed = [
                new.change(old, relative=True)
                for new, old in zip(perplexities(larger), measured, strict=True)
            ]
            changes = [f"{100 * math.expm1(-gain):.1f}", *(change.format(1) for change in changed)]
        lines.append(
            [*setting, beta2, f"{share:.3f}", *(values.format(1) for values in measured), *changes]
        )
    header = [
        "text",
        *settings,
        "β₂ of W",
        "β₂",
        "s",
        "seen",
        "all",
        "rule, %",
        "0.999: seen, %",
        "all, %",
    ]
    print(format_table(header, lines))


def perplexities(by_seed: dict[int, dict]) -> list[SeedValues]:
    """Of the test targets that occur in training, and of all."""
    sums = {seed: (run["test"]["nll"], run["test"]["targets"]) for seed, run in by_seed.items()}
    return [
        SeedValues(
            {
                seed: math.exp(sum(nll[start:]) / sum(targets[start:]))
                for seed, (nll, targets) in sums.items()
            }
        )
        for start in (1, 0)  # bin 0 has those that never occur
    ]


def main(folder: str, text: str | None = None, *settings: str) -> None:
    """See the help at the top."""
    if text is None:
        return table(Path(folder))
    given = {
        key: type(DEFAULTS.get(key, 0.0))(value)
        for key, value in (setting.split("=") for setting in settings)
    }
    options = DEFAULTS | given
    name = "-".join([text, *(f"{key}={value}" for key, value in options.items())]).replace("/", "_")
    path = Path(folder) / f"{name}.json"
    if not path.exists():
        write_json(path, train(text, options))
        print(path, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
