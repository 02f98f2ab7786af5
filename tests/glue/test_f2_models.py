"""Models with the factorized output layer inside fairseq's own task, trainer and generator."""

import argparse
import copy
import math

import pytest
import torch
from torch.testing import assert_close

from agg_fairseq.checkpoints import Checkpoint
from agg_fairseq.data.vocabulary import BinarizedVocabulary
from agg_fairseq.f2 import choose_class, equal_frequency, equal_token, mefmax
from agg_fairseq.functional import cosine_regularizer
from tests.commands import save_model
from tests.conftest import call, called
from tests.small_trainings import (
    COMMON,
    F2_LM,
    F2_MT,
    TIED,
    batches,
    build,
    configuration,
    logged,
    target_counts,
)

PAD, BOS, EOS = 1, 0, 2


def test_classes_follow_the_target_side_counts(mt_data, lm_data):
    """A joined dictionary is sorted by the counts of both languages; the classes are not."""
    task, model = build(mt_data, "--criterion", "f2_softmax", base=F2_MT)[1:3]
    counts = target_counts(mt_data, task.target_dictionary)
    found = model.decoder.output_projection.class_of_token
    assert (counts[4:] == 0).any() and not (counts[4:].diff() <= 0).all(), (
        "else this test shows nothing"
    )
    assert torch.equal(found, mefmax(counts))
    ranked = found[counts.argsort(descending=True, stable=True)]
    assert (ranked.diff() >= 0).all(), "more frequent targets are in earlier classes"
    for data, base, name, assign, number in (
        (lm_data, F2_LM, "equal-token", equal_token, 5),
        (mt_data, F2_MT, "equal-frequency", equal_frequency, 2),
    ):
        options = ("--f2-assignment", name, "--f2-classes", number)
        task, model = build(data, "--criterion", "f2_softmax", *options, base=base)[1:3]
        layer = model.decoder.output_projection
        assert torch.equal(
            layer.class_of_token, assign(target_counts(data, task.target_dictionary), number)
        )
        assert len(layer.class_weight) == number


@pytest.mark.parametrize(
    ("base", "smoothing", "options"),
    [
        (F2_LM, 0.0, ("--sentence-avg", TIED)),
        (F2_LM, 0.1, ()),
        (F2_MT, 0.0, ()),
        (F2_MT, 0.1, ("--sentence-avg", TIED)),
    ],
)
def test_loss_and_gradients_equal_those_of_fairseqs_criterion(
    lm_data, mt_data, base, smoothing, options
):
    """The same model: fairseq's criterion reads the joint log-probabilities, ours the target's
    class only."""
    data = lm_data if base is F2_LM else mt_data
    ours = ("--criterion", "f2_softmax", "--label-smoothing", smoothing, *options)
    cfg, task, model, criterion = build(data, *ours, base=base)
    theirs = (
        ("label_smoothed_cross_entropy", "--label-smoothing", smoothing)
        if smoothing
        else ("cross_entropy",)
    )
    reference = task.build_criterion(
        configuration(data, "--criterion", *theirs, *options, base=base).criterion
    )
    model.double()
    logs, expected_logs = [], []
    for batch in batches(cfg, task)[:3]:
        found, expected = criterion(model, batch), reference(model, batch)
        assert_close(found[0].double(), expected[0].double(), rtol=1e-6, atol=1e-5)
        assert (
            found[1]
            == expected[1]
            == (len(batch["target"]) if "--sentence-avg" in options else batch["ntokens"])
        )
        parameters = list(model.parameters())
        gradients = (
            torch.autograd.grad(found[0], parameters),
            torch.autograd.grad(expected[0], parameters),
        )
        # fairseq's log-softmax is of float32
        assert_close(*gradients, rtol=1e-4, atol=1e-5)
        logs.append(found[2])
        expected_logs.append(expected[2])
    found, expected = logged(criterion, logs), logged(reference, expected_logs)
    assert found["ppl"] == pytest.approx(expected["ppl"], rel=1e-4)
    assert found["loss"] == pytest.approx(expected["loss"], abs=0.0011)
    if not options:
        assert found["nll_loss"] == pytest.approx(
            expected.get("nll_loss", expected["loss"]), abs=0.0011
        )
    assert found["class_nll"] > 0 and found["token_nll"] > 0
    assert found["class_nll"] + found["token_nll"] == pytest.approx(found["nll_loss"], abs=0.0021)


