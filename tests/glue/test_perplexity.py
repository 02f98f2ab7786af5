"""`evaluation.perplexity` against the definitions, with every kind of output layer, and its
command."""

import sys

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from agg_fairseq.checkpoints import Checkpoint, open_models
from agg_fairseq.cli.main import main
from agg_fairseq.data.binarized import load_dictionary
from agg_fairseq.data.vocabulary import BinarizedVocabulary
from agg_fairseq.errors import UserError
from agg_fairseq.evaluation import (
    BinarizedText,
    PlainText,
    calibrate,
    generate_texts,
    perplexity,
)
from agg_fairseq.fairseq_plugin.models.from_checkpoint import build_model
from tests.commands import changed, read_result, refused, run, save_model
from tests.conftest import preprocessed, read_lines
from tests.small_trainings import F2_LM, LM, MT

GROUPS = ("frequent", "medium", "rare")
KINDS = {
    "softmax": (*LM, "--criterion", "mle"),
    "label-smoothed": (*LM, "--criterion", "mle", "--label-smoothing", "0.1"),
    "adaptive": (
        *LM,
        *"--criterion adaptive_loss --ddp-backend legacy_ddp "
        "--adaptive-softmax-cutoff 20,40".split(),
    ),
    "bias": (*LM, "--arch", "transformer_lm_unigram", "--criterion", "mle"),
    "f2": (*F2_LM, "--criterion", "f2_softmax"),
    "translation": (*MT, "--criterion", "mle"),
}


def random_checkpoint(path, data, options):
    """A model with random weights, large enough that its predictions differ from position to
    position."""
    return Checkpoint(save_model(path, data, *options, base=(), std=0.5))


@pytest.fixture
def runs(lm_runs):
    return open_models([lm_runs / name / "checkpoint_last.pt" for name in ("mle", "agg")])


def literal(checkpoint, data, split):
    """All distributions of a split in float64 (N, V), and the targets (N,)."""
    model, task = build_model(checkpoint, data)
    task.load_dataset(split)
    dataset = task.dataset(split)
    distributions, targets = [], []
    for number in range(len(dataset)):
        sample = dataset.collater([dataset[number]])
        with torch.no_grad():
            output = model(**sample["net_input"])
            distributions.append(
                model.get_normalized_probs(output, log_probs=True)[0].double().exp()
            )
        targets.append(sample["target"][0])
    return torch.cat(distributions), torch.cat(targets)


@pytest.mark.parametrize("kind", KINDS)
def test_against_the_definition(kind, lm_data, mt_data, tmp_path):
    data, pair, fitted_on = lm_data, None, "test"
    if kind == "translation":
        data, pair = mt_data, ("en", "de")
    checkpoint = random_checkpoint(tmp_path / "model.pt", data, KINDS[kind])
    fitted = BinarizedText(data, fitted_on)
    result = perplexity(
        {"model": checkpoint}, BinarizedText(data, "valid"), calibrate=fitted, device="cpu"
    )
    row = result["model"]
    assert (result.value("model", "isoscore", "total") is None) == (kind == "adaptive")

    probabilities, target = literal(checkpoint, data, "valid")
    members = BinarizedVocabulary.load(data, pair).groups("types")
    # the last: special tokens
    names = members.names
    group_of_token = members.of_token.where(members.of_token >= 0, len(names))
    # N x (G + 1)
    mass = [probabilities[:, group_of_token == index].sum(1) for index in range(len(names) + 1)]
    mass = torch.stack(mass, 1)
    group = group_of_token[target]
    nll, group_nll = (
        -p.gather(1, of[:, None]).squeeze(1).log()
        for p, of in ((probabilities, target), (mass, group))
    )
    for index, name in enumerate((*names, "total")):
        chosen = group == index if name != "total" else torch.ones_like(group, dtype=torch.bool)
        observed = int(chosen.sum())
        assert result.facts["targets"][name] == observed
        perplexities = [
            row[measure][name]
            for measure in ("perplexity", "group_perplexity", "within_perplexity")
        ]
        if not observed:
            assert perplexities == [None] * 3
            continue
        expected = [one[chosen].mean().exp().item() for one in (nll, group_nll, nll - group_nll)]
        assert perplexities == pytest.approx(expected, rel=1e-5)
        assert perplexities[0] == pytest.approx(perplexities[1] * perplexities[2], rel=1e-12)
        whole = probabilities.sum() if name == "total" else mass[:, index].sum()
        assert row["expected_over_observed"][name] == pytest.approx(
            whole.item() / observed, rel=1e-5
        )
        gains = torch.tensor([*(row["offsets"][name] for name in names), 0], dtype=torch.float64)
        normalizer = (mass * gains.exp()).sum(1)
        calibrated = (nll - gains[group] + normalizer.log())[chosen].mean().exp()
        assert row["calibrated_perplexity"][name] == pytest.approx(calibrated.item(), rel=1e-5)
        assert f"|calibrated-on:{fitted_on}|" in result.signature
        assert row["offsets"]["frequent"] == 0


