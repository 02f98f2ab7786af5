"""configs/: every file is composed at every size of its folder; a criterion's file differs from that of
`mle` in the criterion alone, and a miniature from its paper's size in what shrinks."""

import math
import re
from functools import cache
from types import SimpleNamespace

import pytest
import torch
from fairseq import models
from fairseq.data import Dictionary
from omegaconf import OmegaConf

from scripts.train import composed, flat_options, full_config
from tests.conftest import ROOT

GIVEN = {
    "task.data": ROOT / "tests",
    "checkpoint.save_dir": "/s",
    "checkpoint.finetune_from_model": ROOT / "README.md",
}
"""For the options that have to be given; the first and last must exist."""
FOLDERS = ("wikitext103", "wmt14_en_de")
TUNED = ("face", "ul-sequence")
"""They fine-tune another model."""


def sizes(folder):
    return {path.stem for path in (ROOT / "configs" / folder / "size").iterdir()}


@cache
def written(folder, name, *overrides):
    """What stands in the files, with nothing that fairseq adds."""
    return composed(f"configs/{folder}/{name}", overrides)[2]


@cache
def configured(folder, name, *overrides):
    """The whole configuration as scripts/train.sh composes and checks it."""
    given = [f"{key}={GIVEN[key]}" for key in missing_keys(written(folder, name)) if key in GIVEN]
    return full_config(written(folder, name, *given, *overrides))


def missing_keys(config):
    return [key for key, value in flat_options(config).items() if value == "???"]


def tokens_per_update(cfg):
    return cfg.dataset.max_tokens * cfg.optimization.update_freq[0]


def find_sizes(folder, name):
    """The sizes at which the README of the folder has a file, their miniatures, and that of no paper."""
    readme = (ROOT / "configs" / folder / "README.md").read_text()
    row = r"^\| (`[^|]+) \| (`[^|]+) \|.* = ([\d,]+) per update \|"
    found = []
    for listed, files, tokens in re.findall(row, readme, re.MULTILINE):
        for size in re.findall(r"`([^`]+)`", listed):
            cfg = configured(folder, "mle", f"size={size}")
            assert tokens_per_update(cfg) == int(tokens.replace(",", "")), size
            found += [size] * (f"`{name}`" in files)
    assert found, f"{folder}/README.md does not say how to train {name}"
    return [*found, *sizes(folder).intersection(f"{size}-small" for size in found), "tiny"]


def test_sizes_of_no_paper_are_those_of_a_paper_but_for_what_their_files_say():
    for path in (ROOT / "configs").rglob("*.yaml"):
        if path.parent.name == "size":
            begins = f"\ndefaults:\n  - {path.stem.removesuffix('-small')}\n  - small\n"
            assert (begins in path.read_text()) == path.stem.endswith("-small")
        # whose log is in a folder that hydra makes
        hydra = OmegaConf.to_container(OmegaConf.load(path)).get("hydra", {})
        assert hydra.get("sweep") == hydra.get("run"), path


@pytest.mark.parametrize("folder", FOLDERS)
def test_miniatures_keep_the_regime_of_the_papers(folder):
    for size in [size for size in sizes(folder) if size.endswith("-small")]:
        small = configured(folder, "mle", f"size={size}")
        paper = configured(folder, "mle", f"size={size.removesuffix('-small')}")
        for name in ("_name", "adam_betas", "adam_eps", "weight_decay"):
            assert small.optimizer.get(name) == paper.optimizer.get(name), (size, name)
        batches = {"update_freq": None}  # of an update, which agg reads
        assert dict(small.criterion) | batches == dict(paper.criterion) | batches
        for option in ("dropout", "attention_dropout", "share_decoder_input_output_embed"):
            assert small.model.get(option) == paper.model.get(option), (size, option)
        assert small.lr_scheduler._name == paper.lr_scheduler._name
        warmups = [cfg.lr_scheduler.warmup_updates for cfg in (small, paper)]
        updates = [cfg.optimization.max_update for cfg in (small, paper)]
        assert warmups[0] / updates[0] == pytest.approx(warmups[1] / updates[1], rel=0.05), size
        assert small.common.cpu and not small.common.fp16


