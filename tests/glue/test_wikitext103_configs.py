"""configs/wikitext103: every file is composed at its three sizes and compared with what its paper gives."""

import pytest
from fairseq.tasks.language_modeling import LanguageModelingTask

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

FOLDER = "wikitext103"
MLE = {"_name": "mle"}
FREEZE = {"_name": "freeze_rare", "freeze_fraction": 0.2, "freeze_until": 0}
AGG = {"_name": "agg", "agg_alpha": 0.03, "agg_gates": "both", "agg_window": 0, "agg_static_after_epoch": 0}
UL = {"ul_alpha": 1.0}
TABLE_8_OF_AGPS = {"agps_rare_rank": 25000, "agps_mu1": 500, "agps_mu2": 20}
SEQUENCE = {"ul_sequence_rate": 0.5, "ul_ngram": 4, "ul_prefix_length": 50, "ul_completion_length": 100}
CRITERIONS = {
    "agg-study-mle": MLE,
    "agg-study-freeze": FREEZE | {"freeze_parts": "all"},
    "agg-study-freeze-b": FREEZE | {"freeze_parts": "b"},
    "agg-study-freeze-c": FREEZE | {"freeze_parts": "c"},
    "agg-study-freeze-bc": FREEZE | {"freeze_parts": "bc"},
    "agg-study-freeze-until": FREEZE | {"freeze_parts": "all", "freeze_until": 10000},
    "agg-mle": MLE,
    "agg-agg": AGG,
    "agg-no-g1": AGG | {"agg_gates": "g2"},
    "agg-no-g2": AGG | {"agg_gates": "g1"},
    "agg-static": AGG | {"agg_static_after_epoch": 1},
    "agg-alpha": AGG | {"agg_alpha": 0.01},
    "agg-ul": {"_name": "unlikelihood"} | UL,
    "agg-ul-agg": AGG | UL,
    "agps-mle": MLE,
    "agps-cosreg": {"_name": "cosreg", "cosreg_gamma": 1.0},
    "agps-agps": {"_name": "agps", "agps_variant": "eq15"} | TABLE_8_OF_AGPS,
    "f2-mle": MLE,
    "f2-face": {"_name": "face"},
    "f2-ul-token": {"_name": "unlikelihood"} | UL,
    "f2-ul-token-seq": {"_name": "unlikelihood_sequence"} | UL | SEQUENCE,
    "f2-f2": {"_name": "f2_softmax"},
    "f2-equal-frequency": {"_name": "f2_softmax"},
    "f2-equal-token": {"_name": "f2_softmax"},
    "f2-transfer": {"_name": "f2_softmax"},
}
LAYERS = {  # of the factorized files
    "f2-f2": ("mefmax", 0),
    "f2-equal-frequency": ("equal-frequency", 8),
    "f2-equal-token": ("equal-token", 8),
    "f2-transfer": ("mefmax", 0),
}
FINE_TUNED = ("f2-face", "f2-ul-token-seq")
STARTS_FROM_A_MODEL = (*FINE_TUNED, "f2-transfer")
PAPERS = {
    # layers, hidden and projection dimension, heads, dropout; tokens per update; learning rate, updates, weight decay,
    # clipping, betas, epsilon; what the papers say, and what size/*.yaml says is ours
    "agg-study": ((6, 512, 2048, 8, 0.1), 32768, (7e-4, 40000, 0.01, 0.0, "(0.9,0.98)", 1e-8)),
    "agg": ((24, 1024, 4096, 16, 0.1), 32768, (7e-4, 50000, 0.01, 0.0, "(0.9,0.98)", 1e-8)),
    "agps": ((6, 512, 2048, 8, 0.1), 32768, (5e-4, 50000, 0.01, 0.0, "(0.9,0.999)", 1e-8)),
    "f2": ((12, 512, 2048, 8, 0.1), 8 * 1024, (1e-4, 200000, 0.001, 0.25, "(0.9,0.999)", 1e-8)),
}
SCHEDULES = {"agg-study": ("inverse_sqrt", 4000), "agg": ("inverse_sqrt", 4000), "f2": ("fixed", 0)}
PARAMETERS = [("agg-study-mle", 44256, 42), ("agg-mle", 44256, 348), ("f2-mle", 30000, 69)]


def paper_of(name):
    return next(size for size in PAPERS if name.startswith(f"{size}-"))


def test_every_file_is_checked():
    assert ALL_FILES[FOLDER] == set(CRITERIONS)
    assert sizes(FOLDER) == {*PAPERS, "small", "tiny"}


