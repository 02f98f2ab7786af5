"""configs/: every file is composed at every size of its papers, and compared with what these give
or with `mle`."""

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
ADAM = {"_name": "adam", "weight_decay": 0.01, "adam_betas": "(0.9,0.98)", "adam_eps": 1e-8}
ADAM_L2 = ADAM | {"_name": "adam_l2", "weight_decay": 0.001, "adam_betas": "(0.9,0.999)"}
BY_TORCH = ADAM | {"adam_betas": "(0.9,0.999)"}  # PyTorch's defaults
VASWANI = ADAM | {"weight_decay": 0.0, "adam_eps": 1e-9}
SIX, TWELVE, BIG = (6, 512, 2048, 8, 0.1), (12, 512, 2048, 8, 0.1), (6, 1024, 4096, 16, 0.3)
SIZES = {
    # layers, hidden and projection dimension, heads, dropout; tokens per update; learning rate,
    # updates, clipping, warm-up; optimizer: what the papers say, and what size/*.yaml says is
    # inferred
    "wikitext103": {
        "agg": ((24, 1024, 4096, 16, 0.1), 32768, (7e-4, 50000, 0.0, 4000), ADAM),
        "agg-study": (SIX, 32768, (7e-4, 40000, 0.0, 4000), ADAM),
        "agps": (SIX, 32768, (5e-4, 50000, 0.0, 4000), BY_TORCH),
        "f2": (TWELVE, 8 * 1024, (1e-4, 200000, 0.25, 0), ADAM_L2),
        "f2-lyrics": (TWELVE, 16 * 512, (2e-4, 200000, 0.25, 0), ADAM_L2 | {"weight_decay": 0.0}),
    },
    "wmt14_en_de": {
        "agg-base": (SIX, 65536, (1e-3, 190000, 0.0, 4000), ADAM),  # Table 12
        "agg-big": (BIG, 65536, (1e-3, 190000, 0.0, 4000), ADAM),
        "agps-base": (SIX, 65536, (1e-3, 38000, 0.0, 4000), BY_TORCH),  # Tables 6 and 7
        "agps-big": (BIG, 65536, (1e-3, 114000, 0.0, 4000), BY_TORCH),
        # their Sec. 5
        "vaswani-base": (SIX, 25000, (512**-0.5 * 4000**-0.5, 100000, 0.0, 4000), VASWANI),
        "vaswani-big": (BIG, 25000, (1024**-0.5 * 4000**-0.5, 300000, 0.0, 4000), VASWANI),
    },
}
SMALL = {f"{size}-small" for folder in SIZES.values() for size in folder if "big" not in size}
SMALL -= {"f2-lyrics-small"}
OF_NO_PAPER = {"tiny", "small"}  # of which the latter is a part of the miniatures
COSREG = {"_name": "cosreg", "cosreg_gamma": 1.0}
AGG = {"_name": "agg", "agg_alpha": 0.03, "agg_gates": "both", "agg_window": 0}
FREEZE = {"_name": "freeze_rare", "freeze_parts": "all"}
UL = {"ul_alpha": 1.0}
CRITERIONS = {
    "wikitext103": {
        "mle": {"_name": "mle"},
        "agg": AGG,
        "ul": {"_name": "unlikelihood"} | UL,
        "freeze": FREEZE | {"freeze_fraction": 0.2, "freeze_until": 0},
        "freeze-until": FREEZE | {"freeze_fraction": 0.2, "freeze_until": 7000},
        "agps": {"_name": "agps", "agps_rare_rank": 25000, "agps_mu1": 500, "agps_mu2": 20, "agps_variant": "eq15"},
        "cosreg": COSREG,
        "f2": {"_name": "f2_softmax"},
        "face": {"_name": "face"},
        "ul-sequence": {
            "_name": "unlikelihood_sequence", "ul_sequence_rate": 0.5, "ul_ngram": 4, "ul_prefix_length": 50,
            "ul_completion_length": 100,
        } | UL,
    },
    "wmt14_en_de": {
        "mle": {"_name": "mle"},
        "cosreg": COSREG,
        "adv": {"_name": "mle", "adv_epsilon": 0.005},
        "agg": AGG | {"agg_alpha": 0.08},
        "agps": {"_name": "agps", "agps_rare_rank": 27000, "agps_mu1": 1500, "agps_mu2": 400, "agps_variant": "eq15"},
        "freeze": FREEZE | {"freeze_below": 1e-6, "freeze_until": 0},
        "freeze-until": FREEZE | {"freeze_below": 1e-6, "freeze_until": 8000},
    },
}  # fmt: skip
FOLDERS = sorted(SIZES)


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


def values(section, expected):
    """Options that a table names, as it says them."""
    found = {key: section[key] for key in expected}
    return {key: one if isinstance(one, int | float) else str(one) for key, one in found.items()}


