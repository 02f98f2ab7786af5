"""`evaluation.perplexity` and `calibrate`, and their commands, with every kind of output layer."""

import math
import sys

import pytest
import torch
from fairseq.models.transformer import TransformerDecoderBase

from agg_fairseq.checkpoints import Checkpoint, open_models
from agg_fairseq.data.binarized import load_dictionary
from agg_fairseq.data.vocabulary import BinarizedVocabulary
from agg_fairseq.errors import UserError
from agg_fairseq.evaluation import BinarizedText, PlainText, calibrate, perplexity
from agg_fairseq.fairseq_plugin.models.from_checkpoint import build_model
from agg_fairseq.fairseq_plugin.output_layer import output_layer
from agg_fairseq.names import GROUPS
from tests.commands import binarized, refused, run, save_model, table
from tests.small_trainings import ADAPTIVE, F2_LM, FAMILIES, LM, MT, TIED

UNIGRAM = (*LM, "--arch transformer_lm_unigram")
KINDS = {
    "softmax": LM,
    "adaptive": (*LM, ADAPTIVE),
    "bias": UNIGRAM,
    "f2": (*F2_LM, "--criterion f2_softmax"),
    "translation": MT,
    "weight norm": FAMILIES["fconv_lm"],
    "soft cap": LM,
    "temperature": LM,
}
OWN = {  # a method of the decoder, and what a fork does to the logits in it
    "soft cap": ("forward", lambda output: (3 * torch.tanh(output[0] / 3), output[1])),
    "temperature": ("get_normalized_probs", lambda log_probs: (log_probs / 2).log_softmax(-1)),
}


def random_checkpoint(path, data, *options):
    """A model whose predictions differ between positions, since its random weights are large."""
    return Checkpoint(save_model(path, data, *options, base=(), std=0.5))


@pytest.fixture
def runs(lm_runs):
    return open_models([lm_runs / name / "checkpoint_last.pt" for name in ("mle", "agg")])


@pytest.mark.grid(4)
@pytest.mark.parametrize("kind", KINDS)
def test_perplexities_equal_their_definitions(kind, lm_data, mt_data, tmp_path, monkeypatch):
    if kind in OWN:
        method, change = OWN[kind]
        original = getattr(TransformerDecoderBase, method)

        def changed(*arguments, **options):
            return change(original(*arguments, **options))

        monkeypatch.setattr(TransformerDecoderBase, method, changed)
    data, pair = (mt_data, ("en", "de")) if kind == "translation" else (lm_data, None)
    checkpoint = random_checkpoint(tmp_path / "model.pt", data, *KINDS[kind])
    result = perplexity({"model": checkpoint}, BinarizedText(data, "valid"), device="cpu")
    row = result["model"]
    assert (row.get("isoscore") is None) == (kind == "adaptive")

    model, task = build_model(checkpoint, data)
    classes = getattr(model.decoder.output_projection, "classes", None) if kind == "f2" else None
    assert row.get("classes") == (classes and classes.number)
    task.load_dataset("valid")
    distributions, targets = [], []
    for item in task.dataset("valid"):
        sample = task.dataset("valid").collater([item])
        with torch.no_grad():
            log_probs = model.get_normalized_probs(model(**sample["net_input"]), log_probs=True)
        distributions.append(log_probs[0].double().exp())
        targets.append(sample["target"][0])
    if kind != "adaptive":
        assert checkpoint.output_embedding.weight.equal(output_layer(model).weight)
    probabilities, target = torch.cat(distributions), torch.cat(targets)  # N x V, N
    groups = BinarizedVocabulary.load(data, pair).groups("types")
    group_ids = groups.group_ids % (len(groups.names) + 1)  # special tokens are the last group
    mass = probabilities @ torch.nn.functional.one_hot(group_ids).double()
    nll = -probabilities.gather(1, target[:, None]).squeeze(1).log()
    group_nll = -mass.gather(1, group_ids[target][:, None]).squeeze(1).log()
    for index, name in enumerate((*groups.names, "total")):
        chosen = (group_ids[target] == index) | (name == "total")
        assert result.facts["targets"][name] == chosen.sum()
        for measure, position_nll in (
            ("perplexity", nll),
            ("group_perplexity", group_nll),
            ("within_perplexity", nll - group_nll),
        ):
            expected = position_nll[chosen].mean().exp().item()
            expected = pytest.approx(expected, rel=1e-5) if chosen.any() else None
            assert row[measure][name] == expected


