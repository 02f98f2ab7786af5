"""scripts/experiments: what the tables and figures are made of, compared with the papers themselves."""

import re

import pytest

from agg_fairseq.columns import column_titles
from scripts.experiments import f2
from scripts.experiments.entries import EXPERIMENTS
from tests.conftest import ROOT

PAPERS = {"agg": "agg-acl2022", "agps": "agps-2021", "f2": "f2-softmax-emnlp2020", "cosreg": "cosreg-iclr2019"}


def test_each_has_something_to_show_of_configurations_that_exist_and_each_folder_has_one_model():
    seen = {}
    for key, experiment in EXPERIMENTS.items():
        assert experiment.columns or experiment.pictures, key
        assert all(len(method.numbers) <= len(experiment.columns) for method in experiment.methods), key
        assert len({method.label for method in experiment.methods}) == len(experiment.methods), key
        for model in experiment.models():
            assert (ROOT / "configs" / f"{model.config}.yaml").is_file(), model.config
            size = ROOT / "configs" / model.config.partition("/")[0] / "size" / f"{model.size}.yaml"
            assert not model.size or size.is_file(), size
            assert seen.setdefault(model.name, model) == model, model.name


IN_ORDER = (
    "agg-1", "agg-2", "agg-3", "agg-4", "agg-8", "agg-9", "agg-10", "agg-11", "agps-1", "agps-3", "agps-4",
    "f2-1", "f2-2", "f2-3", "f2-8", "cosreg-1",
)  # fmt: skip
"""The copies of the other tables have their cells in another order."""


@pytest.mark.parametrize("paper", PAPERS)
def test_the_numbers_are_those_that_the_paper_prints(paper, shared_data):
    """Of each table; and each row of it, where the copy of the paper has rows."""
    path = shared_data.parent / "papers" / f"{PAPERS[paper]}.txt"
    if not path.is_file():
        pytest.skip(f"no text of the paper at {path}")
    text = re.sub(r"</?(?:b|td|tr|th|br)>", " ", path.read_text(encoding="utf-8"))
    printed = [cell for cell in re.findall(r"[^\s|<>*]+", text) if cell not in ("-", "—")]
    for key, experiment in EXPERIMENTS.items():
        if not key.startswith(f"{paper}-"):
            continue
        for method in experiment.methods:
            row = [text for text in method.numbers if text is not None]
            missing = {text for text in row if not {text.rstrip("*"), f"'{text}'", f'"{text}"'} & set(printed)}
            assert not missing, key
            if key in IN_ORDER:
                places = range(len(printed))
                assert any(printed[place : place + len(row)] == row for place in places), (key, method.label)


def test_pairwise_results_of_choi_et_al():
    """Its Table 2 gives its Table 9 (a), with trigrams."""
    columns = ("PPL", "KLD", "MSJ-1", "MSJ-2", "MSJ-3", "SB-1", "SB-2", "SB-3", "Dist-1", "Dist-2", "Dist-3", "Rep (%)")

    def measured(label, numbers):
        cells = (f2.PERPLEXITIES.get(label, "0"), *numbers.replace("-", "0").split())
        values = dict(zip((*columns, "Uniq"), (float(text.rstrip("k")) for text in cells), strict=True))
        titles = column_titles({measure: ["3"] if key else [""] for measure, key in f2.DUEL})
        return {measure: values[title] for (measure, _), title in titles.items()} | {"perplexity": values["PPL"]}

    models = {label: measured(label, numbers) for label, numbers in f2.GREEDY.items()}
    human = measured("Human", f2.HUMAN_TEXT)
    won = {(label, other): text for label in f2.WON for other, text in zip(f2.WON, f2.WON[label].split(), strict=True)}
    printed = {pair: text for pair, text in won.items() if text != "-"}
    for (first, second), paper in printed.items():
        found = f2.wins(models[first], models[second], human), f2.wins(models[second], models[first], human)
        assert f"{found[0]}-{found[1]}" == paper, (first, second)
    assert len(printed) == 10
