"""Evaluations of a method, and the columns of the papers' tables that are read from them.

Each evaluation is a function of a workspace and a method that returns a Result with a row for its model. Results are
stored in the folder of the model.
"""

from __future__ import annotations

import functools
import itertools
import math
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agg_fairseq.columns import CALIBRATED, COMPARED, NEXT_TOKENS, Columns, column_titles
from agg_fairseq.data.subwords import TokenizerOptions
from agg_fairseq.data.word_pairs import DATASETS, dataset_files
from agg_fairseq.files import read_json_object

from ..command import ROOT
from ..training.configuration import PLUGIN
from .corpora import prepare
from .experiment import BIN, Column, Corpus, Experiment, Method, Model, Value, Workspace, failed, say
from .training import best_checkpoint, is_newer, is_trained

if TYPE_CHECKING:
    from agg_fairseq.checkpoints.fairseq_checkpoint import Checkpoint
    from agg_fairseq.result import Result

TRANSLATION = ("--beam", "4", "--lenpen", "0.6", "--remove-bpe", "--max-tokens", "8000")
"""Options of fairseq-generate, as Vaswani et al. (2017) decode."""
TO_ENGLISH = ("task.source_lang=de", "task.target_lang=en")
"""Overrides of a translation model from German; the others are from English."""


class NotRun(Exception):
    """The model is not trained, so there is nothing to measure."""


def checkpoint(workspace: Workspace, model: Model) -> Checkpoint:
    """The checkpoint that is measured: the best one, or the mean of the last ones of a translation model. Or NotRun."""
    if not is_trained(workspace, model):
        raise NotRun(model.name)
    path = best_checkpoint(workspace, model)
    if model.corpus.parallel and model.averaged:
        path = _averaged(workspace, model, path)
    return _opened(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=2)  # all measures of a model need it, and the one before fine-tuning; a checkpoint has some GB
def _opened(path: Path, changed: int) -> Checkpoint:
    from agg_fairseq.checkpoints.fairseq_checkpoint import Checkpoint

    return Checkpoint(path, training_state=False)


def _averaged(workspace: Workspace, model: Model, best: Path) -> Path:
    from agg_fairseq.checkpoints.averaging import average_checkpoints, last_checkpoints
    from agg_fairseq.checkpoints.fairseq_checkpoint import Checkpoint

    output = workspace.folder(model) / "averaged.pt"
    if not is_newer(output, best):
        paths = last_checkpoints(workspace.folder(model), model.averaged, by="update")
        average_checkpoints({str(path): Checkpoint(path, training_state=False) for path in paths}, output)
    return output


def _evaluate(workspace: Workspace, model: Model, name: str, *arguments: Any, file: str = "", **options: Any) -> Any:
    """What a function of `agg_fairseq.evaluation` returns, stored or new; with `file`, the path that it writes."""
    from agg_fairseq import evaluation

    evaluate: Callable[..., Result] = getattr(evaluation, name)

    @functools.wraps(evaluate)  # the cache knows an evaluation by its name and arguments; it calls it if need be
    def told(*arguments: Any, **options: Any) -> Result:
        say(f"measuring {workspace.name(model)}: {name.replace('_', ' ')}")
        return evaluate(*arguments, **options)

    cache = evaluation.Cache(workspace.folder(model) / "results")
    if file:
        return cache.file(file, told, *arguments, **options)
    result = cache.result(told, *arguments, **options)
    workspace.signatures[f"{name}: {result.signature}"] = None
    return result


def _opened_and_data(workspace: Workspace, model: Model) -> tuple[dict[str, Checkpoint], Path]:
    return {model.name: checkpoint(workspace, model)}, prepare(workspace, model.corpus).binarized


