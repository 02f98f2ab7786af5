"""Evaluations of a trained model, and the columns of the papers' tables that are read from them.

Each evaluation is a function of a workspace and a model that returns a Result with a row for the model. Results are
kept in the folder of the model.
"""

from __future__ import annotations

import functools
import importlib.util
import subprocess
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import agg_fairseq
from agg_fairseq.data.word_pairs import DATASETS, dataset_files
from agg_fairseq.errors import UserError

from .corpora import prepare
from .experiment import BIN, Measure, Model, Value, Workspace, failed, say
from .training import best_checkpoint, is_newer, is_trained

if TYPE_CHECKING:  # imported where they are used: --list and --dry-run work without torch
    from agg_fairseq.checkpoints.fairseq_checkpoint import Checkpoint
    from agg_fairseq.evaluation import Cache, Result

TRANSLATION = ("--beam", "4", "--lenpen", "0.6", "--remove-bpe", "--max-tokens", "8000")
"""Options of fairseq-generate, as Vaswani et al. (2017) decode."""


class NotRun(Exception):
    """The model is not trained, so there is nothing to measure."""


def checkpoint(workspace: Workspace, model: Model) -> Checkpoint:
    """The checkpoint that is measured: the best one, or the mean of the last ones of a translation model.

    Raises:
        NotRun: the model is not trained.
    """
    path = averaged(workspace, model) if model.corpus.parallel and model.averaged else _best(workspace, model)
    return _opened(path, path.stat().st_mtime_ns)


def _best(workspace: Workspace, model: Model) -> Path:
    if not is_trained(workspace, model):
        raise NotRun(model.name)
    return best_checkpoint(workspace, model)


@lru_cache(maxsize=1)  # all measures of a model need it; a checkpoint of the papers has some GB
def _opened(path: Path, changed: int) -> Checkpoint:
    from agg_fairseq.checkpoints.fairseq_checkpoint import Checkpoint

    return Checkpoint(path, training_state=False)


def averaged(workspace: Workspace, model: Model) -> Path:
    """The mean of a model's last checkpoints, as a file in its folder.

    Raises:
        NotRun: the model is not trained.
    """
    from agg_fairseq.checkpoints.averaging import average_checkpoints, last_checkpoints
    from agg_fairseq.checkpoints.fairseq_checkpoint import Checkpoint

    output = workspace.folder(model) / "averaged.pt"
    if not is_newer(output, _best(workspace, model)):
        paths = last_checkpoints(workspace.folder(model), model.averaged, by="update")
        average_checkpoints({str(path): Checkpoint(path, training_state=False) for path in paths}, output)
    return output


def _cache(workspace: Workspace, model: Model) -> Cache:
    from agg_fairseq.evaluation import Cache

    return Cache(workspace.folder(model) / "results")


def _kept(workspace: Workspace, model: Model, name: str, *arguments: Any, **options: Any) -> Result:
    """The Result of a function of `agg_fairseq.evaluation`, kept or made now; its signature goes under the table."""
    from agg_fairseq import evaluation

    evaluate: Callable[..., Result] = getattr(evaluation, name)

    @functools.wraps(evaluate)  # the cache knows an evaluation by its name and arguments
    def told(*arguments: Any, **options: Any) -> Result:
        say(f"measuring {workspace.name(model)}: {evaluate.__name__.replace('_', ' ')}")
        return evaluate(*arguments, **options)

    result = _cache(workspace, model).result(told, *arguments, **options)
    workspace.signatures[f"{evaluate.__name__}: {result.signature}"] = None
    return result


def perplexity(
    workspace: Workspace, model: Model, *, split: str = "test", groups: str = "types", **blocks: int
) -> Result:
    """Perplexity, Uniq and isotropy of a language model by frequency group.

    Args:
        workspace: the workspace.
        model: a language model.
        split: the split to score.
        groups: as of `evaluation.perplexity`.
        blocks: `tokens_per_sample` and `context_window` of it, if they are not those of the training and 0.
    """
    models, data = {model.name: checkpoint(workspace, model)}, prepare(workspace, model.corpus).binarized
    options = blocks if model.cache is None else {**blocks, "cache": model.cache}
    return _kept(workspace, model, "perplexity", models, data, split=split, groups=groups, **options)


BLOCKS = {"paper": (512, 400), "small": (512, 400), "tiny": (128, 100)}
"""Tokens of a block, its context included, and of the context, in the commands of Yu et al. (2022).

At tiny, where models are trained on blocks of 128 tokens, the context is the same share of a block.
"""