def test_a_pruned_model_is_the_one_that_was_trained(lm_data, tmp_path):
    """Two layers were kept of three, as fairseq loads them by --model-overrides."""
    kept = "--decoder-layers 3 --decoder-layers-to-keep 0,2"
    pruned = random_checkpoint(tmp_path / "pruned.pt", lm_data, *LM, kept)
    whole = random_checkpoint(tmp_path / "two.pt", lm_data, *LM, "--decoder-layers 2")
    whole.state["model"] = pruned.state["model"]
    rows = perplexity({"pruned": pruned, "whole": whole}, BinarizedText(lm_data)).rows
    assert rows["pruned"]["perplexity"] == rows["whole"]["perplexity"]


def test_chunks_of_logits_change_no_number(runs, lm_data, monkeypatch):
    options = {"calibrate": BinarizedText(lm_data), "device": "cpu"}
    model, text = {"agg": runs["agg"]}, BinarizedText(lm_data, "valid")
    whole = perplexity(model, text, **options)["agg"]
    scoring = sys.modules["agg_fairseq.fairseq_plugin.scoring"]
    monkeypatch.setattr(scoring, "chunk_rows", lambda w: 7)
    chunked = perplexity(model, text, **options)["agg"]
    for measure in ("perplexity", "calibrated_perplexity", "unique_predictions"):
        assert chunked[measure] == pytest.approx(whole[measure], rel=1e-6)


def test_special_tokens_are_frequent_as_published(runs, lm_data):
    """All targets are then in a group: the groups' losses make up the total's."""
    text, summed = BinarizedText(lm_data, "valid"), 0.0
    result = perplexity({"mle": runs["mle"]}, text, as_published=True)
    assert "types,special-tokens-frequent" in result.signature
    targets, ppl = dict(result.facts["targets"]), result["mle"]["perplexity"]
    total = targets.pop("total")
    assert total == sum(targets.values())
    for group, number in targets.items():
        summed += number * math.log(ppl[group]) if number else 0.0
    assert math.exp(summed / total) == pytest.approx(ppl["total"])


def test_perplexity_refuses_models_and_texts(runs, lm_data, mt_data, tmp_path):
    text = BinarizedText(lm_data)
    positions = "--max-source-positions 6 --max-target-positions 6"
    short = random_checkpoint(tmp_path / "6.pt", mt_data, *MT, positions)
    part = random_checkpoint(tmp_path / "p.pt", lm_data, *LM, "--output-dictionary-size 20")
    blocks, pairs = BinarizedText(lm_data, tokens_per_sample=17), BinarizedText(mt_data, "train")
    for models, scored, fit_text, message in (
        ({"human": runs["mle"]}, text, None, "found 'human', a row of its own"),
        (runs, text, BinarizedText(lm_data, "dev"), "found no split 'dev'"),
        (runs, PlainText("test.txt"), None, "models of fairseq alone with --data"),
        ({"m": short}, pairs, None, "train: found [0-9]+ of 80 pairs of more than 6 or 6 tokens"),
        (runs, blocks, None, "found 17, 0 of them context, and 16 positions of the model"),
        ({"m": part}, text, None, "p.pt: found --output-dictionary-size 20"),
    ):
        with pytest.raises(UserError, match=message):
            perplexity(models, scored, calibrate=fit_text)


def test_columns_of_the_command(lm_runs, lm_data, tmp_path):
    start = ("eval-lm", lm_runs / "mle", "--split valid")
    shown = [*(f"PPL within {group}" for group in GROUPS), "E/O rare", "IsoScore"]
    calibrated = ["calibrated PPL total", "calibrated PPL rare", "calibrated E/O rare"]
    header, rows = table(run(*start, "--data", lm_data, "--calibrate test"))
    assert header == ["", "PPL total", *shown, *calibrated]
    assert (rows[0][0], rows[1][0], len(rows)) == ("mle", "unigram", 2)
    header, rows = table(run(*start, "--data", lm_data, "--full"))
    assert {"PPL rare", "PPL group rare", "Uniq total", "I(W−μ)"} < set(header)
    assert rows[1][0] == "human" and "calibrated PPL rare" not in header
    assert "found neither --data nor --text" in refused(*start)


CALIBRATED = {
    "fixed": (*UNIGRAM, "--unigram-bias fixed"),
    "learned": (*UNIGRAM, "--unigram-bias learned"),
    "tied": (*LM, TIED),
    "half precision, as older versions name it": LM,
}