def perplexity(
    workspace: Workspace,
    method: Method,
    *,
    split: str = "test",
    calibrate: str | None = None,
    groups: str = "types",
    **options: Any,
) -> Result:
    """Perplexity, Uniq and isotropy by frequency group, of a split; with options of `evaluation.BinarizedText`."""
    from agg_fairseq.evaluation import BinarizedText

    models, data = _opened_and_data(workspace, method.model)
    text = BinarizedText(data, split, **options)
    fitted_on = None if calibrate is None else replace(text, split=calibrate)
    return _evaluate(workspace, method.model, "perplexity", models, text, calibrate=fitted_on, groups=groups)


def perplexity_of_awd_lstm(workspace: Workspace, method: Method, *, split: str = "test") -> Result:
    """Perplexity of a split, by the script of examples/awd_lstm."""
    from agg_fairseq.result import Result

    model, path = method.model, checkpoint(workspace, method.model).path
    file = workspace.folder(model) / f"perplexity-{split}{f'-cache-{method.cache}' if method.cache else ''}.json"
    if not is_newer(file, path):
        say(f"measuring {workspace.name(model)}: perplexity")
        data = prepare(workspace, model.corpus).binarized
        words = [sys.executable, ROOT / "examples/awd_lstm/evaluate.py", path, "--data", data, "--split", split]
        words += ["--json", file, *(["--cache-size", method.cache] if method.cache else [])]
        with open(file.with_suffix(".log"), "wb") as log:
            status = subprocess.run(list(map(str, words)), stdout=log, stderr=log, check=False).returncode
        if status:
            raise failed("evaluate.py", status, file.with_suffix(".log"))
    result = Result.from_json(read_json_object(file, "the perplexity that evaluate.py has written"))
    workspace.signatures[f"perplexity: {result.signature}"] = None
    return replace(result, rows={model.name: result.rows[str(path)]})


def titled(evaluate: Callable[..., Result], columns: Columns, among: Columns | None = None) -> list[Column]:
    """Columns of the Result of an evaluation, with the titles of its table, `among` all of its columns."""
    titles = column_titles(among or columns)
    return [Column.of(titles[column], evaluate, *column) for column in column_titles(columns)]


COMPARISON = titled(partial(perplexity, calibrate="valid"), COMPARED, among={**NEXT_TOKENS, **CALIBRATED})
"""By what cures are compared; calibrated: with a constant per group on the logits, fitted on the validation split."""

BLOCKS = {"paper": (512, 400), "small": (512, 400), "tiny": (128, 100)}
"""Tokens of a block, its context included, and of the context, in the commands of Yu et al. (2022); fewer at tiny."""


def perplexity_as_published(workspace: Workspace, method: Method, *, groups: str = "types") -> Result:
    """Perplexity, Uniq and isotropy by the protocol of Yu et al. (2022), whose README has the commands.

    Perplexity is that of the last 112 of each 512 tokens, so that every token has a context of 400 or more; Uniq is
    that of whole blocks of 512 tokens. (`eval_lm.py --tokens-per-sample 512 --context-window 400` and
    `evaluation.py --batch-size-single-prediction 512`.) The signatures of both evaluations go under the table.
    """
    length, context = BLOCKS[workspace.scale]
    scored = perplexity(workspace, method, groups=groups, tokens_per_sample=length, context_window=context)
    predicted = perplexity(workspace, method, groups=groups, tokens_per_sample=length)
    rows = {
        name: {**row, **{measure: value for measure, value in scored[name].items() if measure.endswith("perplexity")}}
        for name, row in predicted.rows.items()
    }
    return replace(predicted, rows=rows)


SHARES = tuple(tenths / 10 for tenths in range(11))
"""Of the constants that calibrate a model that was trained on another text."""


