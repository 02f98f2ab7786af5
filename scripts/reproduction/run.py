"""Runs an experiment: what is missing, then its table and pictures."""

from __future__ import annotations

import textwrap

from agg_fairseq.files import write_json, write_whole

from .bench import Bench
from .experiment import Experiment, Measure, Method, Value
from .measures import NotRun
from .rendering import NOT_RUN, render
from .training import check, is_trained, train

WIDTH = 120
"""Of the lines under a table."""


def run(bench: Bench, key: str, experiment: Experiment) -> None:
    """Trains what is missing, measures, prints the table and draws the pictures.

    Raises:
        UserError: something failed, which can be gone on with after it is mended.
    """
    if bench.train and experiment.check is not None:
        experiment.check()
    for model in () if bench.dry else experiment.models():
        check(bench, model)
    if bench.train:
        for model in experiment.models():
            train(bench, model)
    if bench.dry:
        return
    text = "\n\n".join(filter(None, [experiment.title, _table(bench, key, experiment), *_notes(bench, experiment)]))
    print(text)
    write_whole(bench.output / "tables" / f"{key}.md", lambda path: path.write_text(text + "\n", encoding="utf-8"))
    for line in _pictures(bench, key, experiment):
        print(line)


def _table(bench: Bench, key: str, experiment: Experiment) -> str:
    if not experiment.measures:
        return ""
    cells = [[_cell(bench, method, measure) for measure in experiment.measures] for method in experiment.methods]
    rows = [
        {"method": method.label, **dict(zip([measure.label for measure in experiment.measures], row, strict=True))}
        for method, row in zip(experiment.methods, cells, strict=True)
    ]
    write_json(
        bench.output / "tables" / f"{key}.json",
        {"title": experiment.title, "scale": bench.scale, "signatures": list(bench.signatures), "rows": rows},
    )
    return render(experiment.methods, experiment.measures, cells)


def _cell(bench: Bench, method: Method, measure: Measure) -> Value:
    get = measure.human if method.human else measure.get
    if method.model is None or get is None:
        return None
    try:
        return get(bench, method.model)
    except NotRun:
        return NOT_RUN


def _notes(bench: Bench, experiment: Experiment) -> list[str]:
    scale = f"Scale: {bench.scale}." + ("" if bench.scale == "paper" else " The paper's numbers are of its own scale.")
    return [textwrap.fill(f"{scale} {experiment.note}", WIDTH), "\n".join(bench.signatures)]


def _pictures(bench: Bench, key: str, experiment: Experiment) -> list[str]:
    """The files that were drawn, and which models are missing in them."""
    if not experiment.pictures:
        return []
    models = [method.model for method in experiment.methods if method.model is not None]
    trained = [model for model in models if is_trained(bench, model)]
    lines = [f"{model.name}: {NOT_RUN}" for model in models if model not in trained]
    for picture in experiment.pictures if trained else ():
        path = bench.output / "tables" / f"{key}-{picture.name}.png"
        bench.measure("plot", *picture.draw(bench, trained), "--output", path)
        lines.append(str(path))
    return lines
