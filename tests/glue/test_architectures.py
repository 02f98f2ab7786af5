"""fairseq's transformers with another output layer, in its task, trainer and generator: sizes, ties,
counts of the training data, loss, fine-tuning, generation."""

import argparse
import copy
import math

import pytest
import torch
from fairseq import tasks
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_INV_REGISTRY
from fairseq.trainer import Trainer
from torch.testing import assert_close

from agg_fairseq.checkpoints import Checkpoint
from agg_fairseq.data.vocabulary import BinarizedVocabulary
from agg_fairseq.f2 import choose_class, equal_frequency, equal_token, mefmax
from agg_fairseq.fairseq_plugin import trainer as hooked
from agg_fairseq.functional import cosine_regularizer, log_unigram
from agg_fairseq.modules import UnigramLinear
from tests.commands import one_line, save_model
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
    configuration,
    logged,
    target_counts,
    trainer_for,
)

PAD, BOS, EOS = 1, 0, 2
UNIGRAM_LM = [*LM, "--arch", "transformer_lm_unigram"]
UNIGRAM_MT = [*MT, "--arch", "transformer_unigram_tiny"]
F2, UNIGRAM = ("--criterion", "f2_softmax"), ("--criterion", "agg")
OF_LAYER = {"f2": {"class_weight", "class_of_token"}, "unigram": {"bias_shift", "counts"}}
LAYER = "decoder.output_projection"


@pytest.mark.parametrize("name", OF_LAYER)
@pytest.mark.parametrize("parent", ["transformer_lm", "transformer"])
def test_every_architecture_of_the_parent_has_its_sizes(parent, name):
    parents = ARCH_MODEL_INV_REGISTRY[parent]
    names = {f"{parent}_{name}{theirs.removeprefix(parent)}" for theirs in parents}
    found = set(ARCH_MODEL_INV_REGISTRY[f"{parent}_{name}"])
    assert len(found) >= 6 and found <= names
    # these end in an adaptive softmax
    assert all(name.endswith(("wiki103", "gbw")) for name in names - found)
    for ours in found - {f"{parent}_{name}"}:
        assert ARCH_CONFIG_REGISTRY[ours] is ARCH_CONFIG_REGISTRY[ours.replace(f"_{name}", "", 1)]


@pytest.mark.parametrize(
    ("name", "base", "tie"),
    [
        ("f2", F2_LM, ()),
        ("f2", F2_MT, ("--share-all-embeddings",)),
        ("unigram", UNIGRAM_LM, (TIED,)),
        ("unigram", UNIGRAM_MT, ()),
    ],
    ids=["f2 lm", "f2 mt, tied", "unigram lm, tied", "unigram mt"],
)
def test_all_but_the_output_layer_is_the_parent(lm_data, mt_data, name, base, tie):
    data = lm_data if "language_modeling" in base else mt_data
    model = build(data, *tie, base=base)[2]
    plain = build(data, *tie, base=[part.replace(f"_{name}", "") for part in base])[2]
    layer = model.decoder.output_projection
    assert (layer.weight is model.decoder.embed_tokens.weight) == bool(tie)
    assert data is lm_data or (layer.weight is model.encoder.embed_tokens.weight) == bool(tie)
    found, expected = model.state_dict(), plain.state_dict()
    assert found.keys() - expected.keys() == {f"{LAYER}.{part}" for part in OF_LAYER[name]}
    assert all(found[part].equal(value) for part, value in expected.items())
    own = sum(p.numel() for part, p in layer.named_parameters() if part != "weight")
    sizes = [sum(p.numel() for p in one.parameters()) for one in (model, plain)]
    assert sizes[0] == sizes[1] + own