def fine_tuned(
    workspace: Workspace, method: Method, *, before: Model, new: Corpus, scored: Corpus, share: float = 0
) -> Result:
    """The test split of a corpus by a model that was `before` and has been trained on `new`.

    By the occurrences of tokens in `new`; with a share of the offsets that fit the validation split of the old corpus.
    """
    from agg_fairseq.evaluation import BinarizedText

    name = method.model.name
    old, text = (BinarizedText(prepare(workspace, corpus).binarized) for corpus in (before.corpus, scored))
    result = _evaluate(
        workspace,
        method.model,
        "perplexity",
        {name: checkpoint(workspace, method.model)},
        text,
        calibrate=replace(old, split="valid"),
        shares=SHARES[1:],
        occurrences_in=prepare(workspace, new).binarized,
        moved_from=checkpoint(workspace, before),
    )
    return replace(result, rows={name: result.rows[f"{name}, {share:.0%}" if share else name]})


def lowest_on_old(
    workspace: Workspace,
    method: Method,
    *,
    on_new: Callable[..., Result],
    on_old: Callable[..., Result],
    references: Mapping[str, Method],
    allowed: float,
) -> float | None:
    """The lowest perplexity of the old text, with a share of the constants that the new one allows.

    There, the perplexity may be at most `allowed` times that of another method without constants, which `references`
    has by the label of this one. Perplexities of shares between those measured are interpolated, in logarithms. None if
    the perplexity on the new text is always higher.
    """
    import numpy as np

    def total(read: Callable[..., Result], method: Method, share: float) -> float:
        return math.log(read(workspace, method, share=share).value(method.model.name, "perplexity", "total"))

    new, old = ([total(read, method, share) for share in SHARES] for read in (on_new, on_old))
    shares = np.linspace(0, 1, 1001)
    is_allowed = np.interp(shares, SHARES, new) <= total(on_new, references[method.label], 0) + math.log(allowed)
    return math.exp(np.interp(shares[is_allowed], SHARES, old).min()) if is_allowed.any() else None


def isotropy(workspace: Workspace, method: Method) -> Result:
    """Isotropy and mean cosines of the output embedding."""
    model = method.model
    return _evaluate(workspace, model, "isotropy", {model.name: checkpoint(workspace, model)})


def push_pull(workspace: Workspace, method: Method) -> Result:
    """How much more strongly Adam pushes the rows of a group than it pulls them, at the best checkpoint."""
    from agg_fairseq.checkpoints.fairseq_checkpoint import Checkpoint

    model = method.model
    if not is_trained(workspace, model):
        raise NotRun(model.name)
    models = {model.name: Checkpoint(best_checkpoint(workspace, model))}
    return _evaluate(workspace, model, "push_pull", models, prepare(workspace, model.corpus).binarized)


def word_similarity(workspace: Workspace, method: Method) -> Result:
    """Spearman × 100 with human scores of pairs of words, by data set, as Yu et al. (2022) compute it."""
    models, data = _opened_and_data(workspace, method.model)
    options = {"tokenizer": prepare(workspace, method.model.corpus).tokenizer(), "as_published": True}
    return _evaluate(workspace, method.model, "word_similarity", models, data, dataset_files(DATASETS), **options)


def neighbors(workspace: Workspace, method: Method, *, words: Sequence[str], groups: str = "types") -> Result:
    """The nearest tokens of words. At tiny, whose corpus lacks the paper's words, those of rare words of its own."""
    models, data = _opened_and_data(workspace, method.model)
    listed = None if workspace.scale == "tiny" else list(words)
    tokenizer = prepare(workspace, method.model.corpus).tokenizer()
    return _evaluate(
        workspace, method.model, "neighbors", models, data, words=listed, tokenizer=tokenizer, groups=groups
    )


def align_sim(workspace: Workspace, method: Method) -> Result:
    """AlignSim of a translation model, by frequency group."""
    from agg_fairseq.data.alignments import align_split

    models, data = _opened_and_data(workspace, method.model)
    links = workspace.output / f"{prepare(workspace, method.model.corpus).identity[:12]}.align"
    if not links.exists():
        say("aligning the words of the training split")
        align_split(data, links)
    return _evaluate(workspace, method.model, "align_sim", models, data, links)


