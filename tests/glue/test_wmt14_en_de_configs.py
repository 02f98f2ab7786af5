"""configs/wmt14_en_de: every file is composed at its three sizes and compared with what its paper gives."""

import pytest
from fairseq.tasks.translation import TranslationTask

from tests.configs import (
    ALL_FILES,
    as_written,
    check_criterion,
    check_described,
    configured,
    millions,
    missing_keys,
    sizes,
    tokens_per_update,
    values,
)

FOLDER = "wmt14_en_de"
MLE = {"_name": "mle"}
COSREG = {"_name": "cosreg", "cosreg_gamma": 1.0}
AGG = {"_name": "agg", "agg_alpha": 0.08, "agg_gates": "both", "agg_window": 0}
AGPS = {"_name": "agps", "agps_rare_rank": 27000, "agps_mu1": 1500, "agps_mu2": 400, "agps_variant": "eq15"}
FREEZE = {"_name": "freeze_rare", "freeze_parts": "all", "freeze_below": 1e-6}  # Yu et al. (2021), Sec. 2.1
CRITERIONS = {
    **{f"{paper}-{size}-mle": MLE for paper in ("agg", "agps", "cosreg") for size in ("base", "big")},
    **{f"{paper}-{size}-cosreg": COSREG for paper in ("agg", "agps", "cosreg") for size in ("base", "big")},
    **{f"agg-{size}-agg": AGG for size in ("base", "big")},
    **{f"agg-{size}-adv": {"_name": "mle", "adv_epsilon": 0.005} for size in ("base", "big")},
    **{f"agps-{size}-agps": AGPS for size in ("base", "big")},
    "agps-base-freeze": FREEZE | {"freeze_until": 0},
    "agps-base-freeze-until": FREEZE | {"freeze_until": 8000},
    "cosreg-de-en-base-mle": MLE,
    "cosreg-de-en-base-cosreg": COSREG,
}
DIMENSIONS = {"base": (6, 512, 2048, 8, 0.1), "big": (6, 1024, 4096, 16, 0.3)}  # as Vaswani et al. (2017), Table 3
OPTIMIZATION = {
    # tokens per update; learning rate, its warm-up, updates; weight decay, Adam's betas and epsilon
    "agg-base": (65536, (1e-3, 4000, 190000), (0.01, "(0.9,0.98)", 1e-8)),  # Table 12
    "agg-big": (65536, (1e-3, 4000, 190000), (0.01, "(0.9,0.98)", 1e-8)),
    # Tables 6 and 7; 8 batches per update: inferred; warm-up, updates: ours
    "agps-base": (65536, (1e-3, 4000, 38000), (0.01, "(0.9,0.999)", 1e-8)),
    "agps-big": (65536, (1e-3, 4000, 114000), (0.01, "(0.9,0.999)", 1e-8)),
    "cosreg-base": (25000, (512**-0.5 * 4000**-0.5, 4000, 100000), (0.0, "(0.9,0.98)", 1e-9)),  # Vaswani et al., Sec. 5
    "cosreg-big": (25000, (1024**-0.5 * 4000**-0.5, 4000, 300000), (0.0, "(0.9,0.98)", 1e-9)),
}
AVERAGED = {"cosreg-big": 20}  # Vaswani et al., Sec. 6.1; 5 elsewhere
ADAPTED = {
    ("small", "agg"): {"agg_alpha": 0.04},
    ("tiny", "agg"): {"agg_alpha": 0.03, "agg_rare_fraction": 0.3},
    ("tiny", "agps"): {"agps_rare_rank": 4000, "agps_mu1": 50, "agps_mu2": 15},
    ("small", "agps-base-freeze-until"): {"freeze_until": 4000},
    ("tiny", "agps-base-freeze-until"): {"freeze_until": 100},
}


def paper_of(name):
    paper, size, *_ = name.replace("de-en-", "").split("-")
    return f"{paper}-{size}"