def test_a_pruned_model_is_what_was_trained(lm_data, tmp_path):
    """Of two layers that were kept of three, as fairseq loads it by --model-overrides."""
    options = (*LM, "--criterion", "mle", "--decoder-layers")
    kept = (*options, 3, "--decoder-layers-to-keep", "0,2")
    pruned = random_checkpoint(tmp_path / "pruned.pt", lm_data, kept)
    whole = random_checkpoint(tmp_path / "two.pt", lm_data, (*options, 2))
    whole.state["model"] = pruned.state["model"]
    results = [perplexity({"m": model}, BinarizedText(lm_data)) for model in (pruned, whole)]
    assert results[0]["m"]["perplexity"] == results[1]["m"]["perplexity"]


def test_is_formed_in_chunks(runs, lm_data, monkeypatch):
    """No tensor of a batch is larger than a chunk of logits or than W, and the numbers are the
    same."""
    text = BinarizedText(lm_data, "valid")
    options = {"calibrate": BinarizedText(lm_data), "device": "cpu"}
    whole, sizes = perplexity({"agg": runs["agg"]}, text, **options), []
    monkeypatch.setattr(
        sys.modules["agg_fairseq.fairseq_plugin.scoring"], "chunk_rows", lambda w: 7
    )

    class Sizes(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), options=None):
            found = function(*arguments, **(options or {}))
            sizes.append(found.numel() if isinstance(found, torch.Tensor) else 0)
            return found

    with Sizes():
        chunked = perplexity({"agg": runs["agg"]}, text, **options)
    for measure in chunked.columns:
        assert chunked["agg"][measure] == pytest.approx(whole["agg"][measure], rel=1e-6)
    assert max(sizes) < chunked["agg"]["tokens"] * 64, "the logits of the whole batch"


def test_perplexity_refuses_models_and_texts(runs, lm_data):
    text = BinarizedText(lm_data)
    for models, scored, fitted_on, message in (
        ({"human": runs["mle"]}, text, None, "found 'human', a row of its own"),
        (runs, text, BinarizedText(lm_data, "dev"), "found no split 'dev'"),
        (
            runs,
            PlainText("test.txt"),
            None,
            "found a model of fairseq; expected models of fairseq alone with --data",
        ),
    ):
        with pytest.raises(UserError, match=message):
            perplexity(models, scored, calibrate=fitted_on)


def test_what_a_model_cannot_read_is_refused(runs, mt_data, lm_data, tmp_path):
    """A model of few positions cannot read long pairs or blocks; without them it would seem the
    better one."""
    positions = ("--max-source-positions", 6, "--max-target-positions", 6)
    short = random_checkpoint(tmp_path / "6.pt", mt_data, (*KINDS["translation"], *positions))
    with pytest.raises(
        UserError, match="train: found [0-9]+ of 80 pairs of more than 6 or 6 tokens"
    ):
        perplexity({"short": short}, BinarizedText(mt_data, "train"))
    with pytest.raises(
        UserError, match="found 17, 0 of them context, and 16 positions of the model"
    ):
        perplexity(runs, BinarizedText(lm_data, "valid", tokens_per_sample=17))
    part = random_checkpoint(tmp_path / "p.pt", lm_data, (*LM, "--output-dictionary-size", 20))
    with pytest.raises(
        UserError, match="p.pt: found --output-dictionary-size 20; expected a model"
    ):
        perplexity({"part": part}, BinarizedText(lm_data))
    texts = {"prefix_length": 8, "length": 9, "max_texts": 1}
    found = generate_texts(runs["mle"], lm_data, tmp_path / "o", **texts)
    assert "|length:9|beyond-positions:16|" in found.signature, "sinusoids go on"
    learned = random_checkpoint(tmp_path / "l.pt", lm_data, (*LM, "--decoder-learned-pos"))
    with pytest.raises(UserError, match="found 16 positions; expected 17, as many as a text has"):
        generate_texts(learned, lm_data, tmp_path / "o", **texts)