def bleu(workspace: Workspace, method: Method, *, generate: Sequence[str] = TRANSLATION) -> Result:
    """BLEU of the test split, translated by fairseq-generate with these options."""
    model = method.model
    source, target = ("de", "en") if set(TO_ENGLISH) <= set(model.overrides) else ("en", "de")
    corpus, path = prepare(workspace, model.corpus), checkpoint(workspace, model).path
    log = workspace.folder(model) / f"generate{f'-{method.decoding}' if method.decoding else ''}.log"
    if not is_newer(log, path):
        say(f"translating the test split with {workspace.name(model)}")
        command = [
            "fairseq-generate", corpus.binarized, "--user-dir", PLUGIN, "-s", source, "-t",
            target, "--path", path, *generate, "--required-batch-size-multiple", "1",
        ]  # fmt: skip
        if method.decoding:
            command += ["--model-overrides", str({"f2_decoding": method.decoding})]
        partial_log, messages = log.with_name(f".{log.name}.partial"), log.with_suffix(".messages")
        with open(partial_log, "wb") as printed, open(messages, "wb") as said:
            words = [str(BIN / command[0]), *map(str, command[1:])]
            status = subprocess.run(words, stdout=printed, stderr=said, check=False).returncode
        if status:
            raise failed("fairseq-generate", status, messages)
        partial_log.replace(log)
    options = {"reference": corpus.folder / "reference" / f"test.{target}"}
    if corpus.manifest.get("tokenizer") == "moses":
        options["moses"] = target
    return _evaluate(workspace, model, "bleu", {model.name: log}, **options)


def texts(workspace: Workspace, method: Method, *, topk: int | None) -> Result:
    """The measures of a model's continuations of the test split, and of the human text in their place.

    They are drawn from the `topk` most probable tokens (None: greedy).
    """
    path, model = text_file(workspace, method, topk=topk), method.model
    data = prepare(workspace, model.corpus).binarized
    return _evaluate(workspace, model, "text_metrics", {model.name: path}, data)


def text_file(workspace: Workspace, method: Method, *, topk: int | None, max_texts: int | None = None) -> Path:
    """The file of a model's continuations of the test split, stored or new; `max_texts` None: all."""
    topk = None if method.greedy else topk
    name, options = f"top{topk}" if topk else "greedy", {"topk": topk, "max_texts": max_texts}
    if workspace.seed is not None:
        options["seed"] = workspace.seed
    if method.decoding:
        name += f"-{method.decoding}"
        decoupled = "sample-class" if topk else "greedy-class"
        options["f2_decoding"] = decoupled if method.decoding == "decoupled" else method.decoding
    name += f"-{max_texts}" if max_texts else ""
    models, data = _opened_and_data(workspace, method.model)
    model, file = method.model, f"{name}.jsonl"
    return _evaluate(workspace, model, "generate_texts", models[model.name], data, file=file, **options)


def _records(workspace: Workspace, method: Method, *, topk: int | None, count: int) -> list[dict[str, str]]:
    """The first continuations of the test split. They are chosen by their place alone, not by what is in them."""
    from agg_fairseq.evaluation.text_metrics import read_texts

    return read_texts(text_file(workspace, method, topk=topk, max_texts=count))[:count]


def samples(workspace: Workspace, method: Method, *, topk: int | None, count: int) -> list[dict[str, str]]:
    """The `prefix` and `continuation` of each of the first continuations, as people read them.

    Reference: Yu et al. (2022), Tables 5 and 15; Choi et al. (2020), Table 4 and the appendix.
    """
    read = reader(prepare(workspace, method.model.corpus).tokenizer())
    records = _records(workspace, method, topk=topk, count=count)
    return [{part: read(record[part]) for part in ("prefix", "continuation")} for record in records]


def distinct_tokens(workspace: Workspace, method: Method, *, number: int, topk: int | None, count: int) -> int:
    """The number of distinct tokens of one of the first continuations."""
    return len(set(_records(workspace, method, topk=topk, count=count)[number]["continuation"].split()))


