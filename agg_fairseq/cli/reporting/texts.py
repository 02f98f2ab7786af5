"""The sections of a report that are about generated texts and translations."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from .. import align_sim, bleu, generate_lm, text_metrics
from ..generate_log import read_translations
from ..invoking import options
from ..naming import HUMAN
from . import page
from .context import Context, NotShown

SAMPLES = 3


def generated(context: Context) -> str:
    """What the models write: measures of the texts, how rare their words are, and samples side by side."""
    if not context.is_language_model:
        raise NotShown("these are no language models")
    files = [_texts(context, number) for number in range(len(context.runs))]
    paths = [str(path) for path in files]
    values = {"files": paths, "name": context.names, "data": context.arguments.data}
    measured = context.measured("text-metrics", text_metrics, paths, **values)
    shares = context.picture("token-shares", inputs=[str(context.kept.as_json(measured, "text-metrics-values"))])
    caption = "Share of tokens by their part of the training text: the top 40%, next 30%, next 20% and last 10%."
    return page.measured_table(measured) + page.picture(shares, caption) + _samples(context.names, files)


def _texts(context: Context, number: int) -> Path:
    """The continuations of a run, written where they are not there yet."""
    run = context.runs[number]
    values = {"data": context.arguments.data, "path": str(run.checkpoint)}
    values |= context.given("gen_subset", "prefix_length", "length", "max_texts", "topk", "seed", "device")

    def write(path: Path) -> None:
        generate_lm.generate(options(generate_lm.add_arguments, **values, output=str(path)))

    return context.kept.file(f"texts-{number + 1}.jsonl", context.key(values, [str(run.checkpoint)]), write)


def _samples(names: Sequence[str], files: Sequence[Path]) -> str:
    """Some prefixes, evenly spread over the split, and how each model went on."""
    texts = [[json.loads(line) for line in path.read_bytes().splitlines()] for path in files]
    body = ""
    for index in _spread(len(texts[0])):
        boxes = [(name, of_run[index]["continuation"]) for name, of_run in zip(names, texts, strict=True)]
        boxes.append((HUMAN, texts[0][index]["reference"]))
        titled = [(f"{name}, {len(set(text.split()))} different tokens", _joined(text)) for name, text in boxes]
        body += page.sample(f"{_joined(texts[0][index]['prefix'])} …", titled)
    return body


def _spread(count: int) -> list[int]:
    """A few of so many texts, evenly spread over them."""
    return sorted({(2 * part + 1) * count // (2 * SAMPLES) for part in range(SAMPLES)})


def _joined(text: str) -> str:
    """Tokens as text: the sub-words of sentencepiece, subword-nmt and GPT-2's strings are put together."""
    if "▁" in text:
        return text.replace(" ", "").replace("▁", " ").strip()
    if "Ġ" in text:
        return text.replace(" ", "").replace("Ġ", " ").strip()
    return text.replace("@@ ", "")


def translations(context: Context) -> str:
    """BLEU of logs of fairseq-generate, and samples side by side."""
    logs = context.arguments.translations
    if logs is None:
        raise NotShown("no --translations, the outputs of fairseq-generate, were given")
    given = context.given("reference", "moses")
    files = [*logs, *context.given("reference").values()]
    measured = context.measured("bleu", bleu, files, logs=logs, name=context.names, **given)
    read = [read_translations(log) for log in logs]
    body = page.measured_table(measured)
    for index in _spread(len(read[0].references)):
        boxes = [(name, of_run.texts[index]) for name, of_run in zip(context.names, read, strict=True)]
        source = read[0].sources[index] if read[0].sources else f"sentence {index + 1}"
        body += page.sample(source, [*boxes, ("reference", read[0].references[index])])
    return body


def alignment(context: Context) -> str:
    """Do the embeddings of words that translate each other lie together?"""
    alignments = context.arguments.alignments
    if alignments is None:
        raise NotShown("no --alignments were given")
    values = {"inputs": context.checkpoints, "name": context.names, "data": context.arguments.data}
    values |= context.given("groups", "alignments")
    return page.measured_table(context.measured("align-sim", align_sim, [alignments], **values))
