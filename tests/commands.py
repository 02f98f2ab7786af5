"""The commands of `agg-fairseq`, called in the process of the tests, and small checkpoints to
measure."""

import contextlib
import io
import json

import pytest
import torch
from fairseq.trainer import Trainer

from agg_fairseq.cli.main import main
from agg_fairseq.result import Result
from tests.conftest import preprocessed, table_cells, words, write_lines
from tests.small_trainings import LM, batches, build

LANGUAGE_MODEL = {"_name": "language_modeling"}
TRANSLATION = {"_name": "translation", "source_lang": "en", "target_lang": "de"}


def call_main(arguments):
    """Exit status, output and errors of a command."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main(words(arguments))
        except SystemExit as stop:  # argparse
            status = stop.code
    return status, out.getvalue(), err.getvalue()


def run(*arguments):
    """What a command printed; it has to succeed."""
    status, printed, error = call_main(arguments)
    assert status == 0, error
    return printed


def refused(*arguments):
    """The one-line error of a command, which has to fail."""
    status, _, error = call_main(arguments)
    assert status == 2 and error.count("\n") == 1, error
    assert error.startswith("agg-fairseq ") and ": error: " in error, error
    return error


def one_line(call, *arguments, **options):
    """The line with which a call ends a training, with status 2."""
    with contextlib.redirect_stderr(io.StringIO()) as error, pytest.raises(SystemExit) as stop:
        call(*arguments, **options)
    error = error.getvalue()
    assert stop.value.code == 2 and error.count("\n") == 1, error
    return error


def read_result(path):
    """What a command wrote to --json."""
    return Result.read(path)


def table(printed):
    """The cells of a printed table: the header's, and those of the rows."""
    header, *rows = table_cells(printed)
    return header, rows


def cells(printed):
    """The same by row, and in it by column."""
    header, rows = table(printed)
    return {row[0]: dict(zip(header[1:], row[1:], strict=True)) for row in rows}


def binarized(folder, lines, *options):
    """Writes and binarizes a text, which is each of the splits."""
    splits = dict.fromkeys(("train", "valid", "test"), lines)
    return preprocessed(folder, splits, "--only-source", *options)


def write_texts(path, continuations, references):
    """Texts as `generate-lm` writes them."""
    lines = []
    for continued, reference in zip(continuations, references, strict=True):
        text = {"prefix": "w0", "continuation": continued, "reference": reference}
        lines.append(json.dumps(text))
    return write_lines(path, lines)


def save_checkpoint(path, weight, task):
    """What `fairseq-train` saves of a model, as far as its embedding is concerned."""
    path.parent.mkdir(exist_ok=True)
    parameters = {"decoder.output_projection.weight": weight, "decoder.embed_tokens.weight": weight}
    torch.save({"model": parameters, "cfg": {"task": task}}, path)
    return path


def save_model(path, data, *options, base=LM, updates=0, std=None):
    """A checkpoint as fairseq-train saves it after a few updates, or with parameters drawn with
    this deviation."""
    parts = build(data, *options, base=base)
    for parameter in parts.model.parameters() if std else ():
        torch.nn.init.normal_(parameter, std=std)
    trainer = Trainer(*parts)
    for batch in batches(parts)[:updates] if updates else ():
        trainer.train_step([batch])
    trainer.consolidate_optimizer()
    path.parent.mkdir(exist_ok=True)
    trainer.save_checkpoint(str(path), {"train_iterator": {"epoch": 1}})
    return path


def changed(path, target, change):
    state = torch.load(path, weights_only=True)
    change(state)
    torch.save(state, target)
    return target


def diverge(state):
    state["model"]["decoder.output_projection.weight"][3, 0] = float("nan")