@pytest.mark.parametrize(("criterion", "base"), [(F2, F2_LM), (UNIGRAM, UNIGRAM_LM)])
def test_the_training_data_are_counted_when_training_starts(lm_data, monkeypatch, criterion, base):
    """Counts neither when a model is built, nor where a checkpoint has brought its own classes, or
    counts."""
    counted, original = [], hooked.training_counts
    monkeypatch.setattr(
        hooked, "training_counts", lambda *arguments: counted.append(1) or original(*arguments)
    )
    cfg = configuration(lm_data, *criterion, base=base)
    task = tasks.setup_task(cfg.task)
    model, criterion = task.build_model(cfg.model), task.build_criterion(cfg.criterion)
    layer = model.decoder.output_projection
    assert layer.is_placeholder and not counted
    trainer = Trainer(cfg, task, model, criterion)
    trainer.get_train_iterator(epoch=1)
    trainer.lr_step(1)
    assert not layer.is_placeholder and len(counted) == 1
    trained = {id(p) for group in trainer.optimizer.param_groups for p in group["params"]}
    assert trained == {id(parameter) for parameter in model.parameters()}
    other = task.build_model(cfg.model)
    other.load_state_dict(model.state_dict(), model_cfg=cfg.model)
    Trainer(cfg, task, other, criterion).lr_step(1)
    assert len(counted) == 1


def test_options_of_the_factorized_layer_that_do_not_fit(lm_data, capsys):
    def train(*options):
        trainer, _ = trainer_for(lm_data, *F2, *options, base=F2_LM)
        trainer.train_step(batches(trainer.cfg, trainer.task)[:1])

    for *options, words in (
        ("--f2-classes", 3, "no --f2-classes"),
        ("--adaptive-softmax-cutoff", "20,40", "found --adaptive-softmax-cutoff"),
        ("--arch", "transformer_lm", "--arch transformer_lm_f2"),
        ("--criterion", "agg", "--agg-rare-fraction", 0.3, "--criterion f2_softmax"),
    ):
        assert words in one_line(capsys, train, *options)


@pytest.mark.parametrize(
    ("base", "options"),
    [
        (UNIGRAM_LM, ("--unigram-bias", "fixed")),
        (UNIGRAM_MT, ("--unigram-bias", "learned", "--share-all-embeddings")),
    ],
    ids=["lm", "mt"],
)
def test_the_bias_is_that_of_the_target_side_and_logits_include_it(lm_data, mt_data, base, options):
    data = lm_data if base is UNIGRAM_LM else mt_data
    cfg, task, model, _ = build(data, *options, base=base)
    layer = model.decoder.output_projection
    counts = target_counts(data, task.target_dictionary)
    assert isinstance(layer, UnigramLinear) and torch.equal(layer.counts, counts)
    assert (layer.bias_shift is None) == ("fixed" in options)
    inputs = batches(cfg, task)[0]["net_input"]
    features = model(**inputs, features_only=True)[0]
    assert_close(model(**inputs)[0], features @ layer.weight.T + log_unigram(counts))


def test_classes_follow_the_target_side_counts(mt_data, lm_data):
    """A joined dictionary is sorted by the counts of both languages; the classes are not."""
    for data, base, name, assign, number in (
        (mt_data, F2_MT, "mefmax", mefmax, 0),
        (lm_data, F2_LM, "equal-token", equal_token, 5),
        (mt_data, F2_MT, "equal-frequency", equal_frequency, 2),
    ):
        options = ("--f2-assignment", name, "--f2-classes", number)
        task, model = build(data, *F2, *options, base=base)[1:3]
        counts = target_counts(data, task.target_dictionary)
        found = model.decoder.output_projection.class_of_token
        assert torch.equal(found, assign(counts, *[number] * bool(number)))
        ranked = found[counts.argsort(descending=True, stable=True)]
        assert (ranked.diff() >= 0).all(), "more frequent targets are in earlier classes"


