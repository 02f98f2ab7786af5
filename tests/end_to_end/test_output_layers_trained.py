"""Models with another output layer through the command lines: train, evaluate, generate, fine-tune."""

import json
import math
import re
import shutil

import pytest
import torch

import agg_fairseq.criterions
import agg_fairseq.models  # noqa: F401 — registers, also where the package was imported before fairseq
from agg_fairseq.checkpoints.fairseq_checkpoint import Checkpoint
from agg_fairseq.cli.main import main as agg_main
from tests.conftest import ROOT, call, called, run_command
from tests.small_trainings import F2_LM, F2_MT, LM, MT

pytestmark = pytest.mark.slow

PLUGIN = ("--user-dir", ROOT / "agg_fairseq")
COMMON = (
    "--optimizer adam --lr 0.01 --cpu --seed 3 --no-epoch-checkpoints --num-workers 0 --log-format json "
    "--log-interval 1 --required-batch-size-multiple 1"
).split()
EVALUATION = ("--cpu", "--max-tokens", "64", "--num-workers", "0", "--required-batch-size-multiple", "1")
SENTENCES = ("--sample-break-mode", "eos")
AGG = ("--criterion", "agg", "--agg-rare-fraction", "0.3")
UNIGRAM = ("--arch", "transformer_lm_unigram", "--share-decoder-input-output-embed")
KINDS = {
    "f2": ([*F2_LM, *SENTENCES], ("--criterion", "f2_softmax")),
    "unigram": ([*LM, *SENTENCES, *UNIGRAM], AGG),
    "f2 translation": ([*F2_MT, "--share-all-embeddings"], ("--criterion", "f2_softmax", "--label-smoothing", "0.1")),
    "unigram translation": ([*MT, "--arch", "transformer_unigram_tiny"], AGG),
}
LAYER = "decoder.output_projection"
DECODINGS = ("joint", "greedy-class", "sample-class")


def train(data, save, *arguments, kind="f2"):
    """The checkpoint, and what was logged."""
    base, criterion = KINDS[kind]
    log = called("train", data, *PLUGIN, *base, *COMMON, "--save-dir", save, *criterion, *arguments)
    return save / "checkpoint_last.pt", log


def parameters(path):
    return Checkpoint(path).parameters


@pytest.fixture(scope="module")
def lm_runs_of_kinds(lm_data, tmp_path_factory):
    """A language model of each kind: its checkpoint and its log."""
    folder = tmp_path_factory.mktemp("lm-kinds")
    return {kind: train(lm_data, folder / kind, "--max-update", 30, kind=kind) for kind in ("f2", "unigram")}


@pytest.fixture(scope="module")
def mt_checkpoints(mt_data, tmp_path_factory):
    """Translation models of two seeds of each kind, and an earlier checkpoint of the first."""
    folder, found = tmp_path_factory.mktemp("mt-kinds"), {}
    for kind in ("f2 translation", "unigram translation"):
        for seed in (1, 2):
            options = ("--max-update", 20, "--seed", seed, "--save-interval-updates", 10, "--disable-validation")
            found.setdefault(kind, []).append(train(mt_data, folder / kind / str(seed), *options, kind=kind)[0])
    return found


@pytest.fixture(scope="module")
def bare(lm_data, mt_data, tmp_path_factory):
    """Copies of the data as someone has them who only evaluates."""
    folder = tmp_path_factory.mktemp("bare")
    ignored = shutil.ignore_patterns("train*")
    return [shutil.copytree(data, folder / name, ignore=ignored) for name, data in (("lm", lm_data), ("mt", mt_data))]