@pytest.mark.slow
@pytest.mark.parametrize("folder", FOLDERS)
def test_all_but_the_criterion_is_that_of_mle(folder):
    files = {path.stem for path in (ROOT / "configs" / folder).glob("*.yaml")}
    for name in files - {"shared"}:
        is_tuned, needed = name in TUNED, {"task.data", "checkpoint.save_dir"}
        needed |= {"checkpoint.finetune_from_model"} if is_tuned else set()
        assert set(missing_keys(written(folder, name))) == needed
        found = find_sizes(folder, name)
        assert configured(folder, name, f"size={found[0]}").criterion._name
        for size in (found[0], "tiny"):
            cfg, plain = (written(folder, one, f"size={size}") for one in (name, "mle"))
            smoothing = plain.criterion.get("label_smoothing")
            assert cfg.criterion.get("label_smoothing") == smoothing
            same = ["optimizer", "task", "common"] + ["model"] * (name != "f2")
            if is_tuned:  # the best checkpoint is that of the last update
                assert cfg.dataset.validate_interval >= cfg.optimization.max_update
                assert cfg.checkpoint.save_interval_updates > cfg.optimization.max_update
            else:
                same += ["dataset", "optimization", "lr_scheduler"]
            for section in same:
                assert cfg[section] == plain[section], (name, size, section)


@pytest.mark.slow
def test_awd_lstm_has_the_parameters_of_its_authors():
    words, cfg = Dictionary(), configured("wikitext2", "cosreg-mle").model
    words.symbols += map(str, range(33_274))
    task = SimpleNamespace(source_dictionary=words, target_dictionary=words)
    with torch.device("meta"):
        model = models.ARCH_MODEL_REGISTRY[cfg._name].build_model(cfg, task)
    assert sum(parameter.numel() for parameter in model.parameters()) == 33_556_078


MEASURED = {41.6: (20e-3 / 8192, 30e-3 / 8192), 347.6: (54e-3 / 4096, 63e-3 / 4096)}
"""Seconds per token of an update on an NVIDIA H200 in fp16, from and to, by millions of parameters."""
PARAMETERS = {"agg": 347.6, "study": 41.6, "agps": 156.0, "f2": 69.0, "base": 64.9, "big": 218.0}
"""Millions, with the vocabulary of the paper, by the end of the name of a size."""
CHECKPOINTS = {
    # by size, of all rows: the best, the last and those of keep_interval_updates; an average is 0.2
    # of one
    "wikitext103/agg-table-3": {"agg": 2 * 3},
    "wikitext103/agg-tables-1-2": {"agg-study": 5 * 3 + (35 + 2) + 3 * (20 + 2)},
    "wikitext103/agg-tables-4-8-9": {"agg": 12 * 3},
    "wikitext103/agps-table-4": {"agps": 3 * 3},
    "wikitext103/f2-tables-1-2": {"f2": 5 * 3},
    "wikitext103/f2-tables-3-8": {"f2": 13 * 3},
    "wmt14_en_de/agg-table-7": {"agg-base": 4 * 7.2, "agg-big": 4 * 7.2},
    "wmt14_en_de/agps-tables-1-3": {"agps-base": 5 * 7.2 + (4 + 2) + (24 + 2), "agps-big": 3 * 7.2},
    "wmt14_en_de/cosreg-table-2": {"vaswani-base": 4 * 7.2, "vaswani-big": 2 * 22.2},
}


@pytest.mark.parametrize("script", CHECKPOINTS)
def test_hours_and_disk_of_the_headers(script):
    """In proportion to the parameters of the nearer of two models that were measured; a checkpoint
    has 10 bytes of each, 2 in half precision and Adam's two moments."""
    takes = re.search("takes (.*)", (ROOT / "scripts" / f"{script}.sh").read_text())[1]
    gigabytes = 0.0
    for size, checkpoints in CHECKPOINTS[script].items():
        cfg = configured(script.partition("/")[0], "mle", f"size={size}")
        trained = tokens_per_update(cfg) * cfg.optimization.max_update
        parameters = PARAMETERS[size.rpartition("-")[2]]
        model = min(MEASURED, key=lambda of: abs(math.log(of / parameters)))
        hours = []
        for seconds in MEASURED[model]:
            size_hours = trained * seconds * parameters / model / 3600
            hours.append(f"{size_hours:.1f}" if size_hours < 5.95 else f"{size_hours:.0f}")
        assert " to ".join(hours) in takes, size
        gigabytes += checkpoints * parameters * 10 / 1000
    said = re.search(r"; (\d+) GB", takes)
    assert said is None if gigabytes < 20 else abs(int(said[1]) / gigabytes - 1) < 0.02, gigabytes