def test_the_command(lm_runs, lm_data, tmp_path, capsys):
    start = ("eval-lm", lm_runs / "mle", "--split", "valid")
    headers = []
    for options in ((), ("--full",), ("--calibrate", "test", "--json", tmp_path / "o.json")):
        printed = run(capsys, *start, "--data", lm_data, *options)
        assert ("| human " in printed) == (options == ("--full",))
        headers.append([cell.strip() for cell in printed.splitlines()[0].split("|")[2:-1]])
    short = ["PPL total", *(f"PPL within {group}" for group in GROUPS), "E/O rare", "IsoScore"]
    calibrated = ["calibrated PPL total", "calibrated PPL rare", "calibrated E/O rare"]
    assert headers[0] == short and headers[2] == short + calibrated
    assert {"PPL rare", "PPL group rare", "Uniq total", "I(W−μ)"} < set(headers[1])
    assert set(read_result(tmp_path / "o.json")["mle"]["offsets"]) == set(GROUPS)
    assert "found a model of fairseq; expected models of fairseq alone with --data" in refused(
        capsys, *start
    )


# `agg-fairseq calibrate`: a checkpoint with one offset per group, which every tool loads.

UNIGRAM = [*LM, "--arch", "transformer_lm_unigram", "--criterion", "mle"]
CALIBRATED = {
    "no bias": (*LM, "--criterion", "mle"),
    "tied": (*LM, "--criterion", "mle", "--share-decoder-input-output-embed"),
    "fixed": (*UNIGRAM, "--unigram-bias", "fixed"),
    "learned": (*UNIGRAM, "--unigram-bias", "learned"),
}


@pytest.mark.parametrize("kind", CALIBRATED)
def test_the_checkpoint_is_the_calibrated_model(kind, lm_data, tmp_path, capsys):
    """Its measures on any split are those that eval-lm --calibrate predicts; within the groups
    nothing changes."""
    before = random_checkpoint(tmp_path / "before.pt", lm_data, CALIBRATED[kind])
    arguments = [
        "calibrate", tmp_path / "before.pt", "--data", lm_data, "--output", tmp_path / "after.pt",
    ]  # fmt: skip
    assert main([*map(str, arguments), "--split", "test"]) == 0
    assert "| as it was " in capsys.readouterr().out
    after = Checkpoint(tmp_path / "after.pt")
    expected, found = (
        perplexity(
            {"m": model},
            BinarizedText(lm_data, "valid"),
            calibrate=BinarizedText(lm_data),
            device="cpu",
        )
        for model in (before, after)
    )
    # those that are left
    assert list(found["m"]["offsets"].values()) == pytest.approx([0, 0, 0], abs=1e-4)
    one, other = expected["m"], found["m"]
    for measure in ("perplexity", "expected_over_observed"):
        assert other[measure] == pytest.approx(one[f"calibrated_{measure}"], rel=1e-4)
    assert other["within_perplexity"] == pytest.approx(one["within_perplexity"], rel=1e-4)