def find_sizes(folder, name):
    """The sizes at which the README of the folder has a file, and those of no paper."""
    readme = (ROOT / "configs" / folder / "README.md").read_text()
    row = r"^\| (`[^|]+) \| (`[^|]+) \|.* = ([\d,]+) per update \|"
    found = []
    for sizes, names, tokens in re.findall(row, readme, re.MULTILINE):
        for size in re.findall(r"`([^`]+)`", sizes):
            assert SIZES[folder][size][1] == int(tokens.replace(",", "")), size
            found += [size] * (f"`{name}`" in names)
    assert found, f"{folder}/README.md does not say how to train {name}"
    return [*found, *SMALL.intersection(f"{size}-small" for size in found), "tiny"]


def test_every_file_is_checked():
    """Sizes of no paper are those of a paper but for what their files say."""
    others = set()
    for folder, sizes in SIZES.items():
        path = ROOT / "configs" / folder
        assert {file.stem for file in path.glob("*.yaml")} == {*CRITERIONS[folder], "shared"}
        for file in (path / "size").iterdir():
            if file.stem not in sizes:
                others.add(file.stem)
                begins = f"\ndefaults:\n  - {file.stem.removesuffix('-small')}\n  - small\n"
                assert begins in file.read_text() or file.stem in OF_NO_PAPER
    assert others == SMALL | OF_NO_PAPER
    for path in (ROOT / "configs").rglob("*.yaml"):  # whose log is in a folder that hydra makes
        hydra = OmegaConf.to_container(OmegaConf.load(path)).get("hydra", {})
        assert hydra.get("sweep") == hydra.get("run"), path


@pytest.mark.parametrize("folder", FOLDERS)
def test_sizes_of_the_papers(folder):
    for size, (dimensions, tokens, schedule, optimizer) in SIZES[folder].items():
        cfg = configured(folder, "mle", f"size={size}")
        model, optimization, scheduler = cfg.model, cfg.optimization, cfg.lr_scheduler
        for side in ("encoder", "decoder") if folder == "wmt14_en_de" else ("decoder",):
            names = ("layers", "embed_dim", "ffn_embed_dim", "attention_heads")
            found = [model[f"{side}_{name}"] for name in names]
            assert (*found, model.dropout) == dimensions, size
        assert cfg.dataset.max_tokens * optimization.update_freq[0] == tokens, size
        found = (optimization.lr[0], optimization.max_update, optimization.clip_norm)
        assert (*found, scheduler.warmup_updates) == pytest.approx(schedule, rel=1e-4), size
        assert scheduler._name == ("inverse_sqrt" if schedule[-1] else "fixed"), size
        assert values(cfg.optimizer, optimizer) == optimizer, size
        assert not cfg.common.cpu and cfg.dataset.required_batch_size_multiple == 1
        if folder == "wikitext103":
            # fairseq 0.9 forces it for every transformer_lm
            assert model.decoder_normalize_before
            assert model.decoder_input_dim == model.decoder_output_dim == dimensions[1]
            assert cfg.dataset.max_tokens % cfg.task.tokens_per_sample == 0
            assert model.share_decoder_input_output_embed == (not size.startswith("f2"))
        else:
            assert model.share_all_embeddings
            assert (cfg.task.source_lang, cfg.task.target_lang) == ("en", "de")
            # their Sec. 6.1
            assert cfg.checkpoint.keep_interval_updates == (20 if size == "vaswani-big" else 5)
            assert cfg.criterion.label_smoothing == 0.1


@pytest.mark.parametrize("folder", FOLDERS)
def test_miniatures_keep_the_regime_of_the_papers(folder):
    """Optimizer, schedule, dropout, smoothing and tying, and the share of the warm-up."""
    for size in SMALL & {f"{size}-small" for size in SIZES[folder]}:
        small = configured(folder, "mle", f"size={size}")
        paper = configured(folder, "mle", f"size={size.removesuffix('-small')}")
        for name in ("_name", "adam_betas", "adam_eps", "weight_decay"):
            assert small.optimizer.get(name) == paper.optimizer.get(name), (size, name)
        batches = {"update_freq": None}  # of an update, which agg reads
        assert dict(small.criterion) | batches == dict(paper.criterion) | batches
        for option in ("dropout", "attention_dropout", "share_decoder_input_output_embed"):
            assert small.model.get(option) == paper.model.get(option), (size, option)
        assert small.lr_scheduler._name == paper.lr_scheduler._name
        warmup = [
            cfg.lr_scheduler.warmup_updates / cfg.optimization.max_update for cfg in (small, paper)
        ]
        assert warmup[0] == pytest.approx(warmup[1], rel=0.05), size
        assert small.common.cpu and not small.common.fp16


