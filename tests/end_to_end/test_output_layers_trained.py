"""Models with another output layer through the command lines: train, evaluate, generate,
fine-tune."""

import json
import math
import re
import shutil

import pytest

from agg_fairseq.checkpoints.fairseq_checkpoint import Checkpoint
from agg_fairseq.data.binarized import count_split, load_dictionary
from agg_fairseq.f2.frequency_classes import mefmax
from tests.commands import run
from tests.conftest import TRAINING, called, read_lines
from tests.small_trainings import F2_LM, F2_MT, LM, TIED

pytestmark = pytest.mark.slow

COMMON = (*TRAINING, "--required-batch-size-multiple", "1")
EVALUATION = "--cpu --max-tokens 64 --num-workers 0 --required-batch-size-multiple 1".split()
KINDS = {
    "f2": (*F2_LM, "--criterion", "f2_softmax", "--max-update", 30),
    "unigram": (
        *LM, "--arch", "transformer_lm_unigram", TIED, "--criterion", "agg", "--agg-rare-fraction", "0.3",
        "--max-update", 30,
    ),
    "f2 translation": (
        *F2_MT, "--share-all-embeddings", "--criterion", "f2_softmax", "--label-smoothing", "0.1", "--max-update", 20,
        "--disable-validation",
    ),
}  # fmt: skip
LAYER = "decoder.output_projection"


def train(data, save, kind, *arguments):
    log = called("train", data, *KINDS[kind], *COMMON, "--save-dir", save, *arguments)
    return save / "checkpoint_last.pt", log


@pytest.fixture(scope="module")
def language_models(lm_data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("lm-kinds")
    return {kind: train(lm_data, folder / kind, kind) for kind in ("f2", "unigram")}


def remove_training_data(data, folder):
    """A copy of the data as someone has them who only evaluates."""
    return shutil.copytree(data, folder / "bare", ignore=shutil.ignore_patterns("train*"))


@pytest.mark.parametrize("kind", ["f2", "unigram"])
def test_evaluation_and_texts_need_no_training_data(language_models, lm_data, kind, tmp_path):
    checkpoint, log = language_models[kind]
    data = remove_training_data(lm_data, tmp_path)
    expected = float(re.findall(r'"valid_ppl": "([\d.]+)"', log)[-1])
    options = ("--path", checkpoint, "--gen-subset", "valid", "--tokens-per-sample", 16)
    printed = called("eval_lm", data, *options, *EVALUATION, "--softmax-batch", 20)
    found = float(re.search(r"Perplexity: ([\d.]+)", printed)[1])
    assert found == pytest.approx(expected, abs=0.011)
    name = f"{LAYER}.weight{'(tied)+log-unigram' if kind == 'unigram' else ''}|"
    assert name in run("isotropy", checkpoint)
    output = tmp_path / "texts.jsonl"
    texts = ("generate-lm", checkpoint, "--data", data, "--output", output, "--prefix-length", 5)
    for decoding in ("greedy-class", "sample-class") if kind == "f2" else ("",):
        more = ("--f2-decoding", decoding) if decoding else ()
        run(*texts, "--length", 9, *more)
        lines = read_lines(output)
        assert len(lines) > 5
        for line in lines:
            words = json.loads(line)["continuation"].split(" ")
            assert len(words) == 9 and not {"<pad>", "<s>"} & {*words}


def translate(data, path, *arguments, program="generate"):
    length = ("--max-len-a", 0, "--max-len-b", 8, "--beam", 3)
    printed = called(program, data, "--path", path, *EVALUATION, *length, *arguments)
    texts = {}
    for sentence, score, text in re.findall(r"^H-(\d+)\t(.*)\t(.*)$", printed, re.M):
        assert math.isfinite(float(score))
        texts[sentence] = text
    assert len(texts) == 12
    return texts


def test_generate_and_interactive_translate(mt_data, tmp_path):
    """Also an ensemble, which draws classes."""
    data = remove_training_data(mt_data, tmp_path)
    first, second = (
        train(mt_data, tmp_path / seed, "f2 translation", "--seed", seed)[0] for seed in "12"
    )
    translate(data, f"{first}:{second}", "--model-overrides", {"f2_decoding": "sample-class"})
    options = ("--source-lang", "en", "--target-lang", "de", "--input", mt_data.parent / "test.en")
    assert translate(data, first, *options, program="interactive") == translate(data, first)


def test_fine_tuning_keeps_the_classes_of_the_checkpoint(language_models, lm_data, tmp_path):
    checkpoint = language_models["f2"][0]
    start = Checkpoint(checkpoint).parameters
    data = shutil.copytree(lm_data, tmp_path / "data")  # of which other classes would be made
    for suffix in ("bin", "idx"):
        shutil.copy(data / f"valid.{suffix}", data / f"train.{suffix}")
    anew = mefmax(count_split(data, load_dictionary(data)))
    assert not anew.equal(start[f"{LAYER}.class_of_token"].long())
    for updates in (2, 4):  # the second is a resume, from the folder's own checkpoint
        options = ("--finetune-from-model", checkpoint, "--max-update", updates)
        tuned = Checkpoint(train(data, tmp_path, "f2", *options)[0]).parameters
        assert tuned[f"{LAYER}.class_of_token"].equal(start[f"{LAYER}.class_of_token"])
        assert not tuned[f"{LAYER}.class_weight"].equal(start[f"{LAYER}.class_weight"])
        weight = start[f"{LAYER}.weight"]
        assert 0 < (tuned[f"{LAYER}.weight"] - weight).norm() < 0.5 * weight.norm()
