"""What each objective adds to likelihood, inside fairseq's own task and trainer."""

import copy
import math
import shutil
import types
from collections import Counter

import pytest
import torch

from agg_fairseq import decoding
from agg_fairseq.criterions import agps as agps_module
from agg_fairseq.criterions import freeze_rare as freeze_rare_module
from agg_fairseq.criterions.terms import EMBEDDING_TERMS, POSITION_TERMS
from agg_fairseq.data.binarized import count_tokens, load_dictionary
from agg_fairseq.fairseq_glue.output_layer import float32_copies
from agg_fairseq.fairseq_glue.training_counts import FILE, training_counts
from agg_fairseq.functional import (
    cosine_regularizer,
    isoscore_penalty,
    naive_gated_cross_entropy,
    previous_tokens,
    repeated_ngrams,
    sliced_dispersion,
)
from agg_fairseq.functional.unlikelihood import Unlikelihood
from agg_fairseq.metrics import frequency_groups
from agg_fairseq.report.runs import TERMS, different_settings
from tests.conftest import run_command
from tests.small_trainings import AGPS, LM, MT, batches, build, logged, rare_rows, trainer_for

OBJECTIVES = {
    "agps": AGPS,
    "cosreg": ("--criterion", "cosreg"),
    "freeze_rare": ("--criterion", "freeze_rare", "--freeze-parts", "bc"),
    "unlikelihood": ("--criterion", "unlikelihood"),
    "face": ("--criterion", "face"),
    "agg with both": ("--criterion", "agg", "--agg-rare-fraction", 0.4, "--ul-alpha", 0.5, "--cosreg-gamma", 2),
}


def gradients(trainer, batch, update=0):
    """Of a training micro-batch, as the trainer asks for them."""
    trainer.criterion.train()
    trainer.criterion.begin_update(update)
    loss, _, log = trainer.criterion(trainer.model, batch)
    return torch.autograd.grad(loss, list(trainer.model.parameters())), log


@pytest.mark.grid(3)
@pytest.mark.parametrize("base", [LM, MT], ids=["lm", "mt"])
@pytest.mark.parametrize(
    "options",
    [
        ("--criterion", "agps", "--agps-rare-rank", 10, "--agps-mu1", 1e-9, "--agps-mu2", 1e-9),
        ("--criterion", "cosreg", "--cosreg-gamma", 0),
        ("--criterion", "unlikelihood", "--ul-alpha", 0),
        ("--criterion", "freeze_rare", "--freeze-parts", "bc", "--freeze-fraction", 0.001),
        ("--criterion", "freeze_rare", "--freeze-parts", "all", "--freeze-fraction", 0.001),
        ("--criterion", "face"),
        ("--criterion", "agg", "--ul-alpha", 0, "--cosreg-gamma", 0),
    ],
    ids=lambda options: "-".join(map(str, options[1:4])),
)
def test_degenerate_settings_are_likelihood(lm_data, mt_data, base, options):
    """γ = 0, α = 0, μ → 0 (every token of the data occurs), an empty group, nothing output yet."""
    data = lm_data if base is LM else mt_data
    trainer, _ = trainer_for(data, *options, base=base)
    if options[1] == "agps":
        trainer.criterion.counts.clamp_(min=1)  # the dictionary's fillings never occur, and would be held back
    found, log = gradients(trainer, first_batch(data, base))
    expected, plain = gradients(trainer_for(data, "--criterion", "mle", base=base)[0], first_batch(data, base))
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(log["loss"], plain["loss"])


def first_batch(data, base):
    cfg, task, *_ = build(data, "--criterion", "mle", base=base)
    return batches(cfg, task)[0]


@pytest.mark.grid(3)
@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("training", [True, False])
def test_a_batch_is_the_sum_of_its_sentences(mt_data, name, training):
    """Each without its padding: nothing leaks from one sentence into another."""
    trainer, _ = trainer_for(mt_data, *OBJECTIVES[name], base=MT)
    data = batches(trainer.cfg, trainer.task)
    for batch in data[:2]:
        trainer.train_step([batch])
    criterion, pad = trainer.criterion, trainer.task.target_dictionary.pad()
    batch = next(b for b in data if (b["target"] == pad).any() and len(b["target"]) > 2)
    criterion.train(training)
    if training:
        criterion.begin_update(2)

    def loss(sample):
        return trainer.criterion(trainer.model, sample)[0].detach()

    trainer.model.eval()
    torch.testing.assert_close(loss(batch), sum(loss(alone) for alone in sentences(batch, pad)))


def sentences(batch, pad):
    for row in range(len(batch["target"])):
        sample = copy.deepcopy(batch)
        kept = batch["target"][row] != pad
        source = batch["net_input"]["src_tokens"][row]
        sample["target"] = batch["target"][row, kept][None]
        sample["net_input"] = {
            "src_tokens": source[source != pad][None],
            "src_lengths": batch["net_input"]["src_lengths"][row][None],
            "prev_output_tokens": batch["net_input"]["prev_output_tokens"][row][: int(kept.sum())][None],
        }
        sample["ntokens"] = int(kept.sum())
        yield sample


