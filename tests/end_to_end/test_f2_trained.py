"""The models with the factorized output layer through the real command lines: train, resume, evaluate, generate."""

import argparse
import json
import math
import re
import shutil
import types

import pytest
import torch
from fairseq import checkpoint_utils

from agg_fairseq.checkpoints.fairseq_checkpoint import Checkpoint
from agg_fairseq.cli.main import main as agg_main
from agg_fairseq.data.binarized import load_dictionary
from agg_fairseq.f2 import mefmax
from agg_fairseq.f2.fairseq_decoder import classes_or_placeholder
from tests.conftest import ROOT, call, called, run_command, train_by_two_workers
from tests.end_to_end.test_command_lines import COMMON, LM, MT
from tests.glue.test_f2_models import EVERY_DECODING, target_counts

pytestmark = pytest.mark.slow  # command lines: processes of their own

F2_LM = [*LM, "--arch", "transformer_lm_f2", "--dropout", "0"]
F2_MT = [*MT, "--arch", "transformer_f2_tiny", "--dropout", "0"]
F2 = ("--criterion", "f2_softmax")
LAYER = "decoder.output_projection"


def train(data, save, *arguments, base=F2_LM, criterion=F2):
    return called(
        "train", data, "--user-dir", ROOT / "agg_fairseq", *base, *COMMON, "--save-dir", save, *criterion, *arguments
    )


def quick(data, save, *arguments, **kwargs):
    """Without validation; the checkpoint's content."""
    train(data, save, "--disable-validation", *arguments, **kwargs)
    return Checkpoint(save / "checkpoint_last.pt").state


@pytest.fixture(scope="module")
def lm_run(lm_data, tmp_path_factory):
    """A language model of 40 updates; its folder and its log."""
    save = tmp_path_factory.mktemp("f2") / "lm"
    return save, train(lm_data, save, "--max-update", 40)


@pytest.fixture(scope="module")
def mt_run(mt_data, tmp_path_factory):
    """Two translation models that share their embeddings and differ in their seeds."""
    folder = tmp_path_factory.mktemp("f2")
    for seed in (1, 2):
        options = ("--max-update", 40, "--seed", seed, "--label-smoothing", 0.1, "--share-all-embeddings")
        quick(mt_data, folder / str(seed), *options, base=F2_MT)
    return [folder / str(seed) / "checkpoint_last.pt" for seed in (1, 2)]


def translate(data, path, *arguments, decoding=None, program="generate"):
    overrides = ("--model-overrides", str({"f2_decoding": decoding})) if decoding else ()
    return called(
        program, data, "--user-dir", ROOT / "agg_fairseq", "--path", path, "--cpu", "--max-tokens", "64",
        "--required-batch-size-multiple", "1", "--max-len-a", "0", "--max-len-b", "8", "--num-workers", "0", *overrides,
        *(("--gen-subset", "test") if program == "generate" else ()), *arguments,
    )  # fmt: skip


def lines(printed, letter):
    """(sentence, the rest) of each line with this letter."""
    found = re.findall(rf"^{letter}-(\d+)\t(.*)$", printed, re.M)
    return [(int(sentence), *rest.split("\t")) for sentence, rest in found]


def check_output(printed, sentences=12, best=1, max_len=8):
    """Every sentence has its hypotheses, of finite scores, that end, without padding. Returns them."""
    hypotheses, positions = lines(printed, "H"), lines(printed, "P")
    assert len(hypotheses) == len(positions) == sentences * best
    for (_, score, text), (_, scores) in zip(hypotheses, positions, strict=True):
        values = [float(value) for value in scores.split()]
        assert math.isfinite(float(score)) and all(map(math.isfinite, values))
        words = text.split()
        assert not {"<pad>", "<s>", "</s>"} & set(words)
        assert len(words) <= len(values) - 1 <= max_len  # but for a begin of sentence, which fairseq does not print
    return hypotheses