@pytest.mark.parametrize(
    ("base", "options"),
    [(F2_LM, ("--label-smoothing", 0.1)), (F2_MT, ("--sentence-avg", TIED))],
    ids=["lm, smoothed", "mt, sentence averages"],
)
def test_loss_gradients_and_log_are_those_of_fairseqs_criterion(lm_data, mt_data, base, options):
    data = lm_data if base is F2_LM else mt_data
    cfg, task, model, criterion = build(data, *F2, *options, base=base)
    prefix = "label_smoothed_" * ("--label-smoothing" in options)
    theirs = ("--criterion", f"{prefix}cross_entropy", *options)
    reference = task.build_criterion(configuration(data, *theirs, base=base).criterion)
    model.double()
    batch, parameters = batches(cfg, task)[0], list(model.parameters())
    (found, size, log), (expected, their_size, their_log) = (
        each(model, batch) for each in (criterion, reference)
    )
    assert_close(found.double(), expected.double(), rtol=1e-6, atol=1e-5)
    assert size == their_size
    gradients = [torch.autograd.grad(loss, parameters) for loss in (found, expected)]
    assert_close(*gradients, rtol=1e-4, atol=1e-5)  # fairseq's log-softmax is of float32
    found, expected = logged(criterion, [log]), logged(reference, [their_log])
    assert found["ppl"] == pytest.approx(expected["ppl"], rel=1e-4)
    for name in {"loss", "nll_loss"} & expected.keys():
        assert found[name] == pytest.approx(expected[name], abs=0.0011)
    assert found["class_nll"] > 0 and found["token_nll"] > 0
    assert found["class_nll"] + found["token_nll"] == pytest.approx(found["nll_loss"], abs=0.0021)


def test_the_cosine_regularizer_is_added(lm_data):
    cfg, task, model, criterion = build(lm_data, *F2, "--cosreg-gamma", 3, base=F2_LM)
    weight = model.decoder.output_projection.weight
    loss, size, log = criterion(model.eval(), batches(cfg, task)[0])
    assert log["cosreg"] == cosine_regularizer(weight, padding_row=PAD) != 0
    assert_close(loss, log["nll_loss"] + 3 * size * log["cosreg"])


def test_fine_tuning_a_model_of_the_ordinary_softmax(lm_data, tmp_path):
    """W is kept, and U is each class's mean row of W, weighted by the counts; fairseq-train goes on
    from there."""
    start, saved = save_model(tmp_path / "mle.pt", lm_data, TIED, updates=20), tmp_path / "f2"
    common = [argument for argument in COMMON if argument != "--no-save"]
    arguments = ("train", lm_data, *F2_LM, *common, TIED, *F2, "--finetune-from-model")
    called(*arguments, start, "--lr", 0, "--max-update", 1, "--save-dir", saved)
    before, after = (Checkpoint(path) for path in (start, saved / "checkpoint_last.pt"))
    for name, value in before.parameters.items():
        assert torch.equal(after.parameters[name], value)
    counts = BinarizedVocabulary.load(lm_data, None).counts
    of_token = after.parameters[f"{LAYER}.class_of_token"].long()
    assert torch.equal(of_token, mefmax(counts))
    for number, row in enumerate(after.parameters[f"{LAYER}.class_weight"]):
        members = before.output_embedding.weight[of_token == number]
        share = counts[of_token == number].float()
        expected = (share @ members) / share.sum() if share.sum() else members.mean(0)
        # tokens that do not occur count a thousandth
        assert_close(row, expected, rtol=1e-2, atol=1e-4)
    others = ("--f2-assignment", "equal-token", "--f2-classes", 9, "--no-save")
    status, _, _, err = call(*arguments, saved / "checkpoint_last.pt", *others)
    assert status == 2 and "--f2-classes: found 9; the checkpoint has" in err


def generate(task, model, batch, prefix=0, **options):
    options = argparse.Namespace(max_len_a=0, max_len_b=8, **options)
    prefixes = batch["target"][:, :prefix] if prefix else None
    generator = task.build_generator([model], options)
    return generator.generate([model], copy.deepcopy(batch), prefix_tokens=prefixes)


GENERATORS = (
    {"beam": 4},
    {"beam": 2, "sampling": True, "sampling_topk": 10, "no_repeat_ngram_size": 1},
    {"beam": 1, "sampling": True, "sampling_topp": 0.9, "min_len": 3},
    {"beam": 2, "temperature": 0.2, "min_len": 3},
    {"beam": 2, "sampling": True, "sampling_topk": 3, "prefix": 2},
)