@pytest.mark.grid(1)
@pytest.mark.parametrize("name", [name for name in OBJECTIVES if name != "face"])
def test_likelihood_is_logged_apart(lm_data, name):
    """nll_loss and ppl are those of plain likelihood; what is added stands in loss and in a column of its own."""
    trainer, _ = trainer_for(lm_data, *OBJECTIVES[name])
    batch = first_batch(lm_data, LM)
    _, log = gradients(trainer, batch)
    _, plain = gradients(trainer_for(lm_data, "--criterion", "mle")[0], batch)
    found, expected = logged(trainer.criterion, [log]), logged(trainer.criterion, [plain])
    assert found["nll_loss"] == pytest.approx(expected["nll_loss"], rel=1e-5)
    assert found["ppl"] == pytest.approx(expected["ppl"], rel=1e-4)
    extra = trainer.criterion.cfg.get("ul_alpha", 0) * found.get("ul_loss", 0)
    extra += trainer.criterion.cfg.get("cosreg_gamma", 0) * found.get("cosreg", 0) / math.log(2)
    assert found["loss"] == pytest.approx(expected["loss"] + extra, abs=2e-3)
    assert ("ul_loss" in found) == (name in ("unlikelihood", "agg with both"))
    assert ("cosreg" in found) == (name in ("cosreg", "agg with both"))


def test_unlikelihood_and_gates_compose(lm_data):
    """UL + AGG: the gradient into W is that of the whole loss, gated; the regularizer's comes on top, ungated."""
    trainer, _ = trainer_for(lm_data, *OBJECTIVES["agg with both"])
    data = batches(trainer.cfg, trainer.task)
    for batch in data[2:6]:
        trainer.train_step([batch])
    gradients(trainer, data[1], update=4)
    criterion, weight = trainer.criterion, trainer.model.decoder.output_projection.weight
    sample = data[1]
    found = torch.autograd.grad(criterion(trainer.model, sample)[0], weight)[0]
    features = trainer.model(**sample["net_input"], features_only=True)[0].detach()
    pad = trainer.task.target_dictionary.pad()
    naive = naive_gated_cross_entropy(
        features,
        weight,
        sample["target"],
        gates=criterion._gates,
        unlikelihood=Unlikelihood(0.5, previous_tokens(sample["target"], pad)),
        ignore_index=pad,
    )
    whole = naive + 2 * sample["ntokens"] * cosine_regularizer(weight, ignore_index=pad)
    torch.testing.assert_close(found, torch.autograd.grad(whole, weight)[0], rtol=1e-4, atol=1e-4)
    assert 0 < criterion._gates.gate_common[criterion._gates.rare].mean() < 1


@pytest.mark.grid(1)
@pytest.mark.parametrize(("name", "options"), [("unlikelihood", ("--ul-alpha", 1)), ("cosreg", ("--cosreg-gamma", 1))])
def test_a_term_under_its_own_name_is_mle_with_its_option(lm_data, name, options):
    batch = first_batch(lm_data, LM)
    found, log = gradients(trainer_for(lm_data, "--criterion", name)[0], batch)
    expected, plain = gradients(trainer_for(lm_data, "--criterion", "mle", *options)[0], batch)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    assert log.keys() == plain.keys() and log["loss"] == plain["loss"]


def test_a_report_leaves_out_terms_that_are_left_out():
    """Whether a run says 0, or has no such option, as those of version 0.1.0 and of other criterions."""
    assert {term.option for term in (*POSITION_TERMS, *EMBEDDING_TERMS)} | {"center_output"} == TERMS
    found = different_settings([
        {"cfg": {"criterion": {"_name": "mle", "ul_alpha": 0.0, "cosreg_gamma": 0.0, "center_output": False}}},
        {"cfg": {"criterion": {"_name": "mle"}}},
        {"cfg": {"criterion": {"_name": "mle", "ul_alpha": 0.5, "cosreg_gamma": 0.0, "center_output": True}}},
    ])  # fmt: skip
    assert found == [("--ul-alpha", [None, None, "0.5"]), ("--center-output", [None, None, "True"])]


EVERY_CRITERION = {
    **{name: ("--criterion", name) for name in ("mle", "agg", "face", "cosreg", "unlikelihood")},
    "agps": AGPS,
    "freeze_rare": ("--criterion", "freeze_rare"),
    "freeze_rare bc": ("--criterion", "freeze_rare", "--freeze-parts", "bc"),
    "unlikelihood_sequence": (
        "--criterion", "unlikelihood_sequence", "--ul-prefix-length", 5, "--ul-completion-length", 9,
    ),
}  # fmt: skip