def test_the_log_has_both_parts_of_the_loss(lm_data, lm_run):
    logged = [json.loads(line) for line in lm_run[1].splitlines() if line.startswith('{"')]
    inner, valid = ([line for line in logged if key in line] for key in ("update", "valid_loss"))
    assert len(inner) == 40 and valid
    for prefix, records in (("", inner), ("valid_", valid)):
        for record in records:
            parts = [float(record[f"{prefix}{name}"]) for name in ("class_nll", "token_nll", "nll_loss")]
            assert parts[0] + parts[1] == pytest.approx(parts[2], abs=0.0021)
    assert float(inner[-1]["nll_loss"]) < float(inner[0]["nll_loss"]) - 0.5
    assert "mefmax: " in lm_run[1] and "frequency classes of" in lm_run[1]


def test_perplexity_is_that_of_eval_lm_theirs_and_ours(lm_data, tmp_path):
    """With a sentence a block: of others, fairseq-eval-lm does not show the model the token before."""
    save, blocks = tmp_path / "run", ("--sample-break-mode", "eos", "--required-batch-size-multiple", 1)
    log = train(lm_data, save, *blocks, "--max-update", 20)
    expected = float(re.findall(r'"valid_ppl": "([\d.]+)"', log)[-1])
    for decoding in EVERY_DECODING:
        printed = called(
            "eval_lm", lm_data, "--user-dir", ROOT / "agg_fairseq", "--path", save / "checkpoint_last.pt", "--cpu",
            "--gen-subset", "valid", "--tokens-per-sample", "16", "--max-tokens", "64", "--num-workers", "0", *blocks,
            "--model-overrides", str({"f2_decoding": decoding}), "--softmax-batch", "20",
        )  # fmt: skip
        assert float(re.search(r"Perplexity: ([\d.]+)", printed)[1]) == pytest.approx(expected, abs=0.011)
    status = agg_main(
        ["eval-lm", str(lm_data), "--path", str(save / "checkpoint_last.pt"), "--gen-subset", "valid"]
        + ["--tokens-per-sample", "16", "--json", str(tmp_path / "eval.json"), "--device", "cpu", *blocks[:2]]
    )
    assert status == 0
    found = json.loads((tmp_path / "eval.json").read_text())["checkpoints"][0]["perplexity"]["total"]
    assert found == pytest.approx(expected, abs=0.011)


def test_classes_in_the_checkpoint(mt_data, mt_run):
    model, task = loaded(mt_run[0])
    expected = mefmax(target_counts(mt_data, task.target_dictionary))
    state = Checkpoint(mt_run[0]).state["model"]
    assert torch.equal(state[f"{LAYER}.class_of_token"], expected)
    assert torch.equal(state[f"{LAYER}.weight"], state["encoder.embed_tokens.weight"])


def loaded(path):
    models, _, task = checkpoint_utils.load_model_ensemble_and_task([str(path)])
    return models[0].eval(), task


SEARCHES = {
    "beam": ("--beam", 5, "--nbest", 5),
    "greedy": ("--beam", 1),
    "top-5": ("--beam", 5, "--nbest", 5, "--sampling", "--sampling-topk", 5),
    "top-3": ("--beam", 1, "--sampling", "--sampling-topk", 3),
    "top-3 of three": ("--beam", 3, "--nbest", 3, "--sampling", "--sampling-topk", 3),
    "prefix": ("--beam", 3, "--prefix-size", 2, "--min-len", 3, "--no-repeat-ngram-size", 1),
    "ensemble": ("--beam", 2),
}


@pytest.mark.parametrize("decoding", EVERY_DECODING)
def test_generate_translates(mt_data, mt_run, decoding):
    for name, options in SEARCHES.items():
        path = ":".join(map(str, mt_run)) if name == "ensemble" else mt_run[0]
        printed = translate(mt_data, path, *options, decoding=decoding)
        best = options[options.index("--nbest") + 1] if "--nbest" in options else 1
        found = check_output(printed, best=best)
        assert "BLEU4 = " in printed
        if "prefix" in name:
            references = dict(lines(printed, "T"))
            for sentence, _, text in found:
                assert text.split()[:2] == references[sentence].split()[:2]


