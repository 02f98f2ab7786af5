"""Measures of trained models, by the commands of the package; each is kept beside the model until that is newer."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from agg_fairseq.cli.word_similarity import DATASETS, files_of
from agg_fairseq.errors import UserError

from .bench import Bench
from .corpora import Prepared, prepare
from .experiment import Model, Value
from .training import best_checkpoint, is_trained

LANGUAGES = ("en", "de")

Measured = Callable[[Bench, Model], Value]
"""The number of a model."""


class NotRun(Exception):
    """The model is not trained, so there is nothing to measure."""


def corpus_of(bench: Bench, model: Model) -> Prepared:
    """Of a model's training."""
    return prepare(bench, model.corpus)


def checkpoint(bench: Bench, model: Model) -> Path:
    """The best of a model.

    Raises:
        NotRun: the model is not trained.
    """
    if not is_trained(bench, model):
        raise NotRun(model.name)
    return best_checkpoint(bench, model)


def perplexity(group: str) -> Measured:
    """Of the test split, by frequency group."""
    return lambda bench, model: _evaluated(bench, model)["perplexity"][group]


def relative_perplexity(group: str) -> Measured:
    """The same by groups of relative frequency, as Yu et al. (2021) have them."""
    return lambda bench, model: _evaluated(bench, model, groups="frequency")["perplexity"][group]


def validation_perplexity(bench: Bench, model: Model) -> Value:
    """Of the validation split."""
    return _evaluated(bench, model, split="valid")["perplexity"]["total"]


def uniq(group: str) -> Measured:
    """How many different tokens are ever the model's first choice."""
    return lambda bench, model: _evaluated(bench, model)["uniq"][group]


def human_uniq(group: str) -> Measured:
    """How many different tokens the test split has."""
    return lambda bench, model: _eval_lm(bench, model)["human_uniq"][group]


def lm_isotropy(group: str) -> Measured:
    """I(W) of a language model's output embedding."""
    return lambda bench, model: _evaluated(bench, model)["isotropy"][group]


def mean_cosine(bench: Bench, model: Model) -> Value:
    """S(W)."""
    return _measured(bench, model, "isotropy", [scored_checkpoint(bench, model)])["checkpoints"][0]["mean_cosine"]


def word_similarity(dataset: str) -> Measured:
    """Spearman × 100 with the scores that people gave; None where too few of its words are in the dictionary."""

    def get(bench: Bench, model: Model) -> Value:
        path, corpus = checkpoint(bench, model), corpus_of(bench, model)
        options = [path, "--data", corpus.binarised, "--datasets", *DATASETS, *corpus.tokeniser()]
        found = _measured(bench, model, "word-similarity", options)["checkpoints"][0]["datasets"][dataset]
        return None if found["spearman"] is None else 100 * found["spearman"]

    return get


def neighbor(words: Sequence[str], word: int, rank: int) -> Measured:
    """A word's nearest token; at `tiny`, whose corpus lacks the paper's words, those of rare words of its own."""

    def get(bench: Bench, model: Model) -> Value:
        found = _neighbors(bench, model, words)[word]["checkpoints"][0]["neighbors"][rank]
        return found["readable"] + "†" * (found["group"] == "rare")

    return get


def neighbors_of(words: Sequence[str], word: int) -> Measured:
    """The word whose neighbours are listed."""
    return lambda bench, model: _neighbors(bench, model, words)[word]["word"]


def token_of(bench: Bench, model: Model, words: Sequence[str], word: int) -> str:
    """The token of a word whose neighbours are listed.

    Raises:
        UserError: it is of several.
    """
    found = _neighbors(bench, model, words)[word]
    if len(found["tokens"]) > 1:
        pieces = " ".join(token["token"] for token in found["tokens"])
        raise UserError(f"{found['word']!r} is several tokens of this corpus, {pieces}; its cosines cannot be drawn")
    return found["tokens"][0]["token"]


def check_word_similarity() -> None:
    """Sees that the data sets are at hand.

    Raises:
        UserError: they are not.
    """
    files_of(DATASETS)


def check_aligner() -> None:
    """Sees that the word aligner is installed.

    Raises:
        UserError: it is not.
    """
    if importlib.util.find_spec("eflomal") is None:
        raise UserError("found no eflomal, which aligns words; pip install 'agg-fairseq[align]'")


def _neighbors(bench: Bench, model: Model, words: Sequence[str]) -> list[dict[str, Any]]:
    corpus = corpus_of(bench, model)
    asked = [] if bench.scale == "tiny" else ["--words", *words]
    options = [scored_checkpoint(bench, model), "--data", corpus.binarised, *asked, *corpus.tokeniser()]
    return _measured(bench, model, "neighbors", options)["words"]


def bleu(kind: str) -> Measured:
    """BLEU of the test split: `bleu`, tokenised, with compounds split; `sacrebleu`, of plain text."""

    def get(bench: Bench, model: Model) -> Value:
        source, target = languages(model)
        corpus, log = corpus_of(bench, model), bench.folder(model) / "generate.log"
        path = averaged(bench, model)
        if not _is_newer(log, path):
            bench.say(f"translating the test split with {model.name}")
            bench.run(
                ["fairseq-generate", corpus.binarised, "--user-dir", user_dir(), "-s", source, "-t", target,
                 "--path", path, "--beam", "4", "--lenpen", "0.6", "--remove-bpe", "--max-tokens", "8000",
                 "--required-batch-size-multiple", "1"],
                log,
            )  # fmt: skip
        options = ["--reference", corpus.reference(target), "--moses", target]
        found = _measured(bench, model, "bleu", [log, *options])["files"][0][kind]
        return found["score"]

    return get