@pytest.mark.parametrize("kind", ["f2", "unigram"])
def test_evaluation_is_that_of_the_log_and_needs_no_training_data(
    lm_runs_of_kinds, lm_data, bare, kind, tmp_path, capsys
):
    """The perplexity of fairseq-eval-lm and of our eval-lm, which alone counts tokens; texts; the name of W."""
    checkpoint, log = lm_runs_of_kinds[kind]
    data, expected = bare[0], float(re.findall(r'"valid_ppl": "([\d.]+)"', log)[-1])
    for decoding in DECODINGS if kind == "f2" else (None,):
        override = ("--model-overrides", str({"f2_decoding": decoding})) if decoding else ()
        printed = called(
            "eval_lm", data, *PLUGIN, "--path", checkpoint, *EVALUATION, "--gen-subset", "valid", *SENTENCES, *override,
            "--tokens-per-sample", "16", "--softmax-batch", "20",
        )  # fmt: skip
        assert float(re.search(r"Perplexity: ([\d.]+)", printed)[1]) == pytest.approx(expected, abs=0.011)
    options = ["--path", str(checkpoint), "--device", "cpu"]
    split = ["--gen-subset", "valid", "--tokens-per-sample", "16", *SENTENCES, "--json", str(tmp_path / "eval.json")]
    assert agg_main(["eval-lm", str(lm_data), *options, *split]) == 0
    found = json.loads((tmp_path / "eval.json").read_text())["checkpoints"][0]["perplexity"]["total"]
    assert found == pytest.approx(expected, abs=0.011)
    capsys.readouterr()
    assert agg_main(["isotropy", str(checkpoint)]) == 0
    assert f"{LAYER}.weight{'(tied)+log-unigram' if kind == 'unigram' else ''}|" in capsys.readouterr().out
    for decoding in ("greedy-class", "sample-class") if kind == "f2" else (None,):
        output, more = tmp_path / "texts.jsonl", ["--f2-decoding", decoding] if decoding else []
        texts = ["generate-lm", str(data), *options, "--output", str(output), "--prefix-length", "5", "--length", "9"]
        assert agg_main([*texts, *more]) == 0
        words = [json.loads(line)["continuation"].split(" ") for line in output.read_text().splitlines()]
        assert len(words) > 5 and all(len(one) == 9 and not {"<pad>", "<s>"} & set(one) for one in words)


def translate(data, path, *arguments, decoding=None, program="generate"):
    overrides = ("--model-overrides", str({"f2_decoding": decoding})) if decoding else ()
    subset = ("--gen-subset", "test") if program == "generate" else ()
    length = ("--max-len-a", "0", "--max-len-b", "8")
    return called(program, data, *PLUGIN, "--path", path, *EVALUATION, *length, *overrides, *subset, *arguments)


def lines(printed, letter):
    """(sentence, the rest) of each line with this letter."""
    found = re.findall(rf"^{letter}-(\d+)\t(.*)$", printed, re.M)
    return [(int(sentence), *rest.split("\t")) for sentence, rest in found]


def checked(printed, sentences=12, best=1, max_len=8):
    """The hypotheses: of every sentence, of finite scores, that end, without padding."""
    hypotheses, positions = lines(printed, "H"), lines(printed, "P")
    assert len(hypotheses) == len(positions) == sentences * best
    for (_, score, text), (_, scores) in zip(hypotheses, positions, strict=True):
        values = [float(value) for value in scores.split()]
        assert math.isfinite(float(score)) and all(map(math.isfinite, values))
        words = text.split()
        assert not {"<pad>", "<s>", "</s>"} & set(words)
        assert len(words) <= len(values) - 1 <= max_len  # but for a begin of sentence, which fairseq does not print
    return hypotheses


def test_generate_and_interactive_translate(bare, mt_data, mt_checkpoints):
    """Beams, prefixes and an ensemble; whatever the decoding, a reference has the same scores."""
    paths = mt_checkpoints["f2 translation"]
    checked(translate(bare[1], ":".join(map(str, paths)), "--beam", 2, decoding="sample-class"))
    options = ("--beam", 3, "--prefix-size", 2, "--min-len", 3, "--no-repeat-ngram-size", 1)
    printed = translate(bare[1], paths[0], *options, decoding="greedy-class")
    references = dict(lines(printed, "T"))
    assert all(text.split()[:2] == references[one].split()[:2] for one, _, text in checked(printed))
    expected = checked(translate(bare[1], paths[0], "--beam", 3, "--nbest", 3), best=3)[::3]
    options = ("--source-lang", "en", "--target-lang", "de", "--input", mt_data.parent / "test.en", "--beam", 3)
    found = checked(translate(bare[1], paths[0], *options, program="interactive"))
    assert sorted((index, text) for index, _, text in found) == sorted((index, text) for index, _, text in expected)
    scored = [lines(translate(bare[1], paths[0], "--score-reference", decoding=name), "P") for name in DECODINGS]
    assert scored[0] == scored[1] == scored[2] and len(scored[0]) == 12