def test_interactive_gives_what_generate_gives(mt_data, mt_run, tmp_path):
    shutil.copy(mt_data.parent / "test.en", tmp_path / "test.en")
    options = ("--source-lang", "en", "--target-lang", "de", "--input", tmp_path / "test.en", "--beam", 3)
    interactive = translate(mt_data, mt_run[0], *options, program="interactive")
    expected = check_output(translate(mt_data, mt_run[0], "--beam", 3))
    found = sorted(check_output(interactive))
    assert [(index, text) for index, _, text in found] == [(index, text) for index, _, text in sorted(expected)]
    check_output(translate(mt_data, mt_run[0], *options, program="interactive", decoding="sample-class"))


def test_references_are_scored_by_the_joint_distribution(mt_data, mt_run):
    """Whatever the decoding; against the model's own distribution, sentence by sentence."""
    scored = {name: translate(mt_data, mt_run[0], "--score-reference", decoding=name) for name in EVERY_DECODING}
    found = {name: (lines(printed, "H"), lines(printed, "P")) for name, printed in scored.items()}
    assert found["joint"] == found["greedy-class"] == found["sample-class"]
    positions = {sentence: [float(value) for value in rest.split()] for sentence, rest in found["joint"][1]}
    scores = {sentence: float(score) for sentence, score, _ in found["joint"][0]}
    model, task = loaded(mt_run[0])
    task.load_dataset("test")
    data, dictionary = task.dataset("test"), task.target_dictionary
    layer = model.decoder.output_projection
    assert len(scores) == len(data) == 12
    for index in range(len(data)):
        source, target = data[index]["source"][None], data[index]["target"]
        previous = torch.cat([target.new_tensor([dictionary.eos()]), target[:-1]])[None]
        with torch.no_grad():
            h = model(source, torch.tensor([source.size(1)]), previous, features_only=True)[0][0]
            classes, logits = (h @ layer.class_weight.t()).log_softmax(-1), h @ layer.weight.t()
        expected = []
        for position, token in enumerate(target.tolist()):
            number = layer.class_of_token[token]
            inside = logits[position][layer.class_of_token == number].logsumexp(0)
            expected.append(float(classes[position, number] + logits[position, token] - inside))
        assert positions[index] == pytest.approx(torch.tensor(expected).div(math.log(2)).tolist(), abs=0.001)
        assert scores[index] == pytest.approx(sum(expected) / len(expected) / math.log(2), abs=0.001)


@pytest.mark.parametrize("decoding", EVERY_DECODING)
def test_generate_continues_text(lm_data, lm_run, tmp_path, decoding):
    """fairseq's own tool, with forced prefixes that lie in any class; and ours."""
    checkpoint = lm_run[0] / "checkpoint_last.pt"
    sampled = ("--beam", 2, "--nbest", 2, "--sampling", "--sampling-topk", 3)
    for options in (("--beam", 1), ("--beam", 3), sampled):
        printed = translate(
            lm_data, checkpoint, "--task", "language_modeling", "--sample-break-mode", "eos", "--prefix-size", 2,
            *options, decoding=decoding,
        )  # fmt: skip
        sentences = len(lines(printed, "S"))
        assert sentences > 10
        references = dict(lines(printed, "T"))
        for sentence, _, text in check_output(printed, sentences, best=2 if options is sampled else 1):
            assert text.split()[:2] == references[sentence].split()[:2]
    for options in ((), ("--topk", "5")):
        texts = continued(lm_data, checkpoint, tmp_path / "texts.jsonl", "--f2-decoding", decoding, *options)
        assert len(texts) > 5
        for text in texts:
            words = text["continuation"].split(" ")
            assert len(words) == 9 and not {"<pad>", "<s>"} & set(words)