@pytest.mark.slow
@pytest.mark.parametrize("folder", FOLDERS)
def test_criterions_of_the_papers(folder):
    """The criterion as its paper has it, which the sizes of no paper may adapt; all else is that of
    `mle`."""
    smoothing = {"label_smoothing": 0.1} if folder == "wmt14_en_de" else {}
    for name, expected in CRITERIONS[folder].items():
        is_tuned = name in ("face", "ul-sequence")
        needed = {"task.data", "checkpoint.save_dir"}
        needed |= {"checkpoint.finetune_from_model"} if is_tuned else set()
        assert set(missing_keys(written(folder, name))) == needed
        sizes = find_sizes(folder, name)
        assert configured(folder, name, f"size={sizes[0]}").criterion._name == expected["_name"]
        for size in sizes:
            cfg = written(folder, name, f"size={size}")
            plain, found = written(folder, "mle", f"size={size}"), dict(cfg.criterion)
            is_adapted = (ROOT / "configs" / folder / name / f"{size}.yaml").is_file()
            if is_adapted or name == "freeze-until":
                assert found.items() >= ({"_name": expected["_name"]} | smoothing).items()
            else:
                assert found == expected | smoothing, (name, size)
            same = ["optimizer", "task", "common"]
            if is_tuned:  # the best checkpoint is that of the last update
                assert cfg.dataset.validate_interval >= cfg.optimization.max_update
                assert cfg.checkpoint.save_interval_updates > cfg.optimization.max_update
            else:
                same += ["dataset", "optimization", "lr_scheduler"]
            if is_tuned and size == "f2":  # Choi et al. (2020), Table 7
                assert (cfg.optimization.lr[0], cfg.optimization.max_update) == (1e-5, 1500)
            if name == "f2":
                found = (cfg.model._name, cfg.model.get("f2_assignment", "mefmax"))
                assert found == ("transformer_lm_f2", "mefmax"), size
            for section in same + ["model"] * (name != "f2"):
                assert cfg[section] == plain[section], (name, size, section)


AWD_LSTM = {
    "model._name": "awd_lstm_lm", "model.decoder_layers": 3, "model.decoder_hidden_size": 1150,
    "model.decoder_embed_dim": 400, "model.dropout_input": 0.65, "model.dropout_hidden": 0.2,
    "model.dropout_output": 0.4, "model.dropout_embedding": 0.1, "model.dropout_weight": 0.5,
    "model.activation_penalty": 2.0, "model.temporal_penalty": 1.0, "task.tokens_per_sample": 70,
    "optimizer._name": "nt_asgd", "optimizer.weight_decay": 1.2e-6, "lr_scheduler._name": "fixed",
    "optimization.clip_norm": 0.25, "optimization.max_epoch": 750, "optimization.lr": [30.0],
    "dataset.max_tokens": 80 * 70, "dataset.max_tokens_valid": 700,
}  # fmt: skip
"""Gao et al. (2019), Sec. 6.1.1; Merity et al. (2018), Sec. 5."""


@pytest.mark.parametrize("ending", ["", "-finetune"])
@pytest.mark.parametrize("criterion", ["mle", "cosreg"])
def test_wikitext2(criterion, ending):
    name, tuned = f"cosreg-{criterion}{ending}", ending != ""
    paper = AWD_LSTM | {"criterion._name": criterion, "optimizer.asgd_patience": 0 if tuned else 5}
    paper["checkpoint.patience"] = 5 if tuned else -1
    tiny = {"criterion._name": criterion, "optimizer.asgd_patience": 0 if tuned else 2}
    tiny |= {"common.cpu": True, "optimization.max_update": 200 if tuned else 600}
    for expected, *size in ((paper,), (tiny, "size=tiny")):
        found = flat_options(configured("wikitext2", name, *size))
        assert {key: found[key] for key in expected} == expected


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
PARAMETERS = {  # millions, with the vocabulary of the paper
    "agg": 347.6, "agg-study": 41.6, "agps": 156.0, "f2": 69.0, "agg-base": 64.9, "agg-big": 218.0, "agps-base": 64.9,
    "agps-big": 218.0, "vaswani-base": 64.9, "vaswani-big": 218.0,
}  # fmt: skip
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
        _, tokens, (_, updates, *_), _ = SIZES[script.partition("/")[0]][size]
        model = min(MEASURED, key=lambda of: abs(math.log(of / PARAMETERS[size])))
        hours = []
        for seconds in MEASURED[model]:
            size_hours = tokens * updates * seconds * PARAMETERS[size] / model / 3600
            hours.append(f"{size_hours:.1f}" if size_hours < 5.95 else f"{size_hours:.0f}")
        assert " to ".join(hours) in takes, size
        gigabytes += checkpoints * PARAMETERS[size] * 10 / 1000
    said = re.search(r"; (\d+) GB", takes)
    assert said is None if gigabytes < 20 else abs(int(said[1]) / gigabytes - 1) < 0.02, gigabytes
