"""What the tests of the configurations share: composing one, and comparing it with what a paper gives."""

import re
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import torch
from fairseq import models
from fairseq.criterions import CRITERION_DATACLASS_REGISTRY
from fairseq.data import Dictionary
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from agg_fairseq.report.runs import TERMS
from scripts.training.configuration import composed, missing_keys, with_plugin
from tests.conftest import ROOT

GIVEN = {"task.data": ROOT / "tests", "checkpoint.save_dir": "/s", "checkpoint.finetune_from_model": ROOT / "README.md"}
"""For the options that have to be given; the first and last must exist."""
ALL_FILES = {
    folder: {path.stem for path in (ROOT / "configs" / folder).glob("*.yaml")} - {"shared"}
    for folder in ("wikitext103", "wmt14_en_de", "wikitext2")
}


@cache
def configured(folder, name, *overrides):
    """The whole configuration as scripts/train.sh composes and checks it: an option that does not exist is an error."""
    needed = missing_keys(as_written(folder, name))
    given = [f"{key}={GIVEN[key]}" for key in needed if key in GIVEN]
    return composed(ROOT / "configs" / folder / f"{name}.yaml", with_plugin([*given, *overrides]))


@cache
def as_written(folder, name, *overrides):
    """What stands in the files, with nothing that fairseq adds."""
    with initialize_config_dir(str(ROOT / "configs" / folder), version_base="1.1"):
        return compose(name, list(overrides))


def values(section, expected):
    """Those of the options that a table names, as a table says them."""
    return {key: plain(section[key]) for key in expected}


def plain(value):
    value = OmegaConf.to_container(value) if OmegaConf.is_config(value) else value
    return value if value is None or isinstance(value, (int, float, list)) else str(value)


def check_criterion(config, expected):
    """Each option as the table has it, and nothing else switched on."""
    name = expected["_name"]
    assert name in CRITERION_DATACLASS_REGISTRY, f"--criterion {name} is not registered"
    assert values(config.criterion, expected) == expected
    others = {key: config.criterion[key] for key in TERMS if key in config.criterion and key not in expected}
    assert not any(others.values())


def check_described(folder, name):
    """The README of the folder launches this file: its options exist, and its tokens are the configuration's."""
    readme = (ROOT / "configs" / folder / "README.md").read_text()
    assert f"bash scripts/train.sh configs/{folder}/NAME " in readme
    assert f"fairseq-hydra-train --config-dir configs/{folder} --config-name NAME " in readme
    assert "checkpoint.save_dir=runs/NAME" in readme and f"bash scripts/{folder}/prepare.sh" in readme
    assert "Hardware: one GPU" in readme
    row, *further = rows_of(readme, name)
    config = configured(folder, name)
    commands = "".join(readme.split("```")[1::2])
    given = re.findall(r"[ `]([a-z_]+\.[a-z0-9_]+)=", commands + "".join(further))
    for key in given:
        assert OmegaConf.select(config, key, throw_on_missing=True) is not None, key
    assert not set(missing_keys(as_written(folder, name))) - set(given)
    assert int(re.search(r"([\d,]+) per update", row)[1].replace(",", "")) == tokens_per_update(config)
    header = (ROOT / "configs" / folder / f"{name}.yaml").read_text().partition("\ndefaults:")[0]
    assert re.match(r"# (Yu|Choi|Gao) et al\. \(20\d\d\), ", header) and "\n# Paper: " in header


def rows_of(readme, name):
    """The first row of each table whose pattern fits the name."""
    found = []
    for table in re.findall(r"(?:^\|.*\n)+", readme, re.MULTILINE):
        for row in table.splitlines()[2:]:
            if any(fnmatch(name, pattern) for pattern in re.findall(r"`([^`]+)`", row.split("|")[1])):
                found.append(row)
                break
    return found


def tokens_per_update(config):
    """At most, on one GPU."""
    return config.dataset.max_tokens * config.optimization.update_freq[0]


def millions(config, task_class, vocabulary):
    """Parameters of the model, with a dictionary of so many entries."""
    dictionary = Dictionary()
    for index in range(vocabulary - len(dictionary)):
        dictionary.add_symbol(f"w{index}")
    task = task_class.__new__(task_class)
    for name in ("dictionary", "output_dictionary", "src_dict", "tgt_dict"):
        setattr(task, name, dictionary)
    with torch.device("meta"):
        model = models.build_model(config.model, task)
    return sum(parameter.numel() for parameter in model.parameters()) / 1e6


def sizes(folder):
    """Names of the size group."""
    return {path.stem for path in Path(ROOT, "configs", folder, "size").iterdir()}
