"""configs/ablation: every file is composed at both sizes and compared with what the paper gives."""

import pytest
import torch
import yaml
from fairseq import models
from fairseq.criterions import CRITERION_DATACLASS_REGISTRY
from fairseq.data import Dictionary
from fairseq.dataclass.configs import FairseqConfig
from fairseq.dataclass.initialize import add_defaults
from fairseq.tasks.language_modeling import LanguageModelingTask
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

import agg_fairseq.criterions  # noqa: F401 — registers
from tests.conftest import ROOT

FOLDER = ROOT / "configs" / "ablation"
FREEZE = {"_name": "freeze_rare", "freeze_fraction": 0.2, "freeze_until": 0}
AGG = {"_name": "agg", "agg_alpha": 0.03, "agg_gates": "both", "agg_window": 0, "agg_static_after_epoch": 0}
EMPIRICAL, LANGUAGE = "paper-empirical-study", "paper-language-modeling"
ABLATIONS = {
    "table1-mle": (EMPIRICAL, {"_name": "mle"}),
    "table1-freeze": (EMPIRICAL, FREEZE | {"freeze_parts": "all"}),
    "table2-freeze-b": (EMPIRICAL, FREEZE | {"freeze_parts": "b"}),
    "table2-freeze-c": (EMPIRICAL, FREEZE | {"freeze_parts": "c"}),
    "table2-freeze-bc": (EMPIRICAL, FREEZE | {"freeze_parts": "bc"}),
    "figure2-freeze-until": (EMPIRICAL, FREEZE | {"freeze_parts": "all", "freeze_until": 10000}),
    "table8-mle": (LANGUAGE, {"_name": "mle"}),
    "table8-agg": (LANGUAGE, AGG),
    "table8-agg-no-g1": (LANGUAGE, AGG | {"agg_gates": "g2"}),
    "table8-agg-no-g2": (LANGUAGE, AGG | {"agg_gates": "g1"}),
    "table9-agg-static": (LANGUAGE, AGG | {"agg_static_after_epoch": 1}),
    "figure5-alpha": (LANGUAGE, AGG | {"agg_alpha": 0.01}),
}
TABLE_12 = {  # layers, hidden and projection dimension, heads, updates; the other rows are the same in both columns
    EMPIRICAL: (6, 512, 2048, 8, 40000),
    LANGUAGE: (24, 1024, 4096, 16, 50000),
}


def composed(name, *overrides):
    """The whole configuration as fairseq-hydra-train sees it; an unknown key is an error."""
    needed = ("common.user_dir=/u", "task.data=/d", "checkpoint.save_dir=/s")
    with initialize_config_dir(str(FOLDER), version_base="1.1"):
        cfg = OmegaConf.merge(OmegaConf.structured(FairseqConfig), compose(name, [*needed, *overrides]))
    add_defaults(cfg)
    return cfg


def check_criterion(cfg, expected):
    """Each option has the value that the table says; an option that no dataclass knows is an error."""
    name = expected["_name"]
    assert name in CRITERION_DATACLASS_REGISTRY, f"--criterion {name} is not registered"
    assert {key: _plain(cfg.criterion[key]) for key in expected} == expected
    others = {key: _plain(cfg.criterion[key]) for key in ("ul_alpha", "cosreg_gamma") if key in cfg.criterion}
    assert not any(others.values()) and cfg.criterion.label_smoothing == 0


def _plain(value):
    return value if isinstance(value, (int, float)) else str(value)


def test_every_file_is_checked():
    assert {path.stem for path in FOLDER.glob("*.yaml")} == set(ABLATIONS) | {"shared"}
    assert {path.stem for path in (FOLDER / "size").iterdir()} == {EMPIRICAL, LANGUAGE, "tiny"}


@pytest.mark.parametrize("name", ABLATIONS)
def test_paper_size_is_that_of_table_12(name):
    size, criterion = ABLATIONS[name]
    layers, hidden, projection, heads, updates = TABLE_12[size]
    cfg = composed(name)
    model = cfg.model
    assert model._name == "transformer_lm" and model.share_decoder_input_output_embed
    assert (model.decoder_layers, model.decoder_attention_heads, model.dropout) == (layers, heads, 0.1)
    assert {model.decoder_embed_dim, model.decoder_input_dim, model.decoder_output_dim} == {hidden}
    assert model.decoder_ffn_embed_dim == projection
    assert list(cfg.optimization.lr) == [7e-4] and cfg.optimization.max_update == updates
    assert cfg.lr_scheduler._name == "inverse_sqrt" and cfg.lr_scheduler.warmup_updates == 4000
    assert cfg.optimizer._name == "adam" and cfg.optimizer.weight_decay == 0.01
    assert cfg.dataset.max_tokens * cfg.optimization.update_freq[0] == 32768
    assert cfg.dataset.max_tokens % cfg.task.tokens_per_sample == 0  # so that batches are full
    assert not cfg.common.cpu and not cfg.common.fp16
    check_criterion(cfg, criterion)


@pytest.mark.parametrize("name", ABLATIONS)
def test_tiny_size_differs_only_in_size(name):
    paper, tiny = composed(name), composed(name, "size=tiny")
    assert (tiny.model.decoder_layers, tiny.model.decoder_embed_dim, tiny.task.tokens_per_sample) == (1, 32, 64)
    assert tiny.common.cpu and tiny.optimization.max_update < 20
    check_criterion(tiny, ABLATIONS[name][1])
    for key in ("_name", "share_decoder_input_output_embed", "dropout"):
        assert tiny.model[key] == paper.model[key]
    for section in ("criterion", "optimizer", "checkpoint"):
        same = [key for key in paper[section] if key not in ("lr", "update_freq")]
        assert {key: tiny[section][key] for key in same} == {key: paper[section][key] for key in same}


@pytest.mark.parametrize("name", ABLATIONS)
def test_paths_must_be_given_and_the_header_launches_the_file(name):
    with initialize_config_dir(str(FOLDER), version_base="1.1"):
        cfg = compose(name)
    assert OmegaConf.missing_keys(cfg) == {"common.user_dir", "task.data", "checkpoint.save_dir"}
    text = (FOLDER / f"{name}.yaml").read_text()
    assert f"--config-name {name} \\" in text and f'checkpoint.save_dir="$PWD/runs/{name}' in text
    assert set(yaml.safe_load(text)) <= {"defaults", "criterion", "checkpoint"}  # all else is said once, elsewhere


@pytest.mark.parametrize(("name", "millions"), [("table1-mle", 42), ("table8-mle", 349)])
def test_number_of_parameters(name, millions):
    """42 is Table 12's number; 349 is what its dimensions make of GPT-2 medium, where it says 358."""
    cfg = composed(name)
    dictionary = Dictionary()
    for index in range(44256 - len(dictionary)):
        dictionary.add_symbol(f"w{index}")
    with torch.device("meta"):
        model = models.build_model(cfg.model, LanguageModelingTask(cfg.task, dictionary))
    assert round(sum(parameter.numel() for parameter in model.parameters()) / 1e6) == millions


def test_a_sweep_is_an_override():
    for alpha in (0.01, 0.02, 0.03, 0.04, 0.05):
        assert composed("figure5-alpha", f"criterion.agg_alpha={alpha}").criterion.agg_alpha == alpha
    assert "for alpha in 0.01 0.02 0.03 0.04 0.05;" in (FOLDER / "figure5-alpha.yaml").read_text()
    assert composed("figure2-freeze-until", "criterion.freeze_until=500").criterion.freeze_until == 500
