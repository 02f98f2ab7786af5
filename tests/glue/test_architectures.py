"""fairseq's transformers with another output layer, in its task, trainer and generator."""

import argparse
import math

import pytest
import torch
from torch.testing import assert_close

from agg_fairseq.checkpoints import Checkpoint
from agg_fairseq.data.vocabulary import BinarizedVocabulary
from agg_fairseq.f2 import equal_token, mefmax
from agg_fairseq.functional import cosine_regularizer, log_unigram
from tests.commands import save_model
from tests.conftest import call, called
from tests.small_trainings import (
    COMMON,
    F2_LM,
    F2_MT,
    LM,
    MT,
    TIED,
    batches,
    build,
    logged,
    target_counts,
)

PAD, EOS = 1, 2
UNIGRAM_LM = [*LM, "--arch transformer_lm_unigram"]
UNIGRAM_MT = [*MT, "--arch transformer_unigram_tiny"]
F2 = "--criterion f2_softmax"
LAYER = "decoder.output_projection"
OF_LAYER = {
    "f2": {f"{LAYER}.class_weight", f"{LAYER}.class_of_token"},
    "unigram": {f"{LAYER}.bias_shift", f"{LAYER}.counts"},
}


@pytest.mark.parametrize(
    ("name", "base", "tie"),
    [
        ("f2", F2_LM, ""),
        ("f2", F2_MT, "--share-all-embeddings"),
        ("unigram", UNIGRAM_LM, TIED),
        ("unigram", UNIGRAM_MT, ""),
    ],
    ids=["f2 lm", "f2 mt, tied", "unigram lm, tied", "unigram mt"],
)
def test_all_but_the_output_layer_is_the_parent(data_for, name, base, tie):
    data = data_for(base)
    model = build(data, tie, base=base).model
    plain = build(data, tie, base=[part.replace(f"_{name}", "") for part in base]).model
    weight = model.decoder.output_projection.weight
    assert (weight is model.decoder.embed_tokens.weight) == bool(tie)
    if "translation" in base:
        assert (weight is model.encoder.embed_tokens.weight) == bool(tie)
    found, expected = model.state_dict(), plain.state_dict()
    assert found.keys() - expected.keys() == OF_LAYER[name]
    for part, value in expected.items():
        assert found[part].equal(value), part


@pytest.mark.parametrize(
    ("base", "options"),
    [
        (UNIGRAM_LM, "--unigram-bias fixed"),
        (UNIGRAM_MT, "--unigram-bias learned --share-all-embeddings"),
        (F2_MT, F2),
        (F2_LM, f"{F2} --f2-assignment equal-token --f2-classes 5"),
    ],
    ids=["unigram lm", "unigram mt", "f2 mt", "f2 lm"],
)
def test_bias_and_classes_follow_the_target_side_counts(data_for, base, options):
    """A joined dictionary is sorted by the counts of both languages; these are not."""
    data = data_for(base)
    training = build(data, options, base=base)
    model, layer = training.model, training.model.decoder.output_projection
    counts = target_counts(data, training.task.target_dictionary)
    if "f2_softmax" in options:
        expected = mefmax(counts) if base is F2_MT else equal_token(counts, 5)
        assert layer.class_of_token.equal(expected)
        return
    assert (layer.bias_shift is None) == ("fixed" in options)
    inputs = batches(training)[0]["net_input"]
    features = model(**inputs, features_only=True)[0]
    assert_close(model(**inputs)[0], features @ layer.weight.T + log_unigram(counts))


def test_the_log_of_f2_softmax_and_the_cosine_regularizer(lm_data):
    """The loss itself is compared with fairseq's in test_fairseq_zoo.py."""
    training = build(lm_data, F2, "--cosreg-gamma 3", base=F2_LM)
    model, criterion = training.model.eval(), training.criterion
    weight = model.decoder.output_projection.weight
    loss, size, log = criterion(model, batches(training)[0])
    assert log["cosreg"] == cosine_regularizer(weight, padding_row=PAD) != 0
    assert_close(loss, log["nll_loss"] + 3 * size * log["cosreg"])
    values = logged(criterion, [log])
    assert values["class_nll"] > 0 and values["token_nll"] > 0
    assert values["class_nll"] + values["token_nll"] == pytest.approx(
        values["nll_loss"], abs=0.0021
    )


def test_fine_tuning_a_model_of_the_ordinary_softmax(lm_data, tmp_path):
    """W is kept, and U is each class's mean row of W, weighted by the counts; fairseq-train goes on
    from there."""
    start, saved = save_model(tmp_path / "mle.pt", lm_data, TIED, updates=20), tmp_path / "f2"
    common = [argument for argument in COMMON if argument != "--no-save"]
    arguments = ("train", lm_data, *F2_LM, *common, TIED, F2, "--finetune-from-model")
    called(*arguments, start, "--lr 0 --max-update 1 --save-dir", saved)
    before, after = Checkpoint(start), Checkpoint(saved / "checkpoint_last.pt").parameters
    for name, value in before.parameters.items():
        assert after[name].equal(value)
    counts, class_ids = BinarizedVocabulary.load(lm_data).counts, after[f"{LAYER}.class_of_token"]
    assert torch.equal(class_ids.long(), mefmax(counts))
    for number, row in enumerate(after[f"{LAYER}.class_weight"]):
        is_member = class_ids == number
        # tokens that do not occur count a thousandth
        share = counts[is_member].clamp(min=1e-3)
        expected = share @ before.output_embedding.weight[is_member] / share.sum()
        assert_close(row, expected, rtol=1e-5, atol=1e-6)
    others = "--f2-assignment equal-token --f2-classes 9 --no-save"
    status, _, _, err = call(*arguments, saved / "checkpoint_last.pt", others)
    assert status == 2 and "--f2-classes: found 9; the checkpoint has" in err


def test_decoupled_greedy_search_by_hand(mt_data):
    """The likeliest class, then its likeliest token, step by step over the joint distribution of
    full forwards."""
    training = build(mt_data, F2, "--f2-decoding greedy-class", base=F2_MT)
    task, model = training.task, training.model.eval()
    layer = model.decoder.output_projection
    batch, differs = batches(training, "test")[0], False
    inputs = batch["net_input"]
    sources = list(zip(inputs["src_tokens"].split(1), inputs["src_lengths"].split(1), strict=True))
    options = argparse.Namespace(beam=1, max_len_a=0, max_len_b=8)
    hypotheses = task.build_generator([model], options).generate([model], batch)
    for source, (hypothesis,) in zip(sources, hypotheses, strict=True):
        tokens, scores = [EOS], []
        while len(tokens) < 9 and EOS not in tokens[1:]:
            with torch.no_grad():
                joint = model(*source, torch.tensor([tokens]))[0][0, -1]
            mass = torch.zeros(len(layer.class_weight))
            mass.index_add_(0, layer.class_of_token, joint.exp())
            inside = joint.masked_fill(layer.class_of_token != mass.argmax(), -math.inf)
            inside[PAD] = -math.inf
            tokens.append(int(inside.argmax()))
            scores.append(float(inside.max() - mass.max().log()))
            differs |= bool(joint.argmax() != inside.argmax())
        ended = [] if tokens[-1] == EOS else [EOS]
        assert hypothesis["tokens"].tolist() == tokens[1:] + ended
        found = hypothesis["positional_scores"][: len(scores)].tolist()
        assert found == pytest.approx(scores, abs=1e-4)
    assert differs, "the joint distribution would have gone another way"