@pytest.mark.grid(2)
@pytest.mark.parametrize("name", EVERY_CRITERION)
def test_every_criterion_takes_every_term(lm_data, name):
    """Its loss is that without them, and each at its weight; without them nothing of them is logged."""
    terms = ("--ul-alpha", 0.5, "--z-loss", 0.1, "--cosreg-gamma", 3, "--mu-loss", 5, "--dispersion-gamma", 2)
    terms += ("--isoscore-gamma", 4)
    without, _ = trainer_for(lm_data, *EVERY_CRITERION[name], "--ul-alpha", 0, "--cosreg-gamma", 0)
    with_them, _ = trainer_for(lm_data, *EVERY_CRITERION[name], *terms)
    for batch in batches(without.cfg, without.task)[:2]:
        without.train_step([batch])
        with_them.train_step([batch])
    with_them.model.load_state_dict(without.model.state_dict())
    batch = first_batch(lm_data, LM)
    log, plain = gradients(with_them, batch, update=2)[1], gradients(without, batch, update=2)[1]
    found, expected = logged(with_them.criterion, [log]), logged(without.criterion, [plain])
    assert not {"ul_loss", "z_loss", "cosreg", "mu_loss", "dispersion", "isoscore_penalty"} & expected.keys()
    assert found["nll_loss"] == pytest.approx(expected["nll_loss"], abs=2e-3)
    if name != "face":  # whose weights depend on what the two models have output before
        nats = 0.1 * found["z_loss"] + 3 * found["cosreg"] + 5 * found["mu_loss"] + 2 * found["dispersion"]
        nats += 4 * found["isoscore_penalty"]
        assert found["loss"] == pytest.approx(expected["loss"] + 0.5 * found["ul_loss"] + nats / math.log(2), abs=2e-3)
    assert found["ul_loss"] > 0 and found["z_loss"] > 1 and found["mu_loss"] > 0 and found["dispersion"] > 0
    assert 0 < found["isoscore_penalty"] < 1


@pytest.mark.grid(1)
@pytest.mark.parametrize("name", [name for name in EVERY_CRITERION if name != "unlikelihood_sequence"])
def test_every_criterion_trains_adversarially(lm_data, name):
    """In training its gradient is that of the naive form with ε; nll_loss, and all of validation, are the model's."""
    options = (*EVERY_CRITERION[name], "--ul-alpha", 0, "--cosreg-gamma", 0)
    trainer, _ = trainer_for(lm_data, *options, "--adv-epsilon", 0.4)
    plain, _ = trainer_for(lm_data, *options)
    batch = first_batch(lm_data, LM)
    _, log = gradients(trainer, batch)
    _, plain_log = gradients(plain, batch)
    found, expected = logged(trainer.criterion, [log]), logged(plain.criterion, [plain_log])
    assert found["nll_loss"] == pytest.approx(expected["nll_loss"], abs=2e-3)
    assert found["adv_loss"] > found["nll_loss"] + 0.01
    if name != "face":  # whose weights of positions adv_loss does not have
        assert found["loss"] == pytest.approx(found["adv_loss"], abs=2e-3)
    criterion, weight = trainer.criterion, trainer.model.decoder.output_projection.weight
    features = trainer.model(**batch["net_input"], features_only=True)[0].detach()
    pad, target = trainer.task.target_dictionary.pad(), batch["target"]
    naive = naive_gated_cross_entropy(
        features, weight, target, gates=criterion.gates(target), position_weight=criterion.position_weight(target),
        adversarial=0.4, ignore_index=pad,
    )  # fmt: skip
    if name != "freeze_rare":  # which takes the gradient of the frozen rows away
        right = torch.autograd.grad(criterion(trainer.model, batch)[0], weight)[0]
        torch.testing.assert_close(right, torch.autograd.grad(naive, weight)[0], rtol=1e-4, atol=1e-4)
    for each in (trainer, plain):
        each.criterion.eval()
    (loss, _, log), (plain_loss, *_) = (each.criterion(each.model, batch) for each in (trainer, plain))
    torch.testing.assert_close(loss, plain_loss)
    assert log["adv_loss_number"] == 0


def test_the_isoscore_penalty_leaves_padding_out(lm_data):
    trainer, _ = trainer_for(lm_data, "--criterion", "mle", "--isoscore-gamma", 1)
    weight = trainer.model.decoder.output_projection.weight
    with torch.no_grad():
        weight[1] = 3  # fairseq's padding is a row of zeros
    _, log = gradients(trainer, first_batch(lm_data, LM))
    assert log["isoscore_penalty"] == isoscore_penalty(weight, ignore_index=1) != isoscore_penalty(weight)


def test_the_great_circle_of_an_update(lm_data):
    """That of its number: each update another one, the same again after a resume."""
    trainer, _ = trainer_for(lm_data, "--criterion", "mle", "--dispersion-gamma", 1)
    weight = trainer.model.decoder.output_projection.weight
    batch, values = first_batch(lm_data, LM), []
    for update in (0, 1, 1, 57):
        _, log = gradients(trainer, batch, update)
        assert log["dispersion"] == sliced_dispersion(weight, seed=update, ignore_index=1)
        values.append(log["dispersion"].item())
    assert values[1] == values[2] and len(set(values)) == 3


CENTERED = {name: options for name, options in EVERY_CRITERION.items() if name != "freeze_rare"}