def very_rare_percentage(workspace: Workspace, method: Method, *, number: int, topk: int | None, count: int) -> float:
    """The percentage of its tokens that are among the rarest of the training text, which together make up 10% of it."""
    from agg_fairseq.data.binarized import count_tokens, in_no_group, load_dictionary
    from agg_fairseq.metrics import frequency_mass_groups
    from agg_fairseq.metrics.groups import MASS_GROUPS

    data = prepare(workspace, method.model.corpus).binarized
    dictionary = load_dictionary(data)
    of_token = frequency_mass_groups(count_tokens(data, dictionary), excluded=in_no_group(dictionary)).of_token
    tokens = _records(workspace, method, topk=topk, count=count)[number]["continuation"].split()
    rarest = of_token[[dictionary.index(token) for token in tokens]] == MASS_GROUPS.index("very rare")
    return 100 * rarest.double().mean().item()


def reader(tokenizer: TokenizerOptions) -> Callable[[str], str]:
    """A function that joins tokens, separated by spaces, to text as people read it."""
    if tokenizer.kind == "sentencepiece":
        return lambda text: " ".join(text.replace(" ", "").replace("▁", " ").split())
    if tokenizer.kind != "gpt2":
        return str
    from tokenizers import ByteLevelBPETokenizer

    pieces = ByteLevelBPETokenizer.from_file(str(tokenizer.gpt2_encoder_json), str(tokenizer.gpt2_vocab_bpe))

    def read(text: str) -> str:
        runs = itertools.groupby(text.split(), key=str.isdecimal)  # special tokens, such as </s>, are no ids
        parts = (pieces.decode([*map(int, run)]) if ids else f" {' '.join(run)} " for ids, run in runs)
        return " ".join("".join(parts).split())

    return read


def sample_table(
    title: str, methods: list[Method], label: str, *, topk: int | None, count: int, note: str
) -> Experiment:
    """The table of `samples`, with `Uniq` or `VR (%)` of each text."""
    read = partial(distinct_tokens if label == "Uniq" else very_rare_percentage, topk=topk, count=count)
    columns = [
        Column(f"{label}, text {number + 1}" if count > 1 else label, partial(read, number=number))
        for number in range(count)
    ]
    return Experiment(title, methods, columns, samples=partial(samples, topk=topk, count=count), note=note)


GROUPS = {"Freq": "frequent", "Med": "medium", "Rare": "rare", "Total": "total"}
PPL, UNIQ, ISOTROPY = (
    [Column.of(f"{title} {label}", perplexity_as_published, measure, group) for label, group in GROUPS.items()]
    for title, measure in (("PPL", "perplexity"), ("Uniq", "unique_predictions"), ("I(W)", "isotropy"))
)
BLEU = [Column.of("BLEU", bleu, "bleu"), Column.of("sacreBLEU", bleu, "sacrebleu")]


def neighbor(
    workspace: Workspace, method: Method, *, words: Sequence[str], groups: str, number: int, rank: int
) -> Value:
    """A word (rank 0) or one of its nearest tokens; None where a small corpus has fewer rare words."""
    rows = list(neighbors(workspace, method, words=words, groups=groups).rows.values())
    if number > len(rows):
        return None
    row = rows[number - 1]
    if rank == 0:
        return row["word"]
    token = row["neighbors"][rank - 1]
    return token["readable"] + "†" * (token["group"] == "rare")


def neighbor_columns(words: Sequence[str], *, groups: str = "types") -> list[Column]:
    """Each word and its 5 nearest tokens, with † after those that are rare by `groups`."""
    read = partial(neighbor, words=words, groups=groups)
    return [
        Column(f"{number}.{rank}" if rank else f"word {number}", partial(read, number=number, rank=rank))
        for number in range(1, len(words) + 1)
        for rank in range(6)
    ]