def test_the_cosine_regularizer_is_added(lm_data):
    cfg, task, model, criterion = build(
        lm_data, "--criterion", "f2_softmax", "--cosreg-gamma", 3, base=F2_LM
    )
    batch, weight = batches(cfg, task)[0], model.decoder.output_projection.weight
    loss, size, log = criterion(model.eval(), batch)
    assert log["cosreg"] == cosine_regularizer(weight, ignore_index=1) != 0
    assert_close(loss, log["nll_loss"] + 3 * size * log["cosreg"])


GENERATORS = {
    "beam": {"beam": 4},
    "top-k": {"beam": 2, "sampling": True, "sampling_topk": 10},
    "min-len top-p": {"beam": 1, "min_len": 3, "sampling": True, "sampling_topp": 0.9},
    "no repeats top-k": {
        "beam": 2,
        "no_repeat_ngram_size": 1,
        "sampling": True,
        "sampling_topk": 10,
    },
    "cold": {"beam": 2, "temperature": 0.2, "min_len": 3},
    "prefix top-k": {"beam": 2, "prefix": 2, "sampling": True, "sampling_topk": 3},
}


@pytest.mark.grid(2)
def test_fine_tuning_a_model_of_the_ordinary_softmax(lm_data, tmp_path):
    """W is kept, and U is each class's mean row of W, weighted by the counts; fairseq-train goes on
    from there."""
    start, saved = save_model(tmp_path / "mle.pt", lm_data, TIED, updates=20), tmp_path / "f2"
    arguments = (*F2_LM, *COMMON, TIED, "--criterion", "f2_softmax", "--finetune-from-model", start)
    arguments = [argument for argument in arguments if argument != "--no-save"]
    log = called("train", lm_data, *arguments, "--lr", 0, "--max-update", 1, "--save-dir", saved)
    assert "class_nll" in log
    before, after = (Checkpoint(path) for path in (start, saved / "checkpoint_last.pt"))
    assert all(
        torch.equal(after.parameters[name], value) for name, value in before.parameters.items()
    )
    counts = BinarizedVocabulary.load(lm_data, None).counts
    of_token = after.parameters["decoder.output_projection.class_of_token"].long()
    assert torch.equal(of_token, mefmax(counts))
    for number, row in enumerate(after.parameters["decoder.output_projection.class_weight"]):
        members = before.output_embedding.weight[of_token == number]
        share = counts[of_token == number].float()
        expected = (share @ members) / share.sum() if share.sum() else members.mean(0)
        # tokens that do not occur count a thousandth
        assert_close(row, expected, rtol=1e-2, atol=1e-4)
    others = (
        *F2_LM, *COMMON, TIED, "--criterion", "f2_softmax", "--f2-assignment", "equal-token",
        "--f2-classes", 9,
    )  # fmt: skip
    status, _, _, err = call(
        "train", lm_data, *others, "--finetune-from-model", saved / "checkpoint_last.pt"
    )
    assert status == 2 and "--f2-classes: found 9; the checkpoint has" in err


@pytest.mark.parametrize(
    ("first", "decoding"),
    [
        ([5, 6, 7], "sample-class"),
        ([EOS], "greedy-class"),
        ([EOS], "joint"),
        ([10], "sample-class"),
        ([PAD, BOS], "greedy-class"),
        (None, "joint"),
        (None, "sample-class"),
    ],
)
def test_generators_with_classes_that_leave_little_choice(mt_data, first, decoding):
    """Whatever is forbidden: no NaN, no padding, an end. The first class is nearly always the
    likeliest, and is small, or each token is a class. (Where the only likely token of a joint
    distribution is forbidden, fairseq cannot draw.)
    """
    cfg, task, model, _ = build(
        mt_data, "--criterion", "f2_softmax", "--f2-decoding", decoding, base=F2_MT
    )
    batch = batches(cfg, task, "test")[0]
    classes = torch.arange(len(task.target_dictionary))
    if first is not None:
        classes = (classes % 4 + 1).index_fill_(0, torch.tensor(first), 0)
    for strength in (1.5,) if decoding == "joint" else (1.5, 20):
        favor_the_first_class(model, cfg, task, classes, strength)
        for options in GENERATORS.values():
            hypotheses = generate(task, model, batch, **options)
            assert len(hypotheses) == len(batch["id"])
            for target, of_sentence in zip(batch["target"], hypotheses, strict=True):
                assert 1 <= len(of_sentence) <= options["beam"], options
                for hypothesis in of_sentence:
                    check_hypothesis(hypothesis, target.tolist(), **options)