def perplexity_as_published(workspace: Workspace, model: Model, *, groups: str = "types") -> Result:
    """Perplexity, Uniq and isotropy by the protocol of Yu et al. (2022), whose README has the commands.

    Perplexity is that of the last 112 of each 512 tokens, so that every token has a context of 400 or more; Uniq is
    that of whole blocks of 512 tokens. (`eval_lm.py --tokens-per-sample 512 --context-window 400` and
    `evaluation.py --batch-size-single-prediction 512`.)

    Args:
        workspace: the workspace.
        model: a language model.
        groups: as of `evaluation.perplexity`.

    Returns:
        Result: as `evaluation.perplexity`, with the columns of two evaluations; its signature is that of the
            perplexities, and both go under the table.
    """
    from agg_fairseq.evaluation import Result

    length, context = BLOCKS[workspace.scale]
    scored = perplexity(workspace, model, groups=groups, tokens_per_sample=length, context_window=context)
    predicted = perplexity(workspace, model, groups=groups, tokens_per_sample=length)
    titles = [column.title for column in predicted.columns]
    rows = {
        row: [(scored if title.startswith("PPL") else predicted)[row][title] for title in titles]
        for row in predicted.rows
    }
    found = zip(predicted.details["checkpoints"], scored.details["checkpoints"], strict=True)
    both = [{**one, "perplexity": other["perplexity"]} for one, other in found]
    return Result(predicted.columns, rows, scored.signature, {**predicted.details, "checkpoints": both})


def isotropy(workspace: Workspace, model: Model) -> Result:
    """Isotropy and mean cosines of the output embedding."""
    return _kept(workspace, model, "isotropy", {model.name: checkpoint(workspace, model)})


def word_similarity(workspace: Workspace, model: Model, *, datasets: Sequence[str] = DATASETS) -> Result:
    """Spearman × 100 with human scores of pairs of words, by data set, as Yu et al. (2022) compute it."""
    models, corpus = {model.name: checkpoint(workspace, model)}, prepare(workspace, model.corpus)
    files, tokenizer = dataset_files(datasets), corpus.tokenizer()
    options = {"tokenizer": tokenizer, "as_published": True}
    return _kept(workspace, model, "word_similarity", models, corpus.binarized, files, **options)


def neighbors(workspace: Workspace, model: Model, *, words: Sequence[str], groups: str = "types") -> Result:
    """The nearest tokens of words. At tiny, whose corpus lacks the paper's words, those of rare words of its own."""
    models, corpus = {model.name: checkpoint(workspace, model)}, prepare(workspace, model.corpus)
    options = {"words": None if workspace.scale == "tiny" else list(words), "tokenizer": corpus.tokenizer()}
    if groups != "types":
        options["groups"] = groups
    return _kept(workspace, model, "neighbors", models, corpus.binarized, **options)


def token_of(workspace: Workspace, model: Model, words: Sequence[str], word: int) -> str:
    """The token of one of the words whose neighbors are listed.

    Raises:
        UserError: the word is split into several tokens.
    """
    listed = neighbors(workspace, model, words=words).details["words"]
    if word >= len(listed):
        raise UserError(
            f"found {len(listed)} rare words in this corpus; expected {word + 1}; its cosines cannot be drawn"
        )
    found = listed[word]
    if len(found["tokens"]) > 1:
        pieces = " ".join(token["token"] for token in found["tokens"])
        raise UserError(f"{found['word']!r} is several tokens of this corpus, {pieces}; its cosines cannot be drawn")
    return found["tokens"][0]["token"]


def align_sim(workspace: Workspace, model: Model) -> Result:
    """AlignSim of a translation model, by frequency group."""
    from agg_fairseq.data.eflomal_alignment import align_split

    models, corpus = {model.name: checkpoint(workspace, model)}, prepare(workspace, model.corpus)
    links = workspace.output / f"{corpus.identity[:12]}.align"
    if not links.exists():
        say("aligning the words of the training split")
        align_split(corpus.binarized, links)
    return _kept(workspace, model, "align_sim", models, corpus.binarized, links)