def scored_checkpoint(bench: Bench, model: Model) -> Path:
    """The one that is measured: the best of a language model, the mean of the last five of a translation model."""
    return averaged(bench, model) if model.corpus.parallel else checkpoint(bench, model)


def averaged(bench: Bench, model: Model) -> Path:
    """The mean of a model's last checkpoints."""
    output = bench.folder(model) / "averaged.pt"
    if not _is_newer(output, checkpoint(bench, model)):
        options = ["--last", str(model.averaged), "--by", "update"]
        bench.measure("average-checkpoints", bench.folder(model), *options, "--output", output)
    return output


def languages(model: Model) -> tuple[str, str]:
    """From which, to which."""
    return LANGUAGES[::-1] if "de-en" in model.config else LANGUAGES


def align_sim(group: str) -> Measured:
    """AlignSim, by frequency group."""

    def get(bench: Bench, model: Model) -> Value:
        corpus = corpus_of(bench, model)
        links = bench.output / f"{corpus.identity[:12]}.align"
        path = averaged(bench, model)
        if not links.exists():
            bench.say("aligning the words of the training split")
            bench.measure("align", corpus.binarised, "--output", links)
        options = [path, "--data", corpus.binarised, "--alignments", links]
        return _measured(bench, model, "align-sim", options)["checkpoints"][0]["align_sim"][group]

    return get


def of_texts(read: Callable[[dict[str, Any]], Value], topk: int | None) -> Measured:
    """A measure of a model's continuations of the test split.

    Args:
        read: it from the numbers of `text-metrics`.
        topk: drawn from so many of the likeliest tokens; None: always the likeliest.
    """
    return lambda bench, model: read(text_metrics(bench, model, topk)["files"][0])


def of_human_texts(read: Callable[[dict[str, Any]], Value], topk: int | None) -> Measured:
    """The same of what the test split has in their place."""
    return lambda bench, model: read(text_metrics(bench, model, topk)["human"])


def text_metrics(bench: Bench, model: Model, topk: int | None) -> dict[str, Any]:
    """All that `text-metrics` measures of a model's continuations."""
    texts, data = _continuations(bench, model, topk), corpus_of(bench, model).binarised
    return _measured(bench, model, "text-metrics", [texts, "--name", model.name, "--data", data], kept=texts.stem)


def text_metrics_file(bench: Bench, model: Model, topk: int | None) -> Path:
    """Its JSON, for the pictures that are drawn of it."""
    texts = _continuations(bench, model, topk)
    text_metrics(bench, model, topk)
    return bench.folder(model) / f"text-metrics-{texts.stem}.json"


def _continuations(bench: Bench, model: Model, topk: int | None) -> Path:
    """The texts, as JSON Lines."""
    name = f"top{topk}" if topk else "greedy"
    options = ["--topk", str(topk)] if topk else []
    if model.decoding:
        name += f"-{model.decoding}"
        options += ["--f2-decoding", _f2_decoding(model.decoding, topk)]
    path, output = checkpoint(bench, model), bench.folder(model) / f"{name}.jsonl"
    if not _is_newer(output, path):
        bench.say(f"continuing the test split with {model.name}: {name}")
        data = corpus_of(bench, model).binarised
        bench.measure("generate-lm", data, "--path", path, "--output", output, *options)
    return output


def _f2_decoding(decoding: str, topk: int | None) -> str:
    if decoding == "joint":
        return decoding
    return "sample-class" if topk else "greedy-class"


def user_dir() -> Path:
    """What fairseq's --user-dir takes."""
    import agg_fairseq

    return Path(agg_fairseq.__file__).parent


def evaluation_file(bench: Bench, model: Model) -> Path:
    """The JSON of `eval-lm`, for the pictures that are drawn of it."""
    _eval_lm(bench, model)
    return bench.folder(model) / "eval-lm-test-types.json"


def _evaluated(bench: Bench, model: Model, **options: str) -> dict[str, Any]:
    return _eval_lm(bench, model, **options)["checkpoints"][0]


def _eval_lm(bench: Bench, model: Model, *, split: str = "test", groups: str = "types") -> dict[str, Any]:
    path, data = checkpoint(bench, model), corpus_of(bench, model).binarised
    options = [data, "--path", path, "--gen-subset", split, "--groups", groups]
    return _measured(bench, model, "eval-lm", options, kept=f"{split}-{groups}")


def _measured(
    bench: Bench, model: Model, command: str, options: Sequence[str | Path], kept: str = ""
) -> dict[str, Any]:
    """The JSON of a measuring command, measured where it is missing or older than a file that it reads."""
    name = f"{command}-{kept}" if kept else command
    output = bench.folder(model) / f"{name}.json"
    read = [Path(option) for option in options if Path(option).is_file()]
    if not all(_is_newer(output, path) for path in read):
        bench.say(f"measuring {model.name}: {name}")
        bench.measure(command, *options, "--json", output)
    values = json.loads(output.read_text(encoding="utf-8"))
    bench.signatures[f"{command}: {values['signature']}"] = None
    return values


def _is_newer(output: Path, source: Path) -> bool:
    return output.exists() and output.stat().st_mtime >= source.stat().st_mtime