@pytest.mark.parametrize(
    ("first", "decoding", "strength"),
    [
        ([5, 6, 7], "sample-class", 1.5),
        ([EOS], "greedy-class", 20),
        ([EOS], "joint", 1.5),
        ([PAD, BOS], "greedy-class", 1.5),
        (None, "sample-class", 20),
    ],
)
def test_generators_with_classes_that_leave_little_choice(mt_data, first, decoding, strength):
    """Whatever is forbidden: no NaN, no padding, an end. The first class is nearly always the
    likeliest, and is small, or each token is a class. (Where the only likely token of a joint
    distribution is forbidden, fairseq cannot draw.)"""
    cfg, task, model, _ = build(mt_data, *F2, "--f2-decoding", decoding, base=F2_MT)
    batch, layer = batches(cfg, task, "test")[0], model.eval().decoder.output_projection
    classes = torch.arange(len(task.target_dictionary))
    if first is not None:
        classes = (classes % 4 + 1).index_fill_(0, torch.tensor(first), 0)
    layer.assign(classes)
    with torch.no_grad():  # U's first row along the features: log p1 differ by 8 x strength
        features = model(**batches(cfg, task)[0]["net_input"], features_only=True)[0]
        direction = features.mean((0, 1))
        layer.class_weight.mul_(0.01)
        layer.class_weight[0] += strength * direction / direction.norm()
        chosen = choose_class(features, layer.class_weight, sample=False)
    assert (chosen == 0).float().mean() > 0.9
    for options in GENERATORS:
        prefix, least = options.get("prefix", 0), options.get("min_len", 1)
        hypotheses = generate(task, model, batch, **options)
        for target, of_sentence in zip(batch["target"], hypotheses, strict=True):
            assert 1 <= len(of_sentence) <= options["beam"], options
            for hypothesis in of_sentence:
                tokens = hypothesis["tokens"].tolist()
                assert tokens.index(EOS) == len(tokens) - 1 and least < len(tokens) <= 9
                assert PAD not in tokens and tokens[:prefix] == target[:prefix].tolist()
                assert hypothesis["positional_scores"].isfinite().all(), options


def test_decoupled_greedy_search_by_hand(mt_data):
    """The likeliest class, then its likeliest token, step by step over the joint distribution of
    full forwards."""
    cfg, task, model, _ = build(mt_data, *F2, "--f2-decoding", "greedy-class", base=F2_MT)
    layer = model.eval().decoder.output_projection
    batch, differs = batches(cfg, task, "test")[0], False
    for index, (hypothesis,) in enumerate(generate(task, model, batch, beam=1)):
        source = {}
        for key in ("src_tokens", "src_lengths"):
            source[key] = batch["net_input"][key][index : index + 1]
        tokens, scores = [EOS], []
        while len(tokens) < 9 and EOS not in tokens[1:]:
            with torch.no_grad():
                joint = model(**source, prev_output_tokens=torch.tensor([tokens]))[0][0, -1]
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


def test_scoring_is_joint_whatever_the_decoding(lm_data):
    """Scores without an incremental state; features are features with either."""
    model = build(lm_data, *F2, "--f2-decoding", "greedy-class", base=F2_LM)[2].eval()
    tokens, state = torch.randint(4, 60, (3, 7)), {}
    with torch.no_grad():
        features, _ = model(tokens, features_only=True)
        expected = model.decoder.output_projection.log_prob(features)
        assert_close(model(tokens)[0], expected)
        normalized = model.get_normalized_probs(model(tokens), log_probs=True)
        assert_close(normalized, expected, rtol=1e-5, atol=1e-5)
        for n in range(1, 8):
            options = {"incremental_state": state, "features_only": True}
            step = model.decoder(tokens[:, :n], **options)[0]
            assert_close(step[:, -1], features[:, n - 1], rtol=1e-4, atol=1e-5)