def bleu(
    workspace: Workspace, model: Model, *, generate: Sequence[str] = TRANSLATION, name: str = "generate"
) -> Result:
    """BLEU of the test split, translated by fairseq-generate.

    Args:
        workspace: the workspace.
        model: a translation model.
        generate: options of fairseq-generate.
        name: of the log of the translations, without ending.
    """
    source, target = ("de", "en") if "de-en" in model.config else ("en", "de")
    corpus, path = prepare(workspace, model.corpus), checkpoint(workspace, model).path
    log = workspace.folder(model) / f"{name}.log"
    if not is_newer(log, path):
        say(f"translating the test split with {workspace.name(model)}")
        command = [
            "fairseq-generate", corpus.binarized, "--user-dir", Path(agg_fairseq.__file__).parent, "-s", source, "-t",
            target, "--path", path, *generate, "--required-batch-size-multiple", "1",
        ]  # fmt: skip
        words = [str(BIN / command[0]), *map(str, command[1:])]
        partial_log, messages = log.with_name(f".{log.name}.partial"), log.with_suffix(".messages")
        with open(partial_log, "wb") as printed, open(messages, "wb") as said:
            status = subprocess.run(words, stdout=printed, stderr=said, check=False).returncode
        if status:
            raise failed("fairseq-generate", status, messages)
        partial_log.replace(log)
    options = {"reference": corpus.reference(target)}
    if corpus.manifest.get("tokenizer") == "moses":
        options["moses"] = target
    return _kept(workspace, model, "bleu", {model.name: log}, **options)


def texts(workspace: Workspace, model: Model, *, topk: int | None, max_texts: int | None = None) -> Result:
    """The measures of a model's continuations of the test split, and of the human text in their place.

    Args:
        workspace: the workspace.
        model: a language model.
        topk: number of most probable tokens that each token is drawn from; None: always the most probable.
        max_texts: number of prefixes that are continued; None: all.
    """
    path, data = text_file(workspace, model, topk=topk, max_texts=max_texts), prepare(workspace, model.corpus).binarized
    return _kept(workspace, model, "text_metrics", {model.name: path}, data)


def text_file(workspace: Workspace, model: Model, *, topk: int | None, max_texts: int | None = None) -> Path:
    """The file of a model's continuations of the test split, kept or made now; the arguments are those of `texts`."""
    from agg_fairseq import evaluation

    topk = None if model.greedy else topk
    name, options = f"top{topk}" if topk else "greedy", {"topk": topk, "max_texts": max_texts}
    if workspace.seed is not None:
        options["seed"] = workspace.seed
    if model.decoding:
        name += f"-{model.decoding}"
        decoupled = "sample-class" if topk else "greedy-class"
        options["f2_decoding"] = decoupled if model.decoding == "decoupled" else model.decoding
    name += f"-{max_texts}" if max_texts else ""
    opened, data = checkpoint(workspace, model), prepare(workspace, model.corpus).binarized

    @functools.wraps(evaluation.generate_texts)
    def told(*arguments: Any, **options: Any) -> Result:
        say(f"continuing the test split with {workspace.name(model)}: {name}")
        return evaluation.generate_texts(*arguments, **options)

    return _cache(workspace, model).file(f"{name}.jsonl", told, opened, data, **options)


def check_word_similarity() -> None:
    """Checks that the data sets of word similarity are there.

    Raises:
        UserError: they are not.
    """
    dataset_files(DATASETS)


def check_aligner() -> None:
    """Checks that the word aligner is installed.

    Raises:
        UserError: it is not.
    """
    if importlib.util.find_spec("eflomal") is None:
        raise UserError("found no eflomal, which aligns words; pip install '.[align]'")


GROUPS = {"Freq": "frequent", "Med": "medium", "Rare": "rare", "Total": "total"}
PPL = [Measure(f"PPL {label}", perplexity_as_published, f"PPL {group}") for label, group in GROUPS.items()]
UNIQ = [Measure(f"Uniq {label}", perplexity_as_published, f"Uniq {group}", 0) for label, group in GROUPS.items()]
ISOTROPY = [Measure(f"I(W) {label}", perplexity_as_published, f"I(W) {group}", 3) for label, group in GROUPS.items()]
BLEU = [Measure("BLEU", bleu, "BLEU"), Measure("sacreBLEU", bleu, "sacreBLEU")]


def neighbor_measures(words: Sequence[str], *, groups: str = "types") -> list[Measure]:
    """Each word and its 5 nearest tokens, with † after those that are rare by `groups`."""

    def word(number: int, result: Result) -> Value:
        found = result.details["words"][number : number + 1]  # a small corpus may have fewer rare words
        return found[0]["word"] if found else None

    def neighbor(number: int, rank: int, result: Result) -> Value:
        words = result.details["words"][number : number + 1]
        found = words[0]["checkpoints"][0]["neighbors"][rank : rank + 1] if words else []
        return found[0]["readable"] + "†" * (found[0]["group"] == "rare") if found else None

    evaluate, measures = partial(neighbors, words=words, groups=groups), []
    for number in range(len(words)):
        measures.append(Measure(f"word {number + 1}", evaluate, partial(word, number)))
        measures += [
            Measure(f"{number + 1}.{rank + 1}", evaluate, partial(neighbor, number, rank)) for rank in range(5)
        ]
    return measures
