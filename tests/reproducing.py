"""Runs scripts/reproduce.sh with models of a few updates."""

import json

import pytest

from tests.conftest import ROOT, run_command, zipf_text

SCRIPT = ROOT / "scripts" / "reproduce.sh"
SMALL = (
    "optimization.max_update=6", "checkpoint.save_interval_updates=1", "common.log_interval=1", "dataset.num_workers=0",
    "model.decoder_embed_dim=16", "model.decoder_ffn_embed_dim=16",
)  # fmt: skip
LM = (*SMALL, "model.decoder_layers=1", "model.decoder_input_dim=16", "model.decoder_output_dim=16")
MT = (*SMALL, "model.encoder_embed_dim=16", "model.encoder_ffn_embed_dim=16")


def reproduce(*arguments, check=True, cwd=ROOT):
    return run_command("bash", SCRIPT, *arguments, check=check, cwd=cwd, env={"OMP_NUM_THREADS": "1"})


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A corpus of 60 words as a prepare.sh would leave it; fairseq needs 8 blocks of 128 tokens in a split."""
    folder, text = tmp_path_factory.mktemp("prepared"), tmp_path_factory.mktemp("text")
    for split, lines in (("train", 600), ("valid", 200), ("test", 200)):
        (text / split).write_text("\n".join(zipf_text(lines, seed=len(split))) + "\n")
    run_command(
        "fairseq-preprocess", "--only-source", "--trainpref", text / "train", "--validpref", text / "valid",
        "--testpref", text / "test", "--destdir", folder / "data-bin",
    )  # fmt: skip
    (folder / "manifest.json").write_text(json.dumps({"corpus": "zipf", "bpe": {"kind": "words"}}))
    return folder


def rows(text):
    return {
        line.split("|")[1].strip(): [cell.strip() for cell in line.split("|")[2:-1]]
        for line in text.splitlines()
        if line.startswith("|")
    }
