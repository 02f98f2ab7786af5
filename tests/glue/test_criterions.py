"""The criterions inside fairseq's own task and trainer, without its command lines."""

import copy
import math
import types
import warnings

import pytest
import torch
from fairseq import criterions as fairseq_criterions
from fairseq.logging import metrics

from agg_fairseq.functional import agg_gates, rare_tokens
from agg_fairseq.metrics import Geometry, mean_cosine
from tests.small_trainings import LM, MT, batches, build, configuration, logged, trainer_for


@pytest.mark.grid(3)
@pytest.mark.parametrize("base", [LM, MT], ids=["lm", "mt"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("ours", ["mle", "agg"])
def test_value_and_logs_equal_fairseq(lm_data, mt_data, base, smoothing, ours):
    """Same weights and batches: same loss, nll_loss, ppl, sample size; for mle the same gradients too."""
    data = lm_data if base is LM else mt_data
    cfg, task, model, criterion = build(data, "--criterion", ours, "--label-smoothing", smoothing, base=base)
    theirs = "label_smoothed_cross_entropy" if smoothing else "cross_entropy"
    extra = ("--label-smoothing", smoothing) if smoothing else ()
    reference = task.build_criterion(configuration(data, "--criterion", theirs, *extra, base=base).criterion)
    logs, expected_logs = [], []
    for number, batch in enumerate(batches(cfg, task)[:4]):
        if hasattr(criterion, "counter"):
            criterion.begin_update(number)
        loss, size, log = criterion(model, batch)
        expected, expected_size, expected_log = reference(model, batch)
        torch.testing.assert_close(loss, expected)
        assert size == expected_size
        if ours == "mle":
            parameters = list(model.parameters())
            torch.testing.assert_close(
                torch.autograd.grad(loss, parameters), torch.autograd.grad(expected, parameters), rtol=1e-4, atol=1e-4
            )
        logs.append(log)
        expected_logs.append(expected_log)
    found, expected = logged(criterion, logs), logged(reference, expected_logs)
    assert found["ppl"] == pytest.approx(expected["ppl"], rel=1e-4)
    assert found["loss"] == pytest.approx(expected["loss"], rel=1e-4)
    assert found["nll_loss"] == pytest.approx(expected.get("nll_loss", expected["loss"]), rel=1e-4)


def test_tied_and_untied_gradients_are_gated(lm_data):
    """dL/dW of the output side equals that of likelihood with the rows of rare tokens held back by the gates."""
    for tied in ((), ("--share-decoder-input-output-embed",)):
        cfg, task, model, criterion = build(lm_data, "--criterion", "agg", "--agg-rare-fraction", 0.5, *tied)
        weight = model.decoder.output_projection.weight
        batch, other = batches(cfg, task)[:2]
        criterion.begin_update(0)
        criterion(model, other)
        criterion.begin_update(1)
        gated = torch.autograd.grad(criterion(model, batch)[0], weight)[0]
        counter = criterion.counter
        rare = rare_tokens(counter.appearances, 1, rare_fraction=0.5, never_rare=criterion.never_rare)
        gates = agg_gates(counter.appearances, 1, rare)
        assert 20 < rare.sum() < 40
        inputs = batch["net_input"]
        h = model(**inputs, features_only=True)[0].flatten(0, 1)
        y = batch["target"].flatten()
        h, y = h[y != task.target_dictionary.pad()], y[y != task.target_dictionary.pad()]
        residual = (h.detach() @ weight.detach().t()).softmax(1)
        residual[torch.arange(len(y)), y] -= 1
        gate = torch.where(rare[y][:, None], gates.gate_rare, gates.gate_common).masked_fill(~rare, 1)
        gate[torch.arange(len(y)), y] = 1
        expected = (gate * residual).t() @ h.detach()
        if tied:  # the input side, which is not gated
            total = torch.autograd.grad(likelihood(model, batch, task), weight)[0]
            expected = expected + total - residual.t() @ h.detach()
        torch.testing.assert_close(gated, expected, rtol=1e-4, atol=1e-5)


def likelihood(model, batch, task):
    logits = model(**batch["net_input"])[0].flatten(0, 1)
    return torch.nn.functional.cross_entropy(
        logits, batch["target"].flatten(), ignore_index=task.target_dictionary.pad(), reduction="sum"
    )


def test_update_freq_counts_like_one_large_batch(lm_data):
    """Four micro-batches an update: same slots, counts and gates, and the same weights after each update."""
    arguments = ("--criterion", "agg", "--agg-alpha", 0.9, "--agg-window", 3)
    split, _ = trainer_for(lm_data, *arguments, "--update-freq", 4)
    whole, _ = trainer_for(lm_data, *arguments)
    whole.model.load_state_dict(split.model.state_dict())
    data = batches(split.cfg, split.task)
    equal = [batch for batch in data if batch["target"].shape == data[0]["target"].shape]
    assert len(equal) >= 12
    for start in range(0, 12, 4):
        group = equal[start : start + 4]
        joined = copy.deepcopy(group[0])
        joined["target"] = torch.cat([batch["target"] for batch in group])
        for key in ("src_tokens", "src_lengths"):
            joined["net_input"][key] = torch.cat([batch["net_input"][key] for batch in group])
        joined["id"] = torch.cat([batch["id"] for batch in group])
        joined["ntokens"] = sum(batch["ntokens"] for batch in group)
        split.train_step(group)
        whole.train_step([joined])
        first, second = split.criterion, whole.criterion
        assert torch.equal(first.counter.appearances, second.counter.appearances)
        assert first.counter.updates == second.counter.updates == min(start // 4, 3)
        if start:
            assert torch.equal(first._gates.rare, second._gates.rare)
            torch.testing.assert_close(first._gates.gate_common, second._gates.gate_common)
            torch.testing.assert_close(first._gates.gate_rare, second._gates.gate_rare)
    for ours, theirs in zip(split.model.parameters(), whole.model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


def test_first_update_is_not_gated_and_window_slides(lm_data):
    trainer, _ = trainer_for(lm_data, "--criterion", "agg", "--agg-window", 2)
    data = batches(trainer.cfg, trainer.task)
    criterion, pad = trainer.criterion, trainer.task.target_dictionary.pad()
    for number, batch in enumerate(data[:5]):
        trainer.train_step([batch])
        window = data[max(0, number - 2) : number]
        assert (criterion._gates is None) == (number == 0)
        if window:
            tokens = torch.cat([b["target"].flatten() for b in window])
            expected = torch.bincount(tokens[tokens != pad], minlength=len(trainer.task.target_dictionary))
            assert torch.equal(criterion.counter.appearances, expected)


def test_window_is_one_epoch(lm_data):
    for frequency in (1, 3):
        trainer, iterator = trainer_for(lm_data, "--criterion", "agg", "--update-freq", frequency)
        trainer.train_step(batches(trainer.cfg, trainer.task)[:1])
        assert trainer.criterion.counter.window == math.ceil(len(iterator) / frequency)


def test_validation_leaves_the_counter_alone(lm_data):
    trainer, _ = trainer_for(lm_data, "--criterion", "agg")
    data = batches(trainer.cfg, trainer.task)
    trainer.train_step([data[0]])
    before = copy.deepcopy(trainer.criterion.checkpoint_state())
    log = trainer.valid_step(data[1])
    after = trainer.criterion.checkpoint_state()
    assert torch.equal(before["counter"]["current"], after["counter"]["current"])
    assert before["open_update"] == after["open_update"]
    assert 0 < log["isotropy"] <= 1 and 0 <= log["isoscore"] <= 1 and "rare_tokens" not in log


@pytest.mark.parametrize(
    ("rows", "missing"), [(1, set()), (None, {"mean_cosine", "mean_cosine_centered", "mean_share"})]
)
def test_statistics_of_rows_of_zeros(lm_data, rows, missing):
    """They have no direction: S(W) is of the other rows, and is not logged if there are none."""
    _, _, _, criterion = build(lm_data, "--criterion", "mle")
    weight = torch.randn(12, 4)
    weight[:rows] = 0
    criterion.eval()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = criterion._embedding_statistics(weight)
    assert set(Geometry._fields) - set(found) == missing
    if rows:
        assert found["mean_cosine"] == (pytest.approx(mean_cosine(weight[1:])), 1)
    assert all(math.isfinite(value) for value, _ in found.values())


def test_dummy_batches_are_not_counted(lm_data):
    trainer, _ = trainer_for(lm_data, "--criterion", "agg")
    data = batches(trainer.cfg, trainer.task)
    trainer.train_step([data[0], {}])  # an empty batch: fairseq repeats its first as a dummy
    expected = (data[0]["target"] != trainer.task.target_dictionary.pad()).sum()
    assert trainer.criterion.counter.current.sum() == expected


def test_skipped_updates_are_not_counted(lm_data):
    """An update that overflows under fp16 keeps its number: the next attempt starts afresh."""
    trainer, _ = trainer_for(lm_data, "--criterion", "agg")
    data = batches(trainer.cfg, trainer.task)
    trainer.train_step([data[0]])
    attempt = trainer.task.train_step
    for batch, update in ((data[1], 1), (data[2], 1), (data[3], 2)):  # data[1] is skipped
        trainer.zero_grad()
        attempt(
            sample=batch,
            model=trainer.model,
            criterion=trainer.criterion,
            optimizer=trainer.optimizer,
            update_num=update,
        )
    pad = trainer.task.target_dictionary.pad()
    tokens = torch.cat([data[0]["target"].flatten(), data[2]["target"].flatten()])
    expected = torch.bincount(tokens[tokens != pad], minlength=len(trainer.task.target_dictionary))
    assert torch.equal(trainer.criterion.counter.appearances, expected)
    assert trainer.criterion.counter.updates == 2


def test_current_batch_can_be_counted(lm_data):
    trainer, _ = trainer_for(lm_data, "--criterion", "agg", "--agg-count-current-batch", "--agg-alpha", 0.5)
    batch = batches(trainer.cfg, trainer.task)[0]
    trainer.train_step([batch])
    counts = torch.bincount(batch["target"].flatten(), minlength=len(trainer.task.target_dictionary))
    rare = trainer.criterion._gates.rare
    assert torch.equal(rare, (counts < 0.5) & ~trainer.criterion.never_rare)


def test_static_group_is_fixed_after_its_epoch(lm_data):
    trainer, _ = trainer_for(
        lm_data, "--criterion", "agg", "--agg-rare-fraction", 0.3, "--agg-static-after-epoch", 1, "--agg-window", 1
    )
    data = batches(trainer.cfg, trainer.task)
    groups = []
    for number, batch in enumerate(data[:6]):
        trainer.criterion.train_iterator.epoch = 1 if number < 3 else 2
        trainer.train_step([batch])
        groups.append(trainer.criterion._gates and trainer.criterion._gates.rare.tolist())
    assert groups[1] != groups[2]
    assert groups[3] == groups[4] == groups[5]
    assert trainer.criterion.checkpoint_state()["static_rare"] is not None


def test_special_tokens_are_never_rare(lm_data):
    trainer, _ = trainer_for(lm_data, "--criterion", "agg", "--agg-alpha", 0.999)
    data = batches(trainer.cfg, trainer.task)
    for batch in data[:2]:
        trainer.train_step([batch])
    dictionary = trainer.task.target_dictionary
    special = [dictionary.pad(), dictionary.bos(), dictionary.eos(), dictionary.unk()]
    assert not trainer.criterion._gates.rare[special].any()
    assert trainer.criterion._gates.rare.any()


def test_state_goes_through_fairseqs_checkpoint_hooks(lm_data):
    arguments = ("--criterion", "agg", "--agg-window", 2, "--agg-alpha", 0.9)
    whole, _ = trainer_for(lm_data, *arguments)
    first, _ = trainer_for(lm_data, *arguments)
    data = batches(first.cfg, first.task)
    for batch in data[:3]:
        first.train_step([batch])
        whole.train_step([batch])
    saved = first.task.get_checkpoint_dict()["LanguageModelingTask"]
    second, _ = trainer_for(lm_data, *arguments)
    second.task.set_checkpoint_dict(saved)
    second.set_num_updates(3)
    for batch in data[3:5]:
        whole.train_step([batch])
        second.train_step([batch])
        assert torch.equal(whole.criterion.counter.appearances, second.criterion.counter.appearances)
        torch.testing.assert_close(whole.criterion._gates.gate_common, second.criterion._gates.gate_common)


@pytest.mark.grid(3)
@pytest.mark.parametrize(
    ("criterion", "state", "words"),
    [
        ("agg", [1, 2], "values by name"),
        ("agg", {"counter": None}, "a state that it has saved"),
        ("agg", {"open_update": "three"}, "number of an update"),
        ("agg", {"static_rare": torch.tensor([10**6])}, "static_rare to be tokens"),
        ("face", {"frequency": torch.tensor([1])}, "frequency to be the counts"),
        ("face", {"current": torch.tensor([-1])}, "current to be the counts"),
    ],
)
def test_a_damaged_state_is_one_line_and_status_2(lm_data, capsys, criterion, state, words):
    trainer, _ = trainer_for(lm_data, "--criterion", criterion)
    saved = trainer.task.get_checkpoint_dict()["LanguageModelingTask"]["agg_fairseq"]
    with pytest.raises(SystemExit) as stop:
        trainer.task.set_checkpoint_dict({"agg_fairseq": saved | state if isinstance(state, dict) else state})
    err = capsys.readouterr().err
    assert stop.value.code == 2
    assert words in err and "--restore-file" in err and err.count("\n") == 1


def test_statistics_at_their_interval(lm_data):
    trainer, _ = trainer_for(lm_data, "--criterion", "agg", "--embedding-stats-interval", 2)
    data = batches(trainer.cfg, trainer.task)
    numbers = []
    for batch in data[:5]:
        with metrics.aggregate(new_root=True) as aggregator:
            trainer.train_step([batch, batch])
        numbers.append("isotropy" in aggregator.get_smoothed_values())
    assert numbers == [True, False, True, False, True]


@pytest.mark.parametrize("gates", ["both", "faded"])
def test_warns_once_where_half_the_vocabulary_is_rare(lm_data, caplog, gates):
    """Not with gates that fade, for which such a group is recommended."""
    options = ("--agg-alpha", 0.99, "--agg-window", 1, "--agg-gates", gates)
    trainer, _ = trainer_for(lm_data, "--criterion", "agg", *options)
    data = batches(trainer.cfg, trainer.task)
    for number, batch in enumerate(data[:4]):
        trainer.criterion.train_iterator.epoch = 1 if number < 2 else 2
        with caplog.at_level("WARNING"):
            trainer.train_step([batch])
        is_told = number >= 2 and gates == "both"
        assert sum("of the vocabulary is rare" in record.message for record in caplog.records) == is_told


def test_a_share_of_a_configuration_replaces_the_default_alpha(lm_data):
    """As configs/…/tiny.yaml have it, and every checkpoint that was trained with a share; another α is refused."""
    cfg, task, *_ = build(lm_data, "--criterion", "agg", "--agg-rare-fraction", 0.2)
    assert cfg.criterion.agg_alpha == 0.03
    cfg.criterion.agg_alpha = 0.1
    with pytest.raises(SystemExit):
        task.build_criterion(cfg.criterion)


@pytest.mark.grid(3)
@pytest.mark.parametrize("limit", ["--max-update", "--max-epoch"])
@pytest.mark.parametrize(
    ("window", "epochs", "is_told"), [(0, 9, True), (0, 10, False), (0, 0, False), (10**6, 9, False)]
)
def test_a_window_that_is_long_for_the_training_is_told_of(lm_data, caplog, limit, window, epochs, is_told):
    """An epoch is told of if it is more than a tenth of the training; not without a limit, nor a window as given."""
    length = epochs * (len(batches(*build(lm_data)[:2])) if limit == "--max-update" else 1)
    limits = ("--max-update", 0, limit, length)
    trainer, _ = trainer_for(lm_data, "--criterion", "agg", "--agg-window", window, *limits)
    with caplog.at_level("WARNING"):
        for batch in batches(trainer.cfg, trainer.task)[:2]:
            trainer.train_step([batch])
    assert sum("more than a tenth of the training" in record.message for record in caplog.records) == is_told


@pytest.mark.parametrize("is_sorted", [True, False])
def test_a_dictionary_in_another_order_is_told_of(lm_data, caplog, is_sorted):
    trainer, _ = trainer_for(lm_data, "--criterion", "agg", "--agg-rare-fraction", 0.2)
    if not is_sorted:
        trainer.task.target_dictionary.count[-1] += 10**6
    with caplog.at_level("WARNING"):
        trainer.train_step([batches(trainer.cfg, trainer.task)[0]])
    assert any("not sorted by frequency" in record.message for record in caplog.records) is not is_sorted


@pytest.mark.grid(3)
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--agg-alpha", 0), "--agg-alpha between 0 and 1"),
        (("--agg-alpha", 1.5), "got 1.5"),
        (("--agg-rare-fraction", 1), "--agg-rare-fraction between 0 and 1"),
        (("--agg-rare-fraction", 0.2, "--agg-alpha", 0.03), "both --agg-alpha 0.03 and --agg-rare-fraction 0.2; drop"),
        (("--agg-window", -1), "--agg-window"),
        (("--agg-static-after-epoch", -2), "--agg-static-after-epoch"),
        (("--label-smoothing", 1), "--label-smoothing"),
        (("--embedding-stats-interval", -5), "--embedding-stats-interval"),
    ],
)
def test_bad_options_are_one_line_and_status_2(lm_data, capsys, arguments, words):
    with pytest.raises(SystemExit) as stop:
        build(lm_data, "--criterion", "agg", *arguments)
    error = capsys.readouterr().err
    assert stop.value.code == 2 and words in error and error.count("\n") == 1


@pytest.mark.parametrize(
    ("base", "words"),
    [
        ((*LM, "--adaptive-softmax-cutoff", "10,20"), "adaptive softmax"),
        ("--task language_modeling --arch lightconv_lm --decoder-layers 1 --decoder-embed-dim 16 "
         "--decoder-attention-heads 2 --decoder-kernel-size-list [3] --tokens-per-sample 16 --max-tokens 64 "
         "--adaptive-softmax-cutoff 10,20".split(),
         "adaptive softmax in LightConvDecoder"),
    ],
)  # fmt: skip
def test_other_decoders_are_refused(lm_data, capsys, base, words):
    cfg, task, model, criterion = build(lm_data, "--criterion", "agg", base=base)
    with pytest.raises(SystemExit) as stop:
        criterion(model, batches(cfg, task)[0])
    error = capsys.readouterr().err
    assert stop.value.code == 2 and words in error and "expected a model whose logits" in error


def test_the_criterion_follows_the_model_to_its_device(lm_data):
    """The distributed trainer moves a criterion only if it has parameters; `meta` stands for a GPU here."""
    _, task, model, criterion = build(lm_data, "--criterion", "agg")
    seen = []
    criterion.begin_update = lambda update_num: seen.append(criterion.counter.current.device.type)
    optimizer = types.SimpleNamespace(zero_grad=lambda: None)
    with pytest.raises(Exception):  # noqa: B017 — whatever the model says of a batch on another device
        task.train_step({"net_input": {}}, model.to("meta"), criterion, optimizer, 0)
    assert seen == ["meta"] and criterion.never_rare.device.type == "meta"


def test_a_retried_update_logs_its_statistics(lm_data):
    trainer, _ = trainer_for(lm_data, "--criterion", "agg", "--embedding-stats-interval", 2)
    batch = batches(trainer.cfg, trainer.task)[0]
    for _ in range(2):  # the first attempt overflowed
        trainer.criterion.begin_update(2)
        assert trainer.criterion(trainer.model, batch)[2]["isotropy_number"] == 1


def test_a_half_full_window_decides_nothing(lm_data, caplog):
    """Fine-tuning in a late epoch: neither is the group fixed, nor does the warning speak, before K updates."""
    trainer, _ = trainer_for(
        lm_data, "--criterion", "agg", "--agg-alpha", 0.9, "--agg-static-after-epoch", 1, "--agg-window", 3
    )
    data = batches(trainer.cfg, trainer.task)
    trainer.criterion.train_iterator.epoch = 4
    for number, batch in enumerate(data[:5]):
        with caplog.at_level("WARNING"):
            trainer.train_step([batch])
        warned = any("of the vocabulary is rare" in record.message for record in caplog.records)
        assert (trainer.criterion.static_rare is not None) == warned == (number >= 3)


@pytest.mark.parametrize("which", ["g1", "g2"])
def test_one_gate_alone(lm_data, which):
    trainer, _ = trainer_for(lm_data, "--criterion", "agg", "--agg-gates", which)
    for batch in batches(trainer.cfg, trainer.task)[:2]:
        trainer.train_step([batch])
    gates = trainer.criterion._gates
    assert (gates.gate_common is None) == (which == "g2") and (gates.gate_rare is None) == (which == "g1")


def test_registering_twice_is_no_error():
    from agg_fairseq.criterions.base import register

    known = fairseq_criterions.CRITERION_REGISTRY["agg"]
    again = type("AggCriterion", (fairseq_criterions.FairseqCriterion,), {})
    assert register("agg", dataclass=None)(again) is known
    with pytest.raises(ValueError, match="duplicate"):
        register("agg", dataclass=None)(type("Other", (fairseq_criterions.FairseqCriterion,), {}))