def continued(data, checkpoint, output, *arguments):
    status = agg_main(
        ["generate-lm", str(data), "--path", str(checkpoint), "--output", str(output), "--prefix-length", "5"]
        + ["--length", "9", "--device", "cpu", *arguments]
    )
    assert status == 0
    return [json.loads(line) for line in output.read_text().splitlines()]


def without_training_data(data, folder):
    for path in data.iterdir():
        if not path.name.startswith("train"):
            shutil.copy(path, folder / path.name)
    return folder


def test_checkpoints_load_without_the_training_data(lm_data, lm_run, tmp_path):
    """Models of other classes than one: the same perplexity and texts."""
    checkpoint, results = lm_run[0] / "checkpoint_last.pt", []
    assert Checkpoint(checkpoint).state["model"][f"{LAYER}.class_of_token"].max() > 0
    (tmp_path / "bare").mkdir()
    for data in (lm_data, without_training_data(lm_data, tmp_path / "bare")):
        evaluated = called(
            "eval_lm", data, "--user-dir", ROOT / "agg_fairseq", "--path", checkpoint, "--cpu", "--gen-subset", "test",
            "--tokens-per-sample", "16", "--max-tokens", "64", "--num-workers", "0",
        )  # fmt: skip
        texts = continued(data, checkpoint, tmp_path / "texts.jsonl", "--f2-decoding", "greedy-class")
        results.append((re.search(r"Perplexity: ([\d.]+)", evaluated)[1], texts))
    assert results[0] == results[1]


def test_translation_without_the_training_data(mt_data, mt_run, tmp_path):
    bare = without_training_data(mt_data, tmp_path)
    expected, found = (lines(translate(data, mt_run[0], "--beam", 3), "H") for data in (mt_data, bare))
    assert found == expected and len(found) == 12


def test_a_resumed_run_equals_an_uninterrupted_one(lm_data, mt_data, tmp_path):
    for name, data, base in (("lm", lm_data, [*F2_LM, "--update-freq", 2]), ("mt", mt_data, F2_MT)):
        options = ("--dropout", 0.1)
        whole = quick(data, tmp_path / f"{name}-whole", *options, "--max-update", 14, base=base)
        for updates in (6, 14):
            resumed = quick(data, tmp_path / name, *options, "--max-update", updates, base=base)
        assert resumed["optimizer_history"][-1]["num_updates"] == 14
        for key, tensor in whole["model"].items():
            assert torch.equal(tensor, resumed["model"][key]), key
        moments = [state["last_optimizer_state"]["state"][0]["exp_avg"] for state in (whole, resumed)]
        assert torch.equal(*moments)


@pytest.fixture(scope="module")
def other_data(lm_data, tmp_path_factory):
    """The same dictionary, but a training text of one word and few others: other counts, fewer classes."""
    folder = tmp_path_factory.mktemp("other")
    text = (lm_data.parent / "train").read_text().split("\n")
    (folder / "train").write_text("\n".join(["w0 " * 12 + line[:6] for line in text if line]) + "\n")
    called(
        "preprocess", "--only-source", "--trainpref", folder / "train", "--validpref",
        lm_data.parent / "valid", "--testpref", lm_data.parent / "test", "--srcdict", lm_data / "dict.txt",
        "--destdir", folder / "bin",
    )  # fmt: skip
    return folder / "bin"


