"""Damaged configurations of scripts/train.sh: composed as YAML says, or refused in one line."""

import sys

import pytest
import yaml
from hypothesis import given

from agg_fairseq.errors import UserError
from scripts.training import train
from scripts.training.configuration import composed, with_plugin
from tests.hostile import damaged, fuzzing, refusal

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


@pytest.fixture
def place(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "own.yaml").write_text(CONFIG.format(data=tmp_path / "data"))
    return tmp_path


def dry_run(path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["train.sh", str(path), "--dry-run"])
    train.main()


BAD = {
    "a list for a path": lambda text: text.replace("save_dir: runs", "finetune_from_model: [-1]"),
    "infinity for a model": lambda text: text.replace(
        "model: {_name: transformer_lm, decoder_layers: 1}", "model: 1e999"
    ),
    "a text for the data set": lambda text: text.replace("dataset: {max_tokens: 64}", "dataset: many"),
    "bytes that are not UTF-8": lambda text: text.replace("runs", "\udcff"),
    "2,000 levels": lambda text: text + "".join(f"{' ' * level}a:\n" for level in range(2000)),
    "2,000 brackets": lambda text: f"{text}x: {'[' * 2000}{']' * 2000}\n",
    "a list": lambda text: "[1, 2]\n",
    "nothing": lambda text: "",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BAD)
def test_a_bad_configuration_is_one_line(name, place, monkeypatch):
    path = place / "own.yaml"
    path.write_bytes(BAD[name](path.read_text()).encode("utf-8", "surrogateescape"))
    with pytest.raises(UserError):
        dry_run(path, monkeypatch)


@pytest.mark.slow
def test_many_damaged_configurations(place, monkeypatch, capsys):
    """What is accepted says what YAML says, in the numbers that decide on the tokens of an update."""
    path = place / "own.yaml"

    def check(content):
        path.write_bytes(content)
        said, _ = refusal(dry_run, path, monkeypatch)
        if said is None:
            found, written = composed(path, with_plugin([])), yaml.safe_load(content.decode())
            for section in ("dataset", "optimization", "common", "criterion"):
                for key, value in written.get(section, {}).items():
                    assert found[section][key] == value, (section, key)
        capsys.readouterr()

    check(path.read_bytes())
    fuzzing(150)(given(damaged(path.read_bytes()))(check))()  # each takes a fifth of a second
