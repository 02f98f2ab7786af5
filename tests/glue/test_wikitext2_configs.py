"""configs/wikitext2: both files are composed at both sizes and compared with what the paper, and AWD-LSTM's, give."""

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
CRITERIONS = {"cosreg-mle": {"_name": "mle"}, "cosreg-cosreg": {"_name": "cosreg", "cosreg_gamma": 1.0}}
MODEL = {  # Gao et al. (2019), Sec. 6.1.1
    "_name": "lstm_lm",
    "decoder_layers": 3,
    "decoder_hidden_size": 1150,
    "decoder_embed_dim": 400,
    "decoder_out_embed_dim": 400,
    "share_decoder_input_output_embed": True,
    "decoder_dropout_in": 0.65,
}


def test_every_file_is_checked():
    assert ALL_FILES[FOLDER] == set(CRITERIONS) and sizes(FOLDER) == {"paper", "tiny"}


@pytest.mark.parametrize("name", CRITERIONS)
def test_paper_size(name):
    cfg = configured(FOLDER, name)
    check_criterion(cfg, CRITERIONS[name] | {"label_smoothing": 0.0})
    assert values(cfg.model, MODEL) == MODEL
    assert cfg.task.tokens_per_sample == 70 and tokens_per_update(cfg) == 80 * 70
    optimizer = cfg.optimizer
    assert (optimizer._name, optimizer.lr[0], optimizer.momentum, optimizer.weight_decay) == ("sgd", 30, 0, 1.2e-6)
    assert (cfg.optimization.clip_norm, cfg.optimization.max_epoch) == (0.25, 750)
    assert cfg.lr_scheduler._name == "reduce_lr_on_plateau" and cfg.lr_scheduler.lr_patience == 5


@pytest.mark.parametrize("name", CRITERIONS)
def test_tiny_size(name):
    cfg = configured(FOLDER, name, "size=tiny")
    check_criterion(cfg, CRITERIONS[name])
    assert cfg.common.cpu and cfg.optimizer._name == "adam" and cfg.optimization.max_update == 600
    assert cfg.model.share_decoder_input_output_embed and cfg.model._name == "lstm_lm"


@pytest.mark.parametrize("name", CRITERIONS)
def test_paths_must_be_given_and_the_readme_launches_the_file(name):
    assert missing_keys(as_written(FOLDER, name)) == ["checkpoint.save_dir", "common.user_dir", "task.data"]
    check_described(FOLDER, name)


def test_number_of_parameters():
    """What size/paper.yaml says, with the words of WikiText-2 and fairseq's three other symbols."""
    assert round(millions(configured(FOLDER, "cosreg-mle"), LanguageModelingTask, 33281)) == 42