def test_fine_tuning_keeps_the_classes_of_the_checkpoint(lm_data, lm_run, other_data, tmp_path):
    start = Checkpoint(lm_run[0] / "checkpoint_last.pt").state["model"]
    fresh = quick(other_data, tmp_path / "fresh", "--max-update", 1)["model"]
    assert len(fresh[f"{LAYER}.class_weight"]) != len(start[f"{LAYER}.class_weight"])
    options = ("--finetune-from-model", lm_run[0] / "checkpoint_last.pt")
    for updates in (2, 4):  # the second is a resume, from the folder's own checkpoint
        tuned = quick(other_data, tmp_path / "tuned", *options, "--max-update", updates)["model"]
        assert torch.equal(tuned[f"{LAYER}.class_of_token"], start[f"{LAYER}.class_of_token"])
        assert tuned[f"{LAYER}.class_weight"].shape == start[f"{LAYER}.class_weight"].shape
        assert not torch.equal(tuned[f"{LAYER}.class_weight"], start[f"{LAYER}.class_weight"])
        distance, size = (tuned[f"{LAYER}.weight"] - start[f"{LAYER}.weight"]).norm(), start[f"{LAYER}.weight"].norm()
        assert 0 < distance < 0.5 * size


def test_a_moving_average_of_the_weights_keeps_the_classes(lm_data, tmp_path):
    """fairseq's --store-ema takes every entry of the state for a weight."""
    state = quick(lm_data, tmp_path, "--store-ema", "--ema-decay", 0.9, "--max-update", 3)
    averaged = state["extra_state"]["ema"]
    key = f"{LAYER}.class_of_token"
    torch.testing.assert_close(averaged[key], state["model"][key], rtol=1e-6, atol=0)
    assert not torch.equal(averaged[f"{LAYER}.weight"], state["model"][f"{LAYER}.weight"])


def test_fine_tuning_reads_the_classes_before_the_model_is_wrapped(lm_data, lm_run, other_data, tmp_path):
    """A wrapper for several workers cannot bear that parameters change their shape afterwards: none does."""
    options = argparse.Namespace(
        f2_assignment="mefmax", f2_classes=0, train_subset="train", save_dir=str(tmp_path),
        restore_file="checkpoint_last.pt", finetune_from_model=str(lm_run[0] / "checkpoint_last.pt"),
    )  # fmt: skip
    task = types.SimpleNamespace(target_dictionary=load_dictionary(lm_data))  # names no data: nothing is counted
    found, missing = classes_or_placeholder(options, task)
    expected = Checkpoint(options.finetune_from_model).state["model"][f"{LAYER}.class_of_token"]
    assert missing is None and torch.equal(found, expected.long())


def test_a_number_of_classes_that_the_other_data_would_not_bear(lm_data, other_data, tmp_path):
    """The checkpoint's classes take the place of those that cannot be made of these counts."""
    options = ("--f2-assignment", "equal-frequency", "--f2-classes", 3)
    status, _, _, err = call(
        "train", other_data, "--user-dir", ROOT / "agg_fairseq", *F2_LM, *COMMON, *F2, *options, "--no-save",
        "--max-update", 1,
    )  # fmt: skip
    assert (status, err.count("\n")) == (2, 1) and "equal-frequency" in err
    quick(lm_data, tmp_path / "run", *options, "--max-update", 2)
    checkpoint = tmp_path / "run" / "checkpoint_last.pt"
    assert len(continued(other_data, checkpoint, tmp_path / "texts.jsonl")) > 5
    tuned = quick(other_data, tmp_path / "tuned", *options, "--finetune-from-model", checkpoint, "--max-update", 2)
    assert len(tuned["model"][f"{LAYER}.class_weight"]) == 3