@pytest.mark.grid(3)
@pytest.mark.parametrize("name", CRITERIONS)
def test_paper_size(name):
    dimensions, tokens, optimization = PAPERS[paper_of(name)]
    cfg = configured(FOLDER, name)
    model, optimizer = cfg.model, cfg.optimizer
    assert model._name == ("transformer_lm_f2" if name in LAYERS else "transformer_lm")
    assert {model.decoder_embed_dim, model.decoder_input_dim, model.decoder_output_dim} == {dimensions[1]}
    found = (model.decoder_layers, model.decoder_embed_dim, model.decoder_ffn_embed_dim)
    assert (*found, model.decoder_attention_heads, model.dropout) == dimensions
    assert tokens_per_update(cfg) == tokens and cfg.dataset.max_tokens % cfg.task.tokens_per_sample == 0
    if name in FINE_TUNED:  # Choi et al. (2020), Table 7
        optimization = (1e-5, 1500, *optimization[2:])
    assert list(cfg.optimization.lr) == [optimization[0]] and cfg.optimization.max_update == optimization[1]
    assert (
        optimizer._name == ("adam_l2" if name.startswith("f2-") else "adam")
        and optimizer.weight_decay == optimization[2]
    )
    assert (cfg.optimization.clip_norm, optimizer.adam_betas, optimizer.adam_eps) == optimization[3:]
    schedule = (cfg.lr_scheduler._name, cfg.lr_scheduler.warmup_updates)
    assert schedule == SCHEDULES.get(paper_of(name), schedule)
    assert not cfg.common.cpu
    assert model.decoder_normalize_before  # fairseq 0.9 forces it for every transformer_lm
    check_criterion(cfg, CRITERIONS[name])
    assert cfg.criterion.label_smoothing == 0


@pytest.mark.grid(1)
@pytest.mark.parametrize("name", LAYERS)
def test_factorized_layer(name):
    for size in ("f2", "small", "tiny"):
        model = configured(FOLDER, name, f"size={size}").model
        assert (str(model.f2_assignment), model.f2_classes) == LAYERS[name]


def test_sequences_of_choi_et_al():
    """Tables 6 and 7: sequence length 1024, batch size 8, no dropout in the attention."""
    cfg = configured(FOLDER, "f2-mle")
    assert (cfg.task.tokens_per_sample, cfg.dataset.max_tokens) == (1024, 8 * 1024)
    assert cfg.model.attention_dropout == 0 and not cfg.model.share_decoder_input_output_embed


@pytest.mark.grid(3)
@pytest.mark.parametrize("name", CRITERIONS)
@pytest.mark.parametrize("size", ["small", "tiny"])
def test_other_sizes(name, size):
    """The same criterion, but for what depends on the size of the corpus; and one model and optimizer for all."""
    cfg, plain = configured(FOLDER, name, f"size={size}"), configured(FOLDER, "agg-mle", f"size={size}")
    adapted = {
        ("tiny", "agg"): {"agg_alpha": 0.03, "agg_rare_fraction": 0.05},
        ("tiny", "agps"): {"agps_rare_rank": 750, "agps_mu1": 200, "agps_mu2": 20},
        ("tiny", "agg-study-freeze-until"): {"freeze_until": 150},
        ("small", "agg-study-freeze-until"): {"freeze_until": 2500},
    }
    expected = CRITERIONS[name]
    if name != "agg-alpha":  # whose alpha is the user's
        expected = expected | adapted.get((size, expected["_name"]), {}) | adapted.get((size, name), {})
    check_criterion(cfg, expected)
    options = ("decoder_layers", "decoder_embed_dim", "decoder_ffn_embed_dim", "decoder_attention_heads", "dropout")
    assert values(cfg.model, options) == values(plain.model, options) and cfg.model.decoder_normalize_before
    assert cfg.lr_scheduler._name == "inverse_sqrt" and cfg.optimizer._name == "adam"
    assert (cfg.common.cpu, cfg.common.fp16) == ((True, False) if size == "tiny" else (False, True))
    if name in FINE_TUNED:
        assert cfg.optimization.lr[0] == pytest.approx(plain.optimization.lr[0] / 10)
        assert cfg.optimization.max_update == {"small": 1500, "tiny": 100}[size]
    else:
        assert cfg.optimization == plain.optimization and cfg.optimizer == plain.optimizer


def test_tiny_is_the_demo():
    """The model and the optimizer of configs/demo."""
    tiny, demo = configured(FOLDER, "agg-mle", "size=tiny"), configured("demo", "mle")
    assert tiny.model == demo.model and tiny.optimizer == demo.optimizer and tiny.lr_scheduler == demo.lr_scheduler
    assert tiny.optimization == demo.optimization and tiny.dataset == demo.dataset


def test_tokens_of_small():
    cfg = configured(FOLDER, "agg-mle", "size=small")
    assert (tokens_per_update(cfg), cfg.task.tokens_per_sample, cfg.optimization.max_update) == (32768, 512, 10000)


@pytest.mark.grid(2)
@pytest.mark.parametrize("name", CRITERIONS)
def test_paths_must_be_given_and_the_readme_launches_the_file(name):
    start = {"checkpoint.finetune_from_model"} if name in STARTS_FROM_A_MODEL else set()
    assert (
        set(missing_keys(as_written(FOLDER, name)))
        == {
            "common.user_dir",
            "task.data",
            "checkpoint.save_dir",
        }
        | start
    )
    check_described(FOLDER, name)


@pytest.mark.parametrize(("name", "vocabulary", "expected"), PARAMETERS)
def test_number_of_parameters(name, vocabulary, expected):
    """42 and 69 are the papers' numbers; 348 is what Table 12's dimensions make of GPT-2 medium, where it says 358."""
    assert round(millions(configured(FOLDER, name), LanguageModelingTask, vocabulary)) == expected


def test_all_checkpoints_of_a_curve_are_kept():
    for size, every in (("agg-study", 2000), ("small", 500), ("tiny", 50)):
        checkpoint = configured(FOLDER, "agg-study-freeze-until", f"size={size}").checkpoint
        assert (checkpoint.save_interval_updates, checkpoint.keep_interval_updates) == (every, -1)