def test_by_the_occurrences_in_another_text(lm_runs, lm_data, prepared_data, tmp_path, capsys):
    """One word occurs 100 times there, ten once, the others never; the offset of each group is
    saved in the model."""
    text = ["w0 " * 100, " ".join(f"w{number}" for number in range(1, 11))]
    other = preprocessed(
        tmp_path,
        dict.fromkeys(("train", "valid", "test"), text),
        "--only-source",
        f"--srcdict={lm_data / 'dict.txt'}",
    )
    options = ("--data", lm_data, "--occurrences-in", other)
    run(
        capsys, "eval-lm", lm_runs / "mle", lm_runs / "agg", *options, "--split", "valid", "--calibrate", "test",
        "--moved-from", lm_runs / "mle", "--json", tmp_path / "o.json",
    )  # fmt: skip
    result = read_result(tmp_path / "o.json")
    before, after = (Checkpoint(lm_runs / name).output_embedding.weight for name in ("mle", "agg"))
    dictionary = load_dictionary(lm_data)
    words = {dictionary.index(line.split()[0]) for line in read_lines(lm_data / "dict.txt")}
    rows = {row for row in words if not dictionary[row].startswith("madeupword")}
    rows -= {dictionary.index(f"w{number}") for number in range(11)}
    assert result.facts["groups"] == {"100 or more": 1, "1 to 99": 10, "absent": len(rows)}
    moved = (after - before)[sorted(rows)].norm() / before[sorted(rows)].norm()
    assert result["agg"]["moved"]["absent"] == pytest.approx(moved.item())
    assert not any(result["mle"]["moved"].values())
    assert "found another dictionary" in refused(
        capsys, "eval-lm", lm_runs / "mle", "--data", lm_data, "--occurrences-in",
        prepared_data / "data-bin",
    )  # fmt: skip
    assert "--groups: found it with --occurrences-in" in refused(
        capsys, "eval-lm", lm_runs / "mle", *options, "--groups", "frequency"
    )
    calibrated = ("calibrate", lm_runs / "agg", *options, "--split", "test")
    run(capsys, *calibrated, "-o", tmp_path / "after.pt")
    assert "--share: found '25'; expected a number in (0, 1]" in refused(
        capsys, *calibrated, "--share", 25, "-o", tmp_path / "no.pt"
    )
    run(capsys, *calibrated, "--share", 0.25, "-o", tmp_path / "quarter.pt")
    quarter = perplexity(
        open_models([tmp_path / "quarter.pt"], ["agg"]), BinarizedText(lm_data, "valid"),
        calibrate=BinarizedText(lm_data), occurrences_in=other,
    )  # fmt: skip
    for group, offset in result["agg"]["offsets"].items():
        assert quarter["agg"]["offsets"][group] == pytest.approx(0.75 * offset, abs=1e-4)
    shares = perplexity(
        open_models([lm_runs / "agg"], ["agg"]), BinarizedText(lm_data, "valid"), calibrate=BinarizedText(lm_data),
        shares=[0.25], occurrences_in=other,
    )  # fmt: skip
    for measure in ("perplexity", "expected_over_observed"):
        assert shares["agg, 25%"][measure] == pytest.approx(quarter["agg"][measure], rel=1e-4)
    saved = perplexity(
        open_models([tmp_path / "after.pt"], ["agg"]), BinarizedText(lm_data, "valid")
    )
    assert saved.value("agg", "perplexity", "total") == pytest.approx(
        result.value("agg", "calibrated_perplexity", "total"), rel=1e-4
    )


def test_a_checkpoint_in_half_precision(lm_runs, lm_data, tmp_path):
    """The saved model is the one that the table shows, without the best validation of the old
    one."""
    half = changed(
        lm_runs / "agg" / "checkpoint_best.pt",
        tmp_path / "half.pt",
        lambda state: state.update(
            model={name: one.bfloat16() for name, one in state["model"].items()}
        ),
    )
    result = calibrate(Checkpoint(half), lm_data, tmp_path / "after.pt", split="test", device="cpu")
    after = Checkpoint(tmp_path / "after.pt")
    found = perplexity({"m": after}, BinarizedText(lm_data), device="cpu")["m"]
    for measure in ("perplexity", "expected_over_observed"):
        assert found[measure] == pytest.approx(result["calibrated"][measure], rel=1e-5)
    assert not {"best", "val_loss"} & set(after.state["extra_state"])


def test_what_cannot_be_calibrated(lm_data, mt_data, tmp_path):
    f2 = random_checkpoint(tmp_path / "f2.pt", lm_data, KINDS["f2"])
    with pytest.raises(
        UserError, match="found a model transformer_lm_f2; expected a transformer_lm or transformer"
    ):
        calibrate(f2, lm_data, tmp_path / "out.pt")
    pairs = random_checkpoint(tmp_path / "mt.pt", mt_data, KINDS["translation"])
    with pytest.raises(
        UserError, match="found no .* targets.*; give a text with some of each group"
    ):
        calibrate(pairs, mt_data, tmp_path / "out.pt", occurrences_in=mt_data)