CASES = {
    "more classes than tokens": (F2, ("--f2-assignment", "equal-token", "--f2-classes", 1000), "equal-token"),
    "an empty class": (F2, ("--f2-assignment", "equal-frequency", "--f2-classes", 50), "equal-frequency"),
    "a number for mefmax": (F2, ("--f2-classes", 3), "no --f2-classes"),
    "no number": (F2, ("--f2-assignment", "equal-token"), "--f2-classes, the number of classes"),
    "a negative number": (F2, ("--f2-assignment", "equal-token", "--f2-classes", -2), "-2"),
    "unknown assignment": (F2, ("--f2-assignment", "zipf"), "invalid choice: 'zipf'"),
    "unknown decoding": (F2, ("--f2-decoding", "greedy"), "--f2-decoding: expected joint, greedy-class, sample-class"),
    "adaptive softmax": (F2, ("--adaptive-softmax-cutoff", "20,40"), "--adaptive-softmax-cutoff 20,40"),
    "label smoothing": (F2, ("--label-smoothing", "1"), "--label-smoothing"),
    "ordinary model": (F2, ("--arch", "transformer_lm"), "--arch transformer_lm_f2"),
    **{
        name: (("--criterion", name), options, "--criterion f2_softmax")
        for name, options in {
            "mle": (),
            "agg": ("--agg-rare-fraction", 0.3),
            "cosreg": (),
            "agps": ("--agps-rare-rank", 20, "--agps-mu1", 30, "--agps-mu2", 5),
            "unlikelihood": (),
            "unlikelihood_sequence": ("--ul-prefix-length", 5, "--ul-completion-length", 8),
            "freeze_rare": (),
            "face": (),
        }.items()
    },
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_options_that_do_not_fit(lm_data, tmp_path, name):
    """One line and status 2."""
    criterion, options, words = CASES[name]
    status, _, _, err = call(
        "train", lm_data, "--user-dir", ROOT / "agg_fairseq", *F2_LM, *COMMON, "--save-dir", tmp_path / "run",
        *criterion, *options, "--max-update", 2, "--disable-validation",
    )  # fmt: skip
    check_refusal(status, err, words)


def check_refusal(status, err, words):
    assert status == 2
    last = err.splitlines()[-1]
    if "invalid choice" not in words:
        assert last == err.strip() and last.startswith("agg-fairseq: error: ")
    assert words in last and "Traceback" not in err


def test_translation_options_that_do_not_fit(mt_data, tmp_path):
    for options, words in (
        (("--adaptive-softmax-cutoff", "20,40"), "--arch transformer_f2: found --adaptive-softmax-cutoff"),
        (("--f2-assignment", "equal-token", "--f2-classes", 1000), "equal-token"),
        (("--f2-assignment", "zipf"), "invalid choice: 'zipf'"),
        (("--f2-decoding", "greedy"), "--f2-decoding: expected joint"),
    ):
        status, _, _, err = call(
            "train", mt_data, "--user-dir", ROOT / "agg_fairseq", *F2_MT, *COMMON, *F2, *options, "--no-save",
            "--max-update", 1,
        )  # fmt: skip
        check_refusal(status, err, words)


@pytest.mark.parametrize("kind", ["lm", "mt"])
def test_an_unknown_decoding_by_override(lm_data, mt_data, lm_run, mt_run, kind):
    data, path = {"lm": (lm_data, lm_run[0] / "checkpoint_last.pt"), "mt": (mt_data, mt_run[0])}[kind]
    options = ("--task", "language_modeling", "--sample-break-mode", "eos") if kind == "lm" else ()
    status, _, _, err = call(
        "generate", data, "--user-dir", ROOT / "agg_fairseq", "--path", path, "--cpu", "--gen-subset", "test",
        "--max-tokens", "64", *options, "--model-overrides", str({"f2_decoding": "greedy"}),
    )  # fmt: skip
    check_refusal(status, err, "greedy")


@pytest.mark.parametrize("option", ["--restore-file", "--finetune-from-model"])
@pytest.mark.parametrize("kind", ["lm", "mt"])
def test_checkpoints_of_an_ordinary_softmax_are_refused(lm_data, mt_data, tmp_path, option, kind):
    data, base, parent = {
        "lm": (lm_data, F2_LM, "transformer_lm"), "mt": (mt_data, F2_MT, "transformer_tiny")
    }[kind]  # fmt: skip
    ordinary = tmp_path / "ordinary"
    quick(data, ordinary, "--arch", parent, "--max-update", 1, base=base, criterion=("--criterion", "mle"))
    reset = ("--reset-optimizer",) if option == "--restore-file" else ()
    status, _, _, err = call(
        "train", data, "--user-dir", ROOT / "agg_fairseq", *base, *COMMON, "--save-dir", tmp_path / "run", *F2,
        option, ordinary / "checkpoint_last.pt", *reset, "--max-update", 2,
    )  # fmt: skip
    check_refusal(status, err, "convert-to-f2")


def test_hydra_train(lm_data, tmp_path):
    """The checkpoint of a config is one of the tools'."""
    save = tmp_path / "run"
    (tmp_path / "f2.yaml").write_text(f"""# @package _group_
common: {{user_dir: {ROOT / "agg_fairseq"}, cpu: true}}
task: {{_name: language_modeling, data: {lm_data}, tokens_per_sample: 16}}
model: {{_name: transformer_lm_f2, decoder_layers: 1, decoder_embed_dim: 16, decoder_input_dim: 16,
  decoder_output_dim: 16, decoder_ffn_embed_dim: 16, decoder_attention_heads: 2, f2_assignment: equal-token,
  f2_classes: 4, f2_decoding: greedy-class}}
criterion: {{_name: f2_softmax, label_smoothing: 0.1}}
dataset: {{max_tokens: 64, num_workers: 0}}
optimizer: {{_name: adam}}
lr_scheduler: {{_name: fixed}}
optimization: {{max_update: 3, lr: [0.01]}}
checkpoint: {{save_dir: {save}}}
""")
    run_command("fairseq-hydra-train", "--config-dir", tmp_path, "--config-name", "f2", cwd=tmp_path)
    checkpoint = save / "checkpoint_last.pt"
    saved = Checkpoint(checkpoint).state
    assert saved["optimizer_history"][-1]["num_updates"] == 3 and len(saved["model"][f"{LAYER}.class_weight"]) == 4
    called(
        "eval_lm", lm_data, "--user-dir", ROOT / "agg_fairseq", "--path", checkpoint, "--cpu", "--gen-subset", "test",
        "--max-tokens", "64", "--num-workers", "0",
    )  # fmt: skip
    texts = {name: continued(lm_data, checkpoint, tmp_path / "t", *options) for name, options in {
        "saved": (), "class": ("--f2-decoding", "greedy-class"), "joint": ("--f2-decoding", "joint")
    }.items()}  # fmt: skip
    assert texts["saved"] == texts["class"]


TWICE = """
import sys
import fairseq, agg_fairseq
from fairseq_cli import train
train.cli_main()
assert {"agg_fairseq.models", "plugin.models"} <= set(sys.modules)
"""


def test_the_folder_under_another_name_beside_the_package(lm_data, tmp_path):
    """Registered twice is no error; and the criterion knows the model's layer."""
    (tmp_path / "plugin").symlink_to(ROOT / "agg_fairseq")
    printed = run_command(
        "python", "-c", TWICE, lm_data, "--user-dir", tmp_path / "plugin", *F2_LM, *COMMON, *F2, "--no-save",
        "--max-update", 1, "--disable-validation", "--data-buffer-size", 0,  # no thread that could outlive the update
    )  # fmt: skip
    assert "(output_projection): FactorizedSoftmax(" in printed.stderr and '"class_nll"' in printed.stderr


def test_two_workers_train_as_one_with_the_joined_batch(lm_data, tmp_path):
    """Batches are dealt round-robin, so that two micro-batches of one worker are those of two workers."""
    options = (*F2, "--max-update", "6", "--disable-validation")
    one = quick(lm_data, tmp_path / "one", *options, "--update-freq", 2)
    train_by_two_workers(lm_data, tmp_path / "two", *F2_LM, *COMMON, *options)
    two = Checkpoint(tmp_path / "two" / "checkpoint_last.pt").state
    assert two["optimizer_history"][-1]["num_updates"] == 6
    for name, tensor in one["model"].items():
        torch.testing.assert_close(two["model"][name], tensor, rtol=1e-3, atol=1e-4)