@pytest.mark.grid(2)
@pytest.mark.parametrize("tied", [(), ("--share-decoder-input-output-embed",)], ids=["untied", "tied"])
@pytest.mark.parametrize("name", CENTERED)
def test_the_output_embedding_is_centered_after_each_step(lm_data, name, tied):
    """All rows, padding too. The step itself is that of a training without it: the first update differs by μ alone."""
    options = (*CENTERED[name], *tied, "--weight-decay", 0.1)
    plain, _ = trainer_for(lm_data, *options)
    trainer, _ = trainer_for(lm_data, *options, "--center-output")
    data = batches(trainer.cfg, trainer.task)
    for number, batch in enumerate(data[:3]):
        trainer.train_step([batch, {}])
        plain.train_step([batch, {}])
        weight, other = (t.model.decoder.output_projection.weight.detach() for t in (trainer, plain))
        assert weight.mean(0).abs().max() < 1e-7
        if number == 0:
            torch.testing.assert_close(weight, other - other.mean(0))
            assert other.mean(0).norm() > 1e-3
            same = trainer.model.decoder.embed_tokens.weight is trainer.model.decoder.output_projection.weight
            assert same == bool(tied)


@pytest.mark.parametrize("which", ["faded", "continuous"])
def test_the_two_gates_of_our_own(lm_data, which):
    trainer, _ = trainer_for(lm_data, "--criterion", "agg", "--agg-alpha", 0.9, "--agg-gates", which)
    data = batches(trainer.cfg, trainer.task)
    trainer.train_step([data[0]])
    trainer.train_step([data[1]])
    gates, appearances = trainer.criterion._gates, trainer.criterion.counter.appearances
    if which == "faded":
        expected = (appearances / 0.9).clamp(max=1)[gates.rare].float()
        torch.testing.assert_close(gates.gate_common[gates.rare], expected)
        assert gates.appearances is None
    else:
        assert torch.equal(gates.appearances, appearances) and gates.gate_rare is None


def test_agps_counts_the_target_side_and_sees_all_workers(mt_data, monkeypatch):
    trainer, _ = trainer_for(mt_data, *AGPS, base=MT)
    criterion, dictionary = trainer.criterion, trainer.task.target_dictionary
    words = (mt_data.parent / "train.de").read_text().split()
    for token in ("t0", "t7", "w0", "w7"):
        assert criterion.counts[dictionary.index(token)] == words.count(token)
    assert criterion.counts[dictionary.eos()] == 80
    assert criterion.rare[dictionary.index("w0")], "frequent on the source side, never a target: rare"
    assert not criterion.rare[dictionary.pad()] and not criterion.rare[dictionary.unk()]
    elsewhere = dictionary.index("w0")

    def with_another_worker(present):
        present[elsewhere] += 1
        return present

    target = batches(trainer.cfg, trainer.task)[0]["target"]
    alone = criterion.gates(target)
    monkeypatch.setattr(agps_module, "found_by_any_worker", with_another_worker)
    both = criterion.gates(target)
    assert alone.gate_common[elsewhere] == 0 and both.gate_common[elsewhere] == 1
    criterion.is_dummy = True
    held_back = criterion.gates(target).gate_common[criterion.rare]
    expected = (criterion.counts / 30).clamp(max=1)[criterion.rare].float()
    expected[(criterion.rare.nonzero().flatten() == elsewhere)] = 1  # present on the other worker
    torch.testing.assert_close(held_back, expected)
    assert alone.gate_common[target[0, 0]] == 1 and (held_back < 1).any(), "a dummy batch makes no token present"