@pytest.mark.grid(2)
@pytest.mark.parametrize("kind", CALIBRATED)
def test_the_calibrated_checkpoint_is_the_predicted_model(kind, lm_data, tmp_path):
    """On any split, its measures are those that `perplexity` predicts with offsets."""
    before = random_checkpoint(tmp_path / "before.pt", lm_data, *CALIBRATED[kind])
    before.state["extra_state"] |= {"best": 1.0, "val_loss": 1.0}
    if kind.startswith("half precision"):
        for name, parameter in before.parameters.items():
            before.parameters[name] = parameter.bfloat16()
        weight = before.parameters.pop("decoder.output_projection.weight")
        before.parameters["decoder.embed_out"] = weight
    fitted = calibrate(before, lm_data, tmp_path / "after.pt", split="test", device="cpu")
    after = Checkpoint(tmp_path / "after.pt")
    models = {"before": before, "after": after}
    text, test_text = BinarizedText(lm_data, "valid"), BinarizedText(lm_data)
    expected, found, *_ = perplexity(models, text, calibrate=test_text).rows.values()
    for measure in ("perplexity", "expected_over_observed"):
        assert found[measure] == pytest.approx(expected[f"calibrated_{measure}"], rel=1e-4)
    assert found["within_perplexity"] == pytest.approx(expected["within_perplexity"], rel=1e-4)
    assert list(found["offsets"].values()) == pytest.approx([0, 0, 0], abs=1e-4), "what is left"
    assert fitted.facts["offsets"] == pytest.approx(expected["offsets"])
    assert not {"best", "val_loss"} & set(after.state["extra_state"])


def test_groups_by_occurrences_in_another_text(lm_runs, lm_data, prepared_data, tmp_path):
    """One word occurs 100 times there, ten once, the others never. A quarter of each group's offset
    is saved in the model."""
    text = ["w0 " * 100, "w1 w2 w3 w4 w5 w6 w7 w8 w9 w10"]
    other = binarized(tmp_path, text, f"--srcdict={lm_data / 'dict.txt'}")
    mle, agg = open_models([lm_runs / "mle", lm_runs / "agg"]).values()
    fitted = {"calibrate": BinarizedText(lm_data), "occurrences_in": other, "shares": [0.25]}
    fitted["moved_from"], text = mle, BinarizedText(lm_data, "valid")
    result = perplexity({"mle": mle, "agg": agg}, text, **fitted)
    sizes = result.facts["groups"]
    assert (sizes["100 or more"], sizes["1 to 99"]) == (1, 10) and sizes["absent"] > 9
    row = load_dictionary(lm_data).index("w0")
    before, after = (model.output_embedding.weight[row] for model in (mle, agg))
    moved = ((after - before).norm() / before.norm()).item()
    assert result["agg"]["moved"]["100 or more"] == pytest.approx(moved)
    assert not any(result["mle"]["moved"].values())
    quarter, options = tmp_path / "quarter.pt", ("--data", lm_data, "--occurrences-in", other)
    saved = ("--split test --share 0.25 -o", quarter)
    printed = run("calibrate", lm_runs / "agg", *options, *saved)
    assert "| as it was " in printed and "\nfitted-on:test|targets:" in printed
    assert f"|share:0.25|occurrences-in:{other}|" in printed
    found = perplexity({"m": Checkpoint(quarter)}, text, **fitted)["m"]
    for group, offset in result["agg"]["offsets"].items():
        assert found["offsets"][group] == pytest.approx(0.75 * offset, abs=1e-4)
    for measure in ("perplexity", "expected_over_observed"):
        assert result["agg, 25%"][measure] == pytest.approx(found[measure], rel=1e-4)
    for *options, words in (
        (prepared_data / "data-bin", "found another dictionary"),
        (other, "--groups frequency", "--groups: found it with --occurr"),
    ):
        command = ("eval-lm", lm_runs / "mle", "--data", lm_data, "--occurrences-in")
        assert words in refused(*command, *options)


def test_calibrate_refuses_models_and_texts(lm_data, mt_data, tmp_path):
    for kind, data, words in (
        ("f2", lm_data, "found a model transformer_lm_f2"),
        ("translation", mt_data, "found no .* targets.*; give a text with some of each"),
    ):
        model = random_checkpoint(tmp_path / f"{kind}.pt", data, *KINDS[kind])
        with pytest.raises(UserError, match=words):
            calibrate(model, data, tmp_path / "out.pt", occurrences_in=data)
