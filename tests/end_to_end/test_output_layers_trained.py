"""Models with another output layer through the command lines: train, evaluate, generate,
fine-tune."""

import json
import math
import re
import shutil

import pytest
import torch

from agg_fairseq.checkpoints.fairseq_checkpoint import Checkpoint
from tests.commands import read_result, run
from tests.conftest import TRAINING, called, read_lines
from tests.small_trainings import F2_LM, F2_MT, LM

pytestmark = pytest.mark.slow

COMMON = (*TRAINING, "--required-batch-size-multiple", "1")
EVALUATION = "--cpu --max-tokens 64 --num-workers 0 --required-batch-size-multiple 1".split()
AGG = ("--criterion", "agg", "--agg-rare-fraction", "0.3")
UNIGRAM = ("--arch", "transformer_lm_unigram", "--share-decoder-input-output-embed")
KINDS = {
    "f2": (F2_LM, ("--criterion", "f2_softmax")),
    "unigram": ([*LM, *UNIGRAM], AGG),
    "f2 translation": (
        [*F2_MT, "--share-all-embeddings"],
        ("--criterion", "f2_softmax", "--label-smoothing", "0.1"),
    ),
}
LAYER = "decoder.output_projection"


def train(data, save, *arguments, kind="f2"):
    base, criterion = KINDS[kind]
    log = called("train", data, *base, *COMMON, "--save-dir", save, *criterion, *arguments)
    return save / "checkpoint_last.pt", log


def parameters(path):
    return Checkpoint(path).parameters


@pytest.fixture(scope="module")
def lm_runs_of_kinds(lm_data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("lm-kinds")
    return {
        kind: train(lm_data, folder / kind, "--max-update", 30, kind=kind)
        for kind in ("f2", "unigram")
    }


@pytest.fixture(scope="module")
def mt_checkpoints(mt_data, tmp_path_factory):
    """Translation models of two seeds."""
    folder, options = tmp_path_factory.mktemp("mt"), ("--max-update", 20, "--disable-validation")
    runs = [
        train(mt_data, folder / f"{n}", *options, "--seed", n, kind="f2 translation")
        for n in (1, 2)
    ]
    return [checkpoint for checkpoint, _ in runs]


@pytest.fixture(scope="module")
def bare(lm_data, mt_data, tmp_path_factory):
    """Copies of the data as someone has them who only evaluates."""
    folder = tmp_path_factory.mktemp("bare")
    ignored = shutil.ignore_patterns("train*")
    return [
        shutil.copytree(data, folder / name, ignore=ignored)
        for name, data in (("lm", lm_data), ("mt", mt_data))
    ]


@pytest.mark.parametrize("kind", ["f2", "unigram"])
def test_evaluation_is_that_of_the_log_and_needs_no_training_data(
    lm_runs_of_kinds, lm_data, bare, kind, tmp_path, capsys
):
    """The perplexity of fairseq-eval-lm and of our eval-lm, which alone counts tokens; texts; the
    name of W."""
    checkpoint, log = lm_runs_of_kinds[kind]
    expected = pytest.approx(float(re.findall(r'"valid_ppl": "([\d.]+)"', log)[-1]), abs=0.011)
    blocks = ("--tokens-per-sample", 16)
    split = ("--path", checkpoint, "--gen-subset", "valid")
    printed = called("eval_lm", bare[0], *split, *blocks, *EVALUATION, "--softmax-batch", 20)
    assert float(re.search(r"Perplexity: ([\d.]+)", printed)[1]) == expected
    options = (
        "--name", "model", "--data", lm_data, "--split", "valid", *blocks, "--json",
        tmp_path / "eval.json",
    )  # fmt: skip
    run(capsys, "eval-lm", checkpoint, *options)
    (row,) = [
        row for row in read_result(tmp_path / "eval.json").rows.values() if "perplexity" in row
    ]
    assert row["perplexity"]["total"] == expected
    name = f"{LAYER}.weight{'(tied)+log-unigram' if kind == 'unigram' else ''}|"
    assert name in run(capsys, "isotropy", checkpoint)
    output = tmp_path / "texts.jsonl"
    texts = (
        "generate-lm", checkpoint, "--data", bare[0], "--output", output, "--prefix-length", 5,
        "--length", 9,
    )  # fmt: skip
    for more in (
        [("--f2-decoding", one) for one in ("greedy-class", "sample-class")]
        if kind == "f2"
        else [()]
    ):
        run(capsys, *texts, *more)
        words = [json.loads(line)["continuation"].split(" ") for line in read_lines(output)]
        assert len(words) > 5
        assert all(len(one) == 9 and not {"<pad>", "<s>"} & set(one) for one in words)


def translate(data, path, *arguments, program="generate"):
    """The best hypotheses of the 12 test sentences, and their scores, by the number of the
    sentence."""
    length = ("--max-len-a", 0, "--max-len-b", 8, "--beam", 3)
    printed = called(program, data, "--path", path, *EVALUATION, *length, *arguments)
    found = re.findall(r"^H-(\d+)\t(.*)\t(.*)$", printed, re.M)
    scores = {sentence: float(score) for sentence, score, _ in found}
    assert len(scores) == 12 and all(map(math.isfinite, scores.values()))
    return {sentence: text for sentence, _, text in found}, scores


def test_generate_and_interactive_translate(bare, mt_data, mt_checkpoints):
    """Also an ensemble, which draws classes."""
    paths = mt_checkpoints
    translate(
        bare[1], ":".join(map(str, paths)), "--model-overrides", {"f2_decoding": "sample-class"}
    )
    options = ("--source-lang", "en", "--target-lang", "de", "--input", mt_data.parent / "test.en")
    assert (
        translate(bare[1], paths[0], *options, program="interactive")[0]
        == translate(bare[1], paths[0])[0]
    )


def test_fine_tuning_keeps_the_classes_of_the_checkpoint(lm_runs_of_kinds, lm_data, tmp_path):
    checkpoint = lm_runs_of_kinds["f2"][0]
    start = parameters(checkpoint)
    assert len(start[f"{LAYER}.class_weight"]) != 9
    for updates in (2, 4):  # the second is a resume, from the folder's own checkpoint
        options = ("--finetune-from-model", checkpoint, "--max-update", updates)
        tuned = parameters(train(lm_data, tmp_path / "tuned", *options)[0])
        assert torch.equal(tuned[f"{LAYER}.class_of_token"], start[f"{LAYER}.class_of_token"])
        assert not torch.equal(tuned[f"{LAYER}.class_weight"], start[f"{LAYER}.class_weight"])
        distance = (tuned[f"{LAYER}.weight"] - start[f"{LAYER}.weight"]).norm()
        size = start[f"{LAYER}.weight"].norm()
        assert 0 < distance < 0.5 * size