def test_every_file_is_checked():
    assert ALL_FILES[FOLDER] == set(CRITERIONS)
    of_papers = {paper.replace("cosreg", "vaswani") for paper in OPTIMIZATION}
    assert sizes(FOLDER) == {*of_papers, "small", "tiny"}


@pytest.mark.grid(3)
@pytest.mark.parametrize("name", CRITERIONS)
def test_paper_size(name):
    layers, hidden, projection, heads, dropout = DIMENSIONS[paper_of(name).split("-")[1]]
    tokens, (rate, warmup, updates), adam = OPTIMIZATION[paper_of(name)]
    cfg = configured(FOLDER, name)
    assert cfg.model._name == "transformer" and cfg.model.share_all_embeddings
    for side in ("encoder", "decoder"):
        found = [
            cfg.model[f"{side}_{option}"] for option in ("layers", "embed_dim", "ffn_embed_dim", "attention_heads")
        ]
        assert found == [layers, hidden, projection, heads]
    assert cfg.model.dropout == dropout
    assert tokens_per_update(cfg) == tokens
    assert cfg.optimization.lr[0] == pytest.approx(rate, rel=1e-4) and cfg.optimization.max_update == updates
    assert cfg.lr_scheduler._name == "inverse_sqrt" and cfg.lr_scheduler.warmup_updates == warmup
    optimizer = cfg.optimizer
    assert optimizer._name == "adam"
    assert (optimizer.weight_decay, optimizer.adam_betas, optimizer.adam_eps) == adam
    assert not cfg.common.cpu and cfg.checkpoint.keep_interval_updates == AVERAGED.get(paper_of(name), 5)
    check_criterion(cfg, CRITERIONS[name] | {"label_smoothing": 0.1})
    languages = ("de", "en") if "de-en" in name else ("en", "de")
    assert (cfg.task.source_lang, cfg.task.target_lang) == languages


@pytest.mark.grid(3)
@pytest.mark.parametrize("name", CRITERIONS)
@pytest.mark.parametrize("size", ["small", "tiny"])
def test_other_sizes(name, size):
    """The same criterion, but for what depends on the tokens per update and the corpus; one model and optimizer."""
    cfg = configured(FOLDER, name, f"size={size}")
    expected = CRITERIONS[name]
    expected = expected | ADAPTED.get((size, expected["_name"]), {}) | ADAPTED.get((size, name), {})
    check_criterion(cfg, expected | {"label_smoothing": 0.1})
    layers, hidden, rate, updates, tokens = {
        "small": (6, 512, 7e-4, 20000, 32768),
        "tiny": (3, 128, 3e-3, 200, 4096),
    }[size]
    assert (cfg.model.encoder_layers, cfg.model.decoder_layers) == (layers, layers)
    assert (cfg.model.encoder_embed_dim, cfg.model.decoder_embed_dim) == (hidden, hidden)
    assert (cfg.optimization.lr[0], cfg.optimization.max_update) == (rate, updates) and tokens_per_update(cfg) == tokens
    assert values(cfg.optimizer, ("_name", "adam_betas")) == {"_name": "adam", "adam_betas": "(0.9,0.98)"}
    assert (cfg.common.cpu, cfg.common.fp16) == ((True, False) if size == "tiny" else (False, True))
    assert cfg.checkpoint.keep_interval_updates == 5
    assert cfg == configured(FOLDER, name.replace("-big-", "-base-"), f"size={size}")


@pytest.mark.grid(3)
@pytest.mark.parametrize("name", CRITERIONS)
def test_paths_must_be_given_and_the_readme_launches_the_file(name):
    assert missing_keys(as_written(FOLDER, name)) == ["checkpoint.save_dir", "common.user_dir", "task.data"]
    check_described(FOLDER, name)


@pytest.mark.parametrize(("name", "expected"), [("agg-base-mle", 65), ("agg-big-mle", 218)])
def test_number_of_parameters(name, expected):
    """Table 12."""
    assert round(millions(configured(FOLDER, name), TranslationTask, 40624)) == expected
