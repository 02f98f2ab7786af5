"""Damaged configurations of scripts/train.sh are refused in one line."""

import pytest

from agg_fairseq.errors import UserError
from scripts.training import train

pytestmark = pytest.mark.slow

CONFIG = """defaults: [_self_]
common: {{seed: 3, cpu: true}}
task: {{_name: language_modeling, data: {data}, tokens_per_sample: 16}}
model: {{_name: transformer_lm, decoder_layers: 1}}
criterion: {{_name: agg, agg_alpha: 0.1}}
dataset: {{max_tokens: 64}}
optimizer: {{_name: adam, adam_betas: "(0.9, 0.98)"}}
lr_scheduler: {{_name: fixed}}
optimization: {{max_update: 3, lr: [0.01], update_freq: [2]}}
checkpoint: {{save_dir: runs}}
"""
BAD = {
    "a list for a path": ("save_dir: runs", "finetune_from_model: [-1]"),
    "infinity for a model": ("model: {_name: transformer_lm, decoder_layers: 1}", "model: 1e999"),
    "a text for the data set": ("dataset: {max_tokens: 64}", "dataset: many"),
    "bytes that are not UTF-8": ("runs", "\udcff"),
    "2,000 brackets": ("runs}", f"runs}}\nx: {'[' * 2000}{']' * 2000}"),
    "no mapping": (None, "[1, 2]\n"),
    "nothing": (None, ""),
}


@pytest.fixture
def path(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "own.yaml").write_text(CONFIG.format(data=tmp_path / "data"))
    return tmp_path / "own.yaml"


@pytest.mark.parametrize("name", BAD)
def test_a_bad_configuration_is_one_line(name, path):
    old, new = BAD[name]
    path.write_bytes((path.read_text().replace(old, new) if old else new).encode("utf-8", "surrogateescape"))
    with pytest.raises(UserError):
        train.main([str(path), "--dry-run"])