def test_counts_are_kept_beside_the_run(lm_data, tmp_path, caplog):
    data = tmp_path / "bin"
    shutil.copytree(lm_data, data)
    _, task, *_ = build(data, "--criterion", "mle")
    caplog.set_level("INFO")

    def counted():
        before = caplog.text.count("counting the ")
        counts = training_counts(task, "train", tmp_path / "run")
        return counts, caplog.text.count("counting the ") - before

    counts, times = counted()
    assert times == 1 and torch.equal(counts, count_tokens(data, task.dictionary))
    again, times = counted()
    assert times == 0 and torch.equal(counts, again)
    whole = (tmp_path / "run" / FILE).read_bytes()
    for damaged in (b"garbage", whole[: len(whole) // 2], b""):
        (tmp_path / "run" / FILE).write_bytes(damaged)
        again, times = counted()
        assert times == 1 and torch.equal(counts, again) and "unreadable" in caplog.text
    for suffix in ("bin", "idx"):
        shutil.copy(data / f"valid.{suffix}", data / f"train1.{suffix}")  # fairseq reads it as more of train
    more, times = counted()
    assert times == 1 and torch.equal(more, counts + count_tokens(data, task.dictionary, "valid"))


def test_counts_fold_what_is_not_predicted_into_the_unknown_word(lm_data):
    """fairseq's language models may predict the head of their dictionary only."""
    _, task, *_ = build(lm_data, "--criterion", "mle", "--output-dictionary-size", 30)
    whole = count_tokens(lm_data, task.dictionary)
    counts = training_counts(task, "train", None)
    assert len(counts) == 30 and counts.sum() == whole.sum()
    assert counts[task.dictionary.unk()] == whole[30:].sum() + whole[task.dictionary.unk()]


@pytest.mark.parametrize(
    "options",
    [
        ("--weight-decay", 0.1, "--share-decoder-input-output-embed"),
        ("--optimizer", "sgd", "--momentum", 0.9, "--weight-decay", 0.1),
        ("--share-decoder-input-output-embed", "--update-freq", 2, "--clip-norm", 0.1),
    ],
    ids=["adam tied", "momentum", "update-freq and clipping"],
)
def test_frozen_rows_stay_bit_identical(lm_data, options):
    trainer, _ = trainer_for(lm_data, "--criterion", "freeze_rare", "--freeze-fraction", 0.3, *options)
    before = rare_rows(trainer)
    others = trainer.model.decoder.output_projection.weight.detach()[~trainer.criterion.rare].clone()
    data = batches(trainer.cfg, trainer.task)
    for start in range(0, 8, 2):
        trainer.train_step(data[start : start + 2])
    assert torch.equal(rare_rows(trainer), before) and before.abs().sum() > 0
    after = trainer.model.decoder.output_projection.weight.detach()[~trainer.criterion.rare]
    assert not torch.equal(after, others)
    state = trainer.optimizer.optimizer.state[trainer.model.decoder.output_projection.weight]
    moment = state.get("exp_avg", state.get("momentum_buffer"))
    assert not moment[trainer.criterion.rare].any() or "sgd" in options, "no momentum builds up meanwhile"


@pytest.mark.parametrize("data", ["lm_data", "mt_data"])
def test_rare_by_relative_frequency(data, request):
    """The tokens of fewer than 3% of the training targets, counted one by one; special tokens are never rare."""
    base = LM if data == "lm_data" else MT
    options = ("--criterion", "freeze_rare", "--freeze-below", 0.03)
    trainer, _ = trainer_for(request.getfixturevalue(data), *options, base=base)
    counts = Counter(token for item in trainer.task.dataset("train") for token in item["target"].tolist())
    dictionary = trainer.task.target_dictionary
    special = {dictionary.pad(), dictionary.bos(), dictionary.eos(), dictionary.unk()}
    total = sum(counts.values())
    expected = [counts[token] / total < 0.03 and token not in special for token in range(len(dictionary))]
    assert trainer.criterion.rare.tolist() == expected and 0 < sum(expected) < len(dictionary) - len(special)


def test_no_token_below_the_frequency(lm_data, capsys, monkeypatch):
    counts = torch.full((64,), 10)
    monkeypatch.setattr(freeze_rare_module, "training_counts", lambda task, split, folder: counts)
    with pytest.raises(SystemExit) as stop:
        trainer_for(lm_data, "--criterion", "freeze_rare", "--freeze-below", 0.01)
    error = capsys.readouterr().err
    assert stop.value.code == 2 and "--freeze-below: found no token" in error and error.count("\n") == 1


def test_frozen_rows_are_released(lm_data):
    trainer, _ = trainer_for(lm_data, "--criterion", "freeze_rare", "--freeze-until", 2, "--weight-decay", 0.1)
    before = rare_rows(trainer)
    data = batches(trainer.cfg, trainer.task)
    for number, batch in enumerate(data[:4]):
        trainer.train_step([batch])
        assert torch.equal(rare_rows(trainer), before) == (number < 2)


@pytest.mark.parametrize("parts", ["b", "c", "bc"])
def test_parts_freeze_by_gates(lm_data, parts):
    trainer, _ = trainer_for(lm_data, "--criterion", "freeze_rare", "--freeze-parts", parts, "--freeze-until", 1)
    batch = batches(trainer.cfg, trainer.task)[0]
    criterion = trainer.criterion
    criterion.train()
    criterion.begin_update(0)
    gates = criterion.gates(batch["target"])
    assert (gates.gate_common is None) == ("b" not in parts) and (gates.gate_rare is None) == ("c" not in parts)
    criterion.begin_update(1)
    assert criterion.gates(batch["target"]) is None


def test_the_frozen_group_is_that_of_the_report(lm_data):
    """The last 20% of the vocabulary by training frequency, as `agg-fairseq eval-lm` groups it."""
    trainer, _ = trainer_for(lm_data, "--criterion", "freeze_rare")
    dictionary = load_dictionary(lm_data)
    groups = frequency_groups(count_tokens(lm_data, dictionary), excluded=(dictionary.pad(), dictionary.bos()))
    expected = groups.members("rare")
    found = trainer.criterion.rare.nonzero().flatten()
    special = {trainer.task.target_dictionary.unk(), trainer.task.target_dictionary.eos()}
    assert abs(len(found) - len(expected)) <= 1
    assert len(set(expected.tolist()) - set(found.tolist()) - special) <= 1


@pytest.mark.parametrize("form", ["flat", "dict", "list"])
def test_masters_of_a_half_precision_optimizer(form):
    """fairseq's FP16Optimizer trains float32 copies: flat in one tensor, one per device, or one per parameter."""
    parameters = [torch.nn.Parameter(torch.full((n, 2), float(n)).half()) for n in (3, 4, 5)]
    copies = [p.detach().float() for p in parameters]
    flat = torch.cat([c.view(-1) for c in copies])
    fp32 = {"flat": flat, "dict": {0: flat}, "list": [torch.nn.Parameter(c) for c in copies]}[form]
    optimizer = types.SimpleNamespace(fp16_params=parameters, fp32_params=fp32, has_flat_params=form != "list")
    (found,) = float32_copies(optimizer, parameters[1])
    assert found.shape == (4, 2) and (found == 4).all()
    found[0] = 9
    again = next(float32_copies(optimizer, parameters[1]))
    assert (again[0] == 9).all(), "a view, not a copy"
    assert list(float32_copies(types.SimpleNamespace(), parameters[0])) == []


def test_face_counts_its_own_predictions(lm_data):
    """Of the updates before, on all workers, padding and dummy batches left out; the weights come from them."""
    trainer, _ = trainer_for(lm_data, "--criterion", "face")
    data = batches(trainer.cfg, trainer.task)
    criterion, pad = trainer.criterion, trainer.task.target_dictionary.pad()
    with torch.no_grad():
        predicted = trainer.model(**data[0]["net_input"])[0].argmax(-1)
    trainer.train_step([data[0], {}])
    assert not criterion.counter.appearances.any()
    trainer.train_step([data[1]])
    expected = torch.bincount(predicted[data[0]["target"] != pad], minlength=criterion.vocabulary)
    assert torch.equal(criterion.counter.appearances, expected)
    weights = 1 - expected / expected.max()
    torch.testing.assert_close(criterion._weights, weights * len(weights) / weights.sum())
    saved = copy.deepcopy(trainer.task.get_checkpoint_dict()["LanguageModelingTask"])
    other, _ = trainer_for(lm_data, "--criterion", "face")
    other.task.set_checkpoint_dict(saved)
    assert torch.equal(other.criterion.counter.appearances, criterion.counter.appearances)
    assert torch.equal(other.criterion.counter.current, criterion.counter.current) and criterion.counter.current.any()


SEQUENCE = (
    "--criterion", "unlikelihood_sequence", "--ul-prefix-length", 5, "--ul-completion-length", 9, "--ul-ngram", 2,
)  # fmt: skip


def test_sequence_updates_alternate(lm_data):
    trainer, _ = trainer_for(lm_data, *SEQUENCE, "--ul-sequence-rate", 0.25)
    kinds = []
    for update in range(8):
        trainer.criterion.begin_update(update)
        kinds.append(trainer.criterion._continues)
    assert kinds == [False, False, False, True] * 2


@pytest.mark.parametrize("more", [(), ("--ul-alpha", 1, "--z-loss", 0.1)])
def test_the_logs_of_all_workers_fit_together(lm_data, more):
    """In an update on continuations, a worker whose batch has no whole prefix trains on the batch: fairseq adds up the
    logs of workers by key, tensors apart from numbers."""
    trainer, _ = trainer_for(lm_data, *SEQUENCE, *more, "--ul-sequence-rate", 1)
    trainer.criterion.begin_update(0)
    trainer.criterion.train()
    (batch,) = batches(trainer.cfg, trainer.task)[:1]
    short = {
        **batch,
        "net_input": {name: part[:, :4] if part.dim() == 2 else part for name, part in batch["net_input"].items()},
    }
    short["target"] = batch["target"][:, :4]
    kinds = []
    for sample in (batch, short):
        log = trainer.criterion(trainer.model, sample)[2]
        kinds.append({name: isinstance(value, torch.Tensor) for name, value in log.items()})
        assert (log["ul_sequence_loss_number"] > 0) == (sample is batch)
    assert kinds[0] == kinds[1]


def test_a_validation_does_not_depend_on_the_update(lm_data):
    """The great circle of dispersion is another one at each update."""
    trainer, _ = trainer_for(lm_data, "--criterion", "mle", "--dispersion-gamma", 1)
    (batch,) = batches(trainer.cfg, trainer.task)[:1]
    losses = {True: set(), False: set()}
    for training in (True, False):
        trainer.criterion.train(training)
        for update in (0, 1, 5):
            trainer.criterion.begin_update(update)
            losses[training].add(float(trainer.criterion(trainer.model.eval(), batch)[0]))
    assert len(losses[True]) == 3 and len(losses[False]) == 1


def test_each_embedding_has_its_own_statistics(lm_data):
    """As where several decoders are trained, each with its own W."""
    trainer, _ = trainer_for(lm_data, "--criterion", "mle", "--embedding-stats-interval", 1)
    criterion, one, other = trainer.criterion, *(torch.nn.Parameter(torch.randn(9, 4) + shift) for shift in (0, 9))
    for training in (True, False):
        criterion.train(training)
        criterion.begin_update(1)
        found = [criterion._embedding_statistics(weight) for weight in (one, other)]
        assert found[0]["mean_share"][0] < 0.9 < found[1]["mean_share"][0]
        again = criterion._embedding_statistics(one)
        assert again == ({} if training else found[0])


def test_greedy_continuation_is_the_arg_max_of_each_step(lm_data):
    _, task, model, _ = build(lm_data, "--criterion", "mle", "--dropout", 0.5)
    pad = task.target_dictionary.pad()
    prefixes = torch.randint(4, 60, (3, 5))
    model.train()
    found = decoding.continuation(model, prefixes, 6, forbidden=(pad,))
    assert model.training
    model.eval()
    tokens = prefixes
    for _ in range(6):
        logits = model(tokens)[0][:, -1].detach()
        logits[:, pad] = -torch.inf
        tokens = torch.cat([tokens, logits.argmax(1, keepdim=True)], 1)
    assert torch.equal(found, tokens[:, 5:])


def test_sequence_loss_equals_the_paper(lm_data):
    """−Σ log(1 − p(x_t)) over the tokens of the continuation that are in a repeated n-gram; in float64."""
    trainer, _ = trainer_for(lm_data, *SEQUENCE, "--ul-sequence-rate", 1)
    batch = first_batch(lm_data, LM)
    model, criterion = trainer.model.double(), trainer.criterion
    criterion.train()
    criterion.begin_update(0)
    loss, size, log = criterion(model, batch)
    found = torch.autograd.grad(loss, list(model.parameters()))
    tokens = batch["net_input"]["src_tokens"]
    prefixes = tokens[:, : tokens.size(1) // 5 * 5].reshape(-1, 5)
    prefixes = prefixes[(prefixes != trainer.task.target_dictionary.pad()).all(1)][: tokens.numel() // (5 + 9)]
    pad = trainer.task.target_dictionary.pad()
    continuation = decoding.continuation(model, prefixes, 9, forbidden=(pad,))
    repeated = repeated_ngrams(continuation, 2)
    assert repeated.any() and not repeated.all()
    p = model(torch.cat([prefixes, continuation], 1)[:, :-1])[0][:, 4:].softmax(-1)
    punished = p.gather(2, continuation[:, :, None]).squeeze(2)[repeated]
    expected = -(1 - punished).log().sum()
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(found, torch.autograd.grad(expected, list(model.parameters())))
    assert size == continuation.numel()
    values = logged(criterion, [log])
    assert "nll_loss" not in values and values["repeated"] == pytest.approx(repeated.double().mean().item(), abs=1e-4)
    assert values["ul_sequence_loss"] == pytest.approx(expected.item() / size / math.log(2), abs=1e-3)


def test_a_batch_without_a_prefix_is_trained_on_as_it_is(lm_data):
    trainer, _ = trainer_for(lm_data, *SEQUENCE, "--ul-sequence-rate", 1)
    batch = first_batch(lm_data, LM)
    short = copy.deepcopy(batch)
    short["target"], short["ntokens"] = batch["target"][:, :3], 3 * len(batch["target"])
    short["net_input"]["src_tokens"] = batch["net_input"]["src_tokens"][:, :3]
    _, log = gradients(trainer, short)
    assert log["nll_tokens"] == short["ntokens"] and log["repeated_number"] == 0


@pytest.mark.grid(4)
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("agps", "--agps-rare-rank", 64), "--agps-rare-rank: expected a rank in [0, 64)"),
        (("agps",), "in proportion --agps-rare-rank 6, and its 27,000 of the 40,624 sub-words of WMT14 43"),
        (("agps", "--agps-rare-rank", 5, "--agps-mu1", 0), "--agps-mu1: expected a count above 0, got 0"),
        (("agps", "--agps-rare-rank", 5, "--agps-mu2", "nan"), "--agps-mu2"),
        (("cosreg", "--cosreg-gamma", -1), "--cosreg-gamma: expected a weight of at least 0, got -1"),
        (("unlikelihood", "--ul-alpha", "inf"), "--ul-alpha"),
        (("agg", "--ul-alpha", -0.5), "--ul-alpha"),
        (("freeze_rare", "--freeze-fraction", 0), "--freeze-fraction between 0 and 1"),
        (("freeze_rare", "--freeze-until", -1), "--freeze-until"),
        (("freeze_rare", "--freeze-below", 1), "--freeze-below between 0 and 1"),
        (("freeze_rare", "--freeze-below", 1e-6, "--freeze-fraction", 0.3), "found both --freeze-below 1e-06 and"),
        (("freeze_rare", "--freeze-fraction", 0.2, "--freeze-below", 1e-6), "found both --freeze-below 1e-06 and"),
        (("freeze_rare", "--center-output"), "found --center-output, which moves all rows"),
        (("mle", "--z-loss", -1), "--z-loss: expected a weight of at least 0, got -1"),
        (("mle", "--mu-loss", "nan"), "--mu-loss"),
        (("agg", "--adv-epsilon", -0.1), "--adv-epsilon: expected a weight of at least 0, got -0.1"),
        (("f2_softmax", "--dispersion-gamma", "inf"), "--dispersion-gamma"),
        (("agps", "--isoscore-gamma", -1), "--isoscore-gamma"),
        (("unlikelihood_sequence", "--ul-sequence-rate", 2), "--ul-sequence-rate"),
        (("unlikelihood_sequence", "--ul-prefix-length", 5, "--ul-ngram", 0), "--ul-ngram"),
        (("unlikelihood_sequence",), "--ul-prefix-length: expected at most --tokens-per-sample 16, got 50"),
    ],
)
def test_bad_options_are_one_line_and_status_2(lm_data, capsys, options, words):
    with pytest.raises(SystemExit) as stop:
        build(lm_data, "--criterion", *options)
    error = capsys.readouterr().err
    assert stop.value.code == 2 and words in error and error.count("\n") == 1


def test_sequence_level_needs_a_language_model(mt_data, capsys):
    with pytest.raises(SystemExit):
        build(mt_data, "--criterion", "unlikelihood_sequence", base=MT)
    assert "expected language_modeling" in capsys.readouterr().err


def test_missing_training_files_are_one_line(lm_data, tmp_path, capsys):
    data = tmp_path / "bin"
    shutil.copytree(lm_data, data)
    _, task, *_ = build(data, "--criterion", "freeze_rare")
    (data / "train.bin").rename(data / "moved.bin")
    with pytest.raises(SystemExit) as stop:
        task.get_batch_iterator(task.dataset("train"), max_tokens=64)
    error = capsys.readouterr().err
    assert stop.value.code == 2 and "found no train.bin" in error and error.count("\n") == 1


SEVENTH = """
from dataclasses import dataclass, field

from agg_fairseq.criterions.base import LikelihoodCriterion, LikelihoodCriterionConfig, register


@dataclass
class LastTokenCriterionConfig(LikelihoodCriterionConfig):
    last_weight: float = field(default=2.0, metadata={"help": "weight of the last position of a row"})


@register("last_token", dataclass=LastTokenCriterionConfig)
class LastTokenCriterion(LikelihoodCriterion):
    name = "last_token"

    def position_weight(self, target):
        weight = target.new_ones(target.shape, dtype=self.weight_dtype)
        weight[:, -1] = self.cfg.last_weight
        return weight

    weight_dtype = __import__("torch").float32
"""


@pytest.mark.slow
def test_a_seventh_method_is_one_short_file(lm_data, tmp_path):
    """In a folder of its own, through --user-dir, trained by the real command."""
    plugin = tmp_path / "seventh_method"
    plugin.mkdir()
    (plugin / "__init__.py").write_text(SEVENTH)
    result = run_command(
        "fairseq-train", lm_data, "--user-dir", plugin, *LM, "--criterion", "last_token", "--optimizer", "adam",
        "--cpu", "--max-update", 2, "--no-save", "--log-format", "json", "--log-interval", 1,
    )  # fmt: skip
    assert '"num_updates": "2"' in result.stdout + result.stderr


def test_rows_are_held_also_if_the_first_batch_is_a_dummy_one(lm_data):
    """A worker that has run out of data must freeze as the others do, or the models of the workers drift apart."""
    trainer, _ = trainer_for(lm_data, "--criterion", "freeze_rare", "--weight-decay", 0.1)
    before = rare_rows(trainer)
    data = batches(trainer.cfg, trainer.task)
    trainer._dummy_batch = data[0]
    trainer.train_step([{}])
    trainer.train_step([data[1]])
    assert torch.equal(rare_rows(trainer), before)


@pytest.mark.slow
def test_cosreg_counts_in_updates_on_continuations_too(lm_data):
    options = (*SEQUENCE, "--ul-sequence-rate", 1, "--ul-alpha", 0.5)
    with_it, _ = trainer_for(lm_data, *options, "--cosreg-gamma", 3)
    without, _ = trainer_for(lm_data, *options)
    batch = first_batch(lm_data, LM)
    found, log = gradients(with_it, batch)
    plain, plain_log = gradients(without, batch)
    value = cosine_regularizer(with_it.model.decoder.output_projection.weight, ignore_index=1)
    torch.testing.assert_close(log["loss"], plain_log["loss"] + 3 * log["sample_size"] * value.detach())
    assert log["cosreg_number"] == 1 and log["ul_loss_number"] == 0 and log["ul_sequence_loss_number"] > 0


def test_learned_positions_must_reach_over_the_continuation(lm_data, capsys):
    options = ("--decoder-learned-pos", *SEQUENCE, "--ul-completion-length", 60, "--ul-sequence-rate", 1)
    trainer, _ = trainer_for(lm_data, *options)
    with pytest.raises(SystemExit):
        gradients(trainer, first_batch(lm_data, LM))
    assert "16 learned positions; expected at least 64" in capsys.readouterr().err


@pytest.mark.slow
def test_the_resume_check_lets_validation_and_checkpoints_without_optimizer_pass(lm_data, tmp_path):
    """fairseq-validate builds the criterion from the options of a checkpoint, and resumes nothing."""
    save = tmp_path / "run"
    base = (lm_data, "--user-dir", "agg_fairseq", *LM, "--cpu", "--optimizer", "adam", "--save-dir", save)
    run_command("fairseq-train", *base, "--criterion", "mle", "--max-update", 1, "--no-save-optimizer-state")
    shutil.copy(save / "checkpoint_last.pt", tmp_path / "mle.pt")
    run_command("fairseq-train", *base, "--criterion", "cosreg", "--max-update", 2, "--reset-dataloader")
    refused = run_command("fairseq-train", *base, "--criterion", "mle", "--max-update", 3, check=False)
    assert refused.returncode == 2, "now there is an optimizer in the folder, of another criterion"
    printed = run_command(
        "fairseq-validate", lm_data, "--user-dir", "agg_fairseq", "--path", tmp_path / "mle.pt", "--cpu",
        "--task", "language_modeling", "--max-tokens", 64,
    )  # fmt: skip
    assert "ppl" in printed.stdout + printed.stderr
