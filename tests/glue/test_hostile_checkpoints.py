"""Checkpoints that would run code, or hold anything but a model: refused, without running it."""

import contextlib
import io
import os
import pickle
from argparse import Namespace

import numpy as np
import pytest
import torch
from fairseq.logging import metrics

from agg_fairseq.checkpoints.fairseq_checkpoint import Checkpoint
from agg_fairseq.cli.main import main
from agg_fairseq.errors import UserError
from tests.conftest import SMALL_LM, call
from tests.hostile import AMOUNTS, fuzz

WEIGHT, COUNTS = "decoder.output_projection.weight", "decoder.output_projection.counts"
SIZES = ("layers", "embed_dim", "input_dim", "output_dim", "ffn_embed_dim", "attention_heads")
OPTIONS = {
    "task": {"_name": "language_modeling", "tokens_per_sample": 16},
    "model": {"_name": "transformer_lm", **{f"decoder_{size}": 1 for size in SIZES}},
}


class Evil:
    """Whoever unpickles it runs a command."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch '{self.marker}'",)


def checkpoint(**parts):
    return {"model": {WEIGHT: torch.randn(12, 4)}, "cfg": OPTIONS, **parts}


def saved(state, **options):
    file = io.BytesIO()
    torch.save(state, file, **options)
    return file.getvalue()


RUNNING_CODE = {
    "zip": lambda evil: saved(checkpoint(cfg=evil)),
    "legacy": lambda evil: saved(checkpoint(cfg=evil), _use_new_zipfile_serialization=False),
    "pickle": lambda evil: pickle.dumps(checkpoint(model={}, cfg=evil)),
    "numpy": lambda evil: saved(checkpoint(extra_state={"array": np.array([evil], dtype=object)})),
    "namespace": lambda evil: saved(checkpoint(cfg=None, args=Namespace(criterion=evil))),
    "optimizer": lambda evil: saved(checkpoint(last_optimizer_state=[evil])),
    "key": lambda evil: saved(checkpoint(model={"weight": evil})),
}

NO_MODELS = {
    "no model": {"model": None},
    "a cube": {"model": {WEIGHT: torch.randn(12, 4, 2)}},
    "integers": {"model": {WEIGHT: torch.ones(12, 4, dtype=torch.int64)}},
    "counts below zero": {"model": {WEIGHT: torch.randn(12, 4), COUNTS: torch.full((12,), -7.0)}},
    "no options": {"cfg": None},
    "nothing for a task": {"cfg": {"task": None, "model": None, "criterion": None}},
    "an unknown task": {"cfg": {**OPTIONS, "task": {"_name": "../../etc"}}},
}


@pytest.mark.parametrize("kind", RUNNING_CODE)
def test_nothing_runs_what_a_checkpoint_says(kind, tmp_path):
    path = tmp_path / "checkpoint_best.pt"
    path.write_bytes(RUNNING_CODE[kind](Evil(tmp_path / "marker")))
    with pytest.raises(
        UserError, match=f"{path}: refused, since it is damaged, or loading it would run code"
    ):
        Checkpoint(path)
    assert not (tmp_path / "marker").exists()


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--restore-file", "--finetune-from-model"])
def test_no_training_starts_from_what_is_no_checkpoint(option, lm_data, tmp_path):
    path = tmp_path / "hostile.pt"
    contents = {kind: make(Evil(tmp_path / "marker")) for kind, make in RUNNING_CODE.items()}
    contents["no model"] = saved(checkpoint(**NO_MODELS["no model"]))
    for kind, content in contents.items():
        path.write_bytes(content)
        options = ("--criterion", "agg", "--no-save", option, path, "--save-dir", tmp_path / "run")
        try:
            status = call("train", lm_data, *SMALL_LM, *options)[0]
        except Exception:  # fairseq's own, such as torch's error of weights_only=True
            status = 2
        assert status == 2 and not (tmp_path / "marker").exists(), kind


@pytest.mark.parametrize("kind", NO_MODELS)
def test_what_is_no_model_is_refused_in_one_line(kind, lm_data, tmp_path, capsys):
    """By the command that builds the model, as by the one that reads its matrix."""
    path = tmp_path / "checkpoint_best.pt"
    path.write_bytes(saved(checkpoint(**NO_MODELS[kind])))
    statuses = [
        main([command, str(path), "--data", str(lm_data)]) for command in ("eval-lm", "isotropy")
    ]
    assert statuses == [2, 2] and capsys.readouterr().err.count("\n") == 2


def test_one_flipped_bit_of_the_numbers_is_seen(tmp_path):
    """torch does not look: it would load other weights."""
    path = tmp_path / "checkpoint.pt"
    content = bytearray(saved(checkpoint(model={WEIGHT: torch.ones(1000, 4)})))
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert not torch.equal(torch.load(path)["model"][WEIGHT], torch.ones(1000, 4)), (
        "else this test shows nothing"
    )
    with pytest.raises(UserError, match="refused, since it is damaged"):
        Checkpoint(path)


@AMOUNTS
def test_a_damaged_checkpoint_has_the_weights_that_were_saved_or_is_refused(files, tmp_path):
    state, path = checkpoint(), tmp_path / "checkpoint.pt"

    def check(content):
        path.write_bytes(content)
        with contextlib.suppress(UserError):
            assert torch.equal(Checkpoint(path).parameters[WEIGHT], state["model"][WEIGHT])

    fuzz(check, saved(state), files)


def test_what_meters_of_fairseq_save_is_opened_and_arrays_of_objects_are_not(tmp_path):
    """--eval-bleu leaves arrays of numpy in its meters, other tasks numbers; a resume opens the
    same file by torch."""
    with metrics.aggregate("valid") as meters:
        metrics.log_scalar("_bleu_counts", np.array([3, 2, 1, 0]))
        metrics.log_scalar("wer", np.float32(0.5), np.int64(2))
    extra = {
        "metrics": {"valid": meters.state_dict()},
        "val_loss": np.float64(1.5),
        "name": np.array(["a"]),
    }
    path = tmp_path / "bleu.pt"
    path.write_bytes(saved(checkpoint(extra_state=extra, args=None)))
    counts = {
        key: state for _, key, _, state in Checkpoint(path).state["extra_state"]["metrics"]["valid"]
    }
    assert counts["_bleu_counts"]["sum"].tolist() == [3, 2, 1, 0]
    assert torch.load(path)["extra_state"]["val_loss"] == 1.5, "as fairseq opens it to go on"
    path.write_bytes(
        saved(checkpoint(extra_state={"objects": np.array([print, len], dtype=object)}))
    )
    with pytest.raises(UserError, match="would run code"):
        Checkpoint(path)


def test_output_layers_of_older_and_other_models(tmp_path):
    """Of fairseq 0.9, without tying, and of its wrapper of GPT-2."""
    for name in ("decoder.embed_out", "decoder.model.lm_head.weight"):
        weight = torch.randn(12, 4)
        path = tmp_path / "c.pt"
        path.write_bytes(saved(checkpoint(model={"decoder.other": torch.ones(2), name: weight})))
        assert torch.equal(Checkpoint(path).output_embedding.weight, weight)
    path.write_bytes(saved(checkpoint(model={"module.decoder.embed_out": weight})))
    with pytest.raises(
        UserError, match="found no output embedding among module.decoder.embed_out, …"
    ):
        Checkpoint(path).output_embedding  # noqa: B018