def favor_the_first_class(model, cfg, task, classes, strength):
    """Gives the layer these classes, and U a first row along the features: their log p1 differs by
    8 x strength."""
    layer = model.decoder.output_projection
    layer.assign(classes)
    model.eval()
    with torch.no_grad():
        features = model(**batches(cfg, task)[0]["net_input"], features_only=True)[0]
        direction = features.mean((0, 1))
        layer.class_weight.mul_(0.01)
        layer.class_weight[0] += strength * direction / direction.norm()
        chosen = choose_class(features, layer.class_weight, sample=False)
    assert (chosen == 0).float().mean() > 0.9


def generate(task, model, batch, prefix=0, **options):
    """By fairseq's generator, as its command line builds it."""
    generator = task.build_generator(
        [model], argparse.Namespace(max_len_a=0, max_len_b=8, **options)
    )
    prefixes = batch["target"][:, :prefix] if prefix else None
    return generator.generate([model], copy.deepcopy(batch), prefix_tokens=prefixes)


def check_hypothesis(hypothesis, target, prefix=0, min_len=1, **options):
    tokens = hypothesis["tokens"].tolist()
    assert tokens[-1] == EOS and tokens.count(EOS) == 1 and min_len < len(tokens) <= 9, options
    assert PAD not in tokens and tokens[:prefix] == target[:prefix], options
    assert hypothesis["score"].isfinite() and hypothesis["positional_scores"].isfinite().all(), (
        options
    )


def test_decoupled_greedy_search_by_hand(mt_data):
    """The likeliest class, then its likeliest token, step by step over the joint distribution of
    full forwards."""
    cfg, task, model, _ = build(
        mt_data, "--criterion", "f2_softmax", "--f2-decoding", "greedy-class", base=F2_MT
    )
    model.eval()
    layer = model.decoder.output_projection
    batch = batches(cfg, task, "test")[0]
    hypotheses = generate(task, model, batch, beam=1)
    inputs = {key: batch["net_input"][key] for key in ("src_tokens", "src_lengths")}
    differs = False
    for index, (hypothesis,) in enumerate(hypotheses):
        tokens, scores = [EOS], []
        while len(tokens) < 9 and tokens[1:].count(EOS) == 0:
            with torch.no_grad():
                source = {key: value[index : index + 1] for key, value in inputs.items()}
                joint = model(**source, prev_output_tokens=torch.tensor([tokens]))[0][0, -1]
            mass = torch.zeros(len(layer.class_weight)).index_add_(
                0, layer.class_of_token, joint.exp()
            )
            inside = joint.masked_fill(layer.class_of_token != mass.argmax(), -math.inf)
            inside[PAD] = -math.inf
            tokens.append(int(inside.argmax()))
            scores.append(float(inside.max() - mass.max().log()))
            differs |= bool(joint.argmax() != inside.argmax())
        found = hypothesis["tokens"].tolist()
        expected = tokens[1:] if tokens[-1] == EOS else [*tokens[1:], EOS]
        assert found == expected
        assert hypothesis["positional_scores"][: len(scores)].tolist() == pytest.approx(
            scores, abs=1e-4
        )
    assert differs, "the joint distribution would have gone another way"


def test_scoring_is_joint_whatever_the_decoding(lm_data):
    """Without an incremental state, in training and in evaluation; features are features with
    either."""
    model = build(
        lm_data, "--criterion", "f2_softmax", "--f2-decoding", "greedy-class", base=F2_LM
    )[2].eval()
    tokens, state = torch.randint(4, 60, (3, 7)), {}
    with torch.no_grad():
        features, _ = model(tokens, features_only=True)
        expected = model.decoder.output_projection.log_prob(features)
        assert_close(model(tokens)[0], expected)
        normalized = model.get_normalized_probs(model(tokens), log_probs=True)
        assert_close(normalized, expected, rtol=1e-5, atol=1e-5)
        steps = [
            model.decoder(tokens[:, :n], incremental_state=state, features_only=True)[0]
            for n in range(1, 8)
        ]
        assert_close(torch.cat(steps, 1), features, rtol=1e-4, atol=1e-5)
        model.train()
        assert_close(model(tokens)[0], expected)  # dropout is 0