def test_an_average_and_an_ensemble_with_a_log_unigram_bias(bare, mt_checkpoints, tmp_path):
    paths = mt_checkpoints["unigram translation"]
    counts = [parameters(path)[f"{LAYER}.counts"] for path in paths]
    assert torch.equal(*counts) and counts[0].any()
    one, both = (checked(translate(bare[1], path, "--beam", 3)) for path in (paths[0], f"{paths[0]}:{paths[1]}"))
    assert one != both
    inner = [paths[0].parent / "checkpoint_1_10.pt", paths[0]]
    run_command("agg-fairseq", "average-checkpoints", *inner, "--output", tmp_path / "mean.pt")
    mean, *of_each = map(parameters, (tmp_path / "mean.pt", *inner))
    expected = sum(one[f"{LAYER}.bias_shift"].double() for one in of_each) / len(of_each)
    torch.testing.assert_close(mean[f"{LAYER}.bias_shift"].double(), expected, rtol=0, atol=1e-7)
    assert torch.equal(mean[f"{LAYER}.counts"], of_each[0][f"{LAYER}.counts"])


@pytest.fixture(scope="module")
def other_data(lm_data, tmp_path_factory):
    """The same dictionary, but a training text of one word and few others: other counts, fewer classes."""
    folder = tmp_path_factory.mktemp("other")
    text = (lm_data.parent / "train").read_text().split("\n")
    (folder / "train").write_text("\n".join(["w0 " * 12 + line[:6] for line in text if line]) + "\n")
    texts = ("--trainpref", folder / "train", "--validpref", lm_data.parent / "valid")
    called("preprocess", "--only-source", *texts, "--srcdict", lm_data / "dict.txt", "--destdir", folder / "bin")
    return folder / "bin"


def test_fine_tuning_keeps_the_classes_of_the_checkpoint(lm_runs_of_kinds, other_data, tmp_path):
    checkpoint = lm_runs_of_kinds["f2"][0]
    start, fresh = parameters(checkpoint), parameters(train(other_data, tmp_path / "fresh", "--max-update", 1)[0])
    assert len(fresh[f"{LAYER}.class_weight"]) != len(start[f"{LAYER}.class_weight"])
    for updates in (2, 4):  # the second is a resume, from the folder's own checkpoint
        options = ("--finetune-from-model", checkpoint, "--max-update", updates)
        tuned = parameters(train(other_data, tmp_path / "tuned", *options)[0])
        assert torch.equal(tuned[f"{LAYER}.class_of_token"], start[f"{LAYER}.class_of_token"])
        assert not torch.equal(tuned[f"{LAYER}.class_weight"], start[f"{LAYER}.class_weight"])
        distance, size = (tuned[f"{LAYER}.weight"] - start[f"{LAYER}.weight"]).norm(), start[f"{LAYER}.weight"].norm()
        assert 0 < distance < 0.5 * size


def check_refused(data, folder, base, options, words):
    status, _, _, error = call(
        "train", data, *PLUGIN, *base, *COMMON, "--save-dir", folder / "refused", "--max-update", 2, *options
    )
    assert status == 2 and "Traceback" not in error and words in error.splitlines()[-1], error
    assert "invalid choice" in words or error.startswith("agg-fairseq: error: ") and error.count("\n") == 1


def test_options_that_do_not_fit(lm_data, lm_runs_of_kinds, tmp_path):
    f2, unigram = (lm_runs_of_kinds[kind][0] for kind in ("f2", "unigram"))
    for options, words in (
        (("--f2-assignment", "equal-token", "--f2-classes", 1000), "equal-token"),
        (("--f2-classes", 3), "no --f2-classes"),
        (("--f2-assignment", "equal-token"), "--f2-classes, the number of classes"),
        (("--f2-assignment", "zipf"), "invalid choice: 'zipf'"),
        (("--f2-decoding", "greedy"), "--f2-decoding: expected joint, greedy-class, sample-class"),
        (("--arch", "transformer_lm"), "--arch transformer_lm_f2"),
        (("--criterion", "agg", "--agg-rare-fraction", 0.3), "--criterion f2_softmax"),
        (("--finetune-from-model", unigram), "convert"),  # of an ordinary softmax, as far as classes go
    ):
        check_refused(lm_data, tmp_path, F2_LM, ("--criterion", "f2_softmax", *options), words)
    status, _, _, error = call(
        "eval_lm", lm_data, *PLUGIN, "--path", f2, *EVALUATION, "--model-overrides", str({"f2_decoding": "greedy"})
    )
    assert status == 2 and "greedy" in error.splitlines()[-1] and "Traceback" not in error
