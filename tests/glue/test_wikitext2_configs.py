"""configs/wikitext2: the files are composed at both sizes and compared with what the paper, and AWD-LSTM's, give."""

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

FOLDER = "wikitext2"
CRITERIONS = {
    "cosreg-mle": {"_name": "mle"},
    "cosreg-mle-finetune": {"_name": "mle"},
    "cosreg-cosreg": {"_name": "cosreg", "cosreg_gamma": 1.0},
    "cosreg-cosreg-finetune": {"_name": "cosreg", "cosreg_gamma": 1.0},
}
MODEL = {  # Gao et al. (2019), Sec. 6.1.1; Merity et al. (2018), Sec. 5
    "_name": "awd_lstm_lm",
    "decoder_layers": 3,
    "decoder_hidden_size": 1150,
    "decoder_embed_dim": 400,
    "dropout_input": 0.65,
    "dropout_hidden": 0.2,
    "dropout_output": 0.4,
    "dropout_embedding": 0.1,
    "dropout_weight": 0.5,
    "activation_penalty": 2.0,
    "temporal_penalty": 1.0,
}


def test_every_file_is_checked():
    assert ALL_FILES[FOLDER] == set(CRITERIONS) and sizes(FOLDER) == {"paper", "tiny"}


@pytest.mark.parametrize("name", CRITERIONS)
def test_paper_size(name):
    cfg = configured(FOLDER, name)
    check_criterion(cfg, CRITERIONS[name] | {"label_smoothing": 0.0})
    assert values(cfg.model, MODEL) == MODEL
    assert cfg.task.tokens_per_sample == 70 and tokens_per_update(cfg) == 80 * 70
    tuned = name.endswith("-finetune")
    expected = {"_name": "nt_asgd", "weight_decay": 1.2e-6, "asgd_patience": 0 if tuned else 5}
    assert values(cfg.optimizer, expected) == expected and cfg.lr_scheduler._name == "fixed"
    assert (cfg.optimization.clip_norm, cfg.optimization.max_epoch, cfg.optimization.lr) == (0.25, 750, [30])
    assert cfg.checkpoint.patience == (5 if tuned else -1)
    assert cfg.dataset.max_tokens_valid == 10 * 70


@pytest.mark.parametrize("name", CRITERIONS)
def test_tiny_size(name):
    cfg = configured(FOLDER, name, "size=tiny")
    check_criterion(cfg, CRITERIONS[name])
    tuned = name.endswith("-finetune")
    assert cfg.common.cpu and cfg.optimization.max_update == (200 if tuned else 600)
    assert cfg.model._name == "awd_lstm_lm" and cfg.optimizer.asgd_patience == (0 if tuned else 2)


@pytest.mark.parametrize("name", CRITERIONS)
def test_paths_must_be_given_and_the_readme_launches_the_file(name):
    start = ["checkpoint.finetune_from_model"] if name.endswith("-finetune") else []
    assert missing_keys(as_written(FOLDER, name)) == [*start, "checkpoint.save_dir", "common.user_dir", "task.data"]
    check_described(FOLDER, name)


def test_number_of_parameters():
    """What size/paper.yaml says, with the words of WikiText-2 and fairseq's three other symbols."""
    assert round(millions(configured(FOLDER, "cosreg-mle"), LanguageModelingTask, 33281)) == 34
