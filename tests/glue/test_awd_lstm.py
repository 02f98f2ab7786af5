"""examples/awd_lstm: layers, batches that continue each other, the average of NT-ASGD, the cache,
evaluation."""

import copy
import json
import math
import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.utils import import_user_module
from torch.nn import functional
from torch.testing import assert_close

from agg_fairseq.checkpoints.fairseq_checkpoint import Checkpoint
from agg_fairseq.evaluation import BinarizedText, generate_texts, perplexity
from agg_fairseq.fairseq_plugin.models.from_checkpoint import build_model
from tests.conftest import ROOT, called, run_command
from tests.small_trainings import build, trainer_for

USER_DIR = ROOT / "examples" / "awd_lstm"
import_user_module(SimpleNamespace(user_dir=str(USER_DIR)))
from awd_lstm.continuous_cache import CacheOptions, ContinuousCache  # noqa: E402
from awd_lstm.modules import AwdLSTM, LSTMDropout, activation_penalty  # noqa: E402
from awd_lstm.nt_asgd import NTASGD  # noqa: E402
from awd_lstm.streams import StreamDataset  # noqa: E402

AWD = (
    "--task language_modeling_streams --arch awd_lstm_lm --decoder-embed-dim 8 "
    "--decoder-hidden-size 12 "
    "--decoder-layers 2 --tokens-per-sample 12 --batch-size 4 --batch-size-valid 2"
).split()
PLAIN = (
    "--dropout-embedding 0 --dropout-input 0 --dropout-hidden 0 --dropout-output 0 "
    "--dropout-weight 0 --activation-penalty 0 --temporal-penalty 0"
).split()
NT_ASGD = ("--optimizer", "nt_asgd", "--lr", "5", "--clip-norm", "0.25", "--asgd-patience", "1")


def test_weight_dropout_drops_recurrent_entries_once_per_batch():
    """The result is that of `nn.LSTM` with the recurrent matrix dropped in advance, for all
    positions the same."""
    lstm = AwdLSTM(5, 7, 1, LSTMDropout(0.0, 0.0, 0.0, 0.0, 0.5)).double()
    tokens, embedding = torch.randint(11, (4, 6)), torch.randn(11, 5, dtype=torch.float64)
    [layer] = lstm.layers
    torch.manual_seed(5)
    features, _, _ = lstm(tokens, embedding)
    torch.manual_seed(5)
    dropped = functional.dropout(layer.weight_hh_l0.detach(), 0.5)
    assert (dropped == 0).double().mean() == pytest.approx(0.5, abs=0.15)
    reference = torch.nn.LSTM(5, 5).double()
    reference.load_state_dict({**layer.state_dict(), "weight_hh_l0": dropped})
    expected, _ = reference(functional.embedding(tokens, embedding).transpose(0, 1))
    assert_close(features, expected.transpose(0, 1))
    features.sum().backward()
    assert (layer.weight_hh_l0.grad == 0).any() and layer.weight_hh_l0.grad.any()


def test_activation_penalty_by_hand():
    """Means of squares, over the positions that are not padding."""
    dropped, raw = torch.randn(3, 6, 4).double(), torch.randn(3, 6, 4).double()
    kept = torch.ones(3, 6, dtype=torch.bool)
    kept[1, 2:] = False
    rows = [(dropped[0], raw[0]), (dropped[1, :2], raw[1, :2]), (dropped[2], raw[2])]
    size = torch.cat([d for d, _ in rows]).pow(2).mean()
    change = torch.cat([r[1:] - r[:-1] for _, r in rows]).pow(2).mean()
    found = activation_penalty(dropped, raw, kept, alpha=2.0, beta=0.5)
    assert_close(found.double(), 2 * size + 0.5 * change, rtol=1e-5, atol=1e-5)


def steps(optimizer, parameters, gradients):
    for step in gradients:
        for parameter, gradient in zip(parameters, step, strict=True):
            parameter.grad = gradient.clone()
        optimizer.step()


def test_equals_asgd_of_torch_after_the_trigger():
    """To the precision of the float32 in which torch keeps the weight of an iterate in the
    average."""
    shapes, before = [(4, 3), (5,)], 7
    parameters = [torch.nn.Parameter(torch.randn(shape, dtype=torch.float64)) for shape in shapes]
    gradients = [[torch.randn(shape, dtype=torch.float64) for shape in shapes] for _ in range(20)]
    copies = copy.deepcopy(parameters)
    ours = NTASGD(parameters, lr=0.25, weight_decay=0.01, patience=5)
    steps(ours, parameters, gradients[:before])
    steps(torch.optim.SGD(copies, lr=0.25, weight_decay=0.01), copies, gradients[:before])
    assert_close(parameters, copies, rtol=0, atol=1e-14)
    assert [ours.observe(loss, number) for number, loss in enumerate([1.0] * 6 + [2.0])] == [
        False
    ] * 6 + [True]
    theirs = torch.optim.ASGD(copies, lr=0.25, weight_decay=0.01, t0=0, lambd=0.0)
    for step in gradients[before:]:
        steps(ours, parameters, [step])
        steps(theirs, copies, [step])
        assert_close(parameters, copies, rtol=0, atol=1e-13)
        averages = [theirs.state[copy]["ax"] for copy in copies]
        ours.swap()
        assert_close([p.detach() for p in parameters], averages, rtol=0, atol=1e-7)
        ours.swap()


def triggered(losses, n):
    """Algorithm 1, with t validations before each."""
    for t, v in enumerate(losses):
        if t > n and v > min(losses[l] for l in range(t - n)):  # noqa: E741 — the paper's name
            return t
    return None


@pytest.mark.parametrize("n", [1, 2, 5])
def test_averaging_begins_as_in_algorithm_1(n):
    for seed in range(50):
        generator = random.Random(seed)
        losses = [round(10 / (t + 1) + generator.random(), 1) for t in range(15)]
        optimizer = NTASGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0, patience=n)
        found = []
        for t, loss in enumerate(losses):
            found += [t] if optimizer.observe(loss, t) else []
            assert not optimizer.observe(0.0, t)  # a validation counts once
        expected = triggered(losses, n)
        assert found == ([] if expected is None else [expected])
        assert optimizer.averaging == (expected is not None)


def loop(features, targets, model, size, theta, weight):
    """Grave et al. (2017), position by position in float64: (N, V) probabilities."""
    features, found = features.double(), []
    for t in range(len(targets)):
        cached, total = torch.zeros(model.size(1), dtype=torch.float64), 0.0
        for i in range(max(0, t - size), t):
            score = math.exp(theta * float(features[t] @ features[i]))
            cached[targets[i]] += score
            total += score
        p = model[t].double()
        found.append((1 - weight) * p + weight * cached / total if total else p)
    return torch.stack(found)


@pytest.mark.parametrize(
    ("size", "theta", "weight"), [(1, 0.7, 0.1), (7, 0.0, 0.3), (39, 0.7, 0.0), (500, 2.0, 1.0)]
)
def test_equals_the_loop(size, theta, weight):
    """Whatever the blocks that the text is read in."""
    h, y, log_probs = torch.randn(40, 4), torch.randint(6, (40,)), torch.randn(40, 6).log_softmax(1)
    expected = loop(h, y, log_probs.exp(), size, theta, weight)
    assert_close(expected.sum(1), torch.ones(len(y), dtype=torch.float64))
    for blocks in ([40], [1] * 40, [3, 20, 1, 16]):
        cache = ContinuousCache(CacheOptions(size, theta, weight))
        parts = zip(h.split(blocks), y.split(blocks), log_probs.split(blocks), strict=True)
        found = torch.cat([cache.add(*part) for part in parts])
        assert_close(found.exp().double(), expected, rtol=1e-5, atol=1e-7)


def stream(tokens, length, seed=None):
    lines = torch.arange(tokens).split(7)
    return StreamDataset(SimpleNamespace(dataset=lines), first=-1, length=length, seed=seed)


@pytest.mark.parametrize("seed", [None, 3])
def test_rows_continue_each_other(seed):
    """What a row reads over an epoch is its stream, and the source is the target one token
    earlier."""
    data = stream(1003, 20, seed)
    data.arrange(10)
    for epoch in (1, 2):
        data.set_epoch(epoch)
        batches = [
            data.collater([data[i] for i in batch])
            for batch in data.batch_by_size(data.ordered_indices())
        ]
        assert [batch["net_input"]["continues"] for batch in batches] == [False] + [True] * (
            len(batches) - 1
        )
        read = torch.cat([batch["target"] for batch in batches], dim=1)
        assert torch.equal(read, torch.arange(1000).view(10, 100))
        assert torch.equal(
            torch.cat([batch["net_input"]["src_tokens"] for batch in batches], dim=1), read - 1
        )
        assert sum(data.sizes) == 1000
        assert all(data.num_tokens(i) == len(data[i]["target"]) for i in range(len(data)))


def test_lengths_are_random_around_the_mean_and_repeat_with_the_seed():
    lengths = []
    for data in (stream(200_000, 70, seed=1), stream(200_000, 70, seed=1)):
        for epoch in range(1, 40):
            data.set_epoch(epoch)
            lengths.append(np.diff(data.bounds)[:-1])
    assert np.array_equal(lengths[38], lengths[77]) and not np.array_equal(lengths[0], lengths[38])
    lengths = np.concatenate(lengths)
    short = lengths < 52
    assert short.mean() == pytest.approx(0.05, abs=0.01) and lengths.min() >= 5
    assert lengths[~short].mean() == pytest.approx(69.5, abs=0.2)
    assert lengths[~short].std() == pytest.approx(5, abs=0.2)


def test_the_state_is_carried_over_batches(lm_data):
    """Without dropout, features of the batches of an epoch are those of the streams read at
    once."""
    cfg, task, model, _ = build(lm_data, "--criterion", "mle", *PLAIN, base=AWD)
    itr = task.get_batch_iterator(task.dataset("train"), max_sentences=4, seed=1).next_epoch_itr()
    batches = list(itr)
    assert not batches[0]["net_input"]["continues"]
    whole = torch.cat([batch["net_input"]["src_tokens"] for batch in batches], dim=1)
    for train in (True, False):
        model.train(train)
        parts = [model(**batch["net_input"])[0] for batch in batches]
        assert_close(torch.cat(parts, dim=1), model(whole)[0])
    model.train()
    model(whole[:, :4], continues=True)
    model(whole[:3, :4])  # an update on other text
    assert_close(model(whole, continues=True)[0], model(whole)[0])


@pytest.mark.slow
def test_the_learning_rate_follows_the_length(lm_data):
    """An update is that of SGD with lr · length / --tokens-per-sample, and the loss has the penalty
    of the model."""
    options = (*PLAIN, "--activation-penalty", 3, "--clip-norm", 0)
    trainer, iterator = trainer_for(lm_data, "--criterion", "mle", *NT_ASGD, *options, base=AWD)
    batch = next(iter(iterator.next_epoch_itr()))
    before = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
    features = trainer.model(**batch["net_input"], features_only=True)[0]
    logits = trainer.model.decoder.output_projection(features)
    nll = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch["target"].flatten())
    expected = torch.autograd.grad(
        nll + 3 * features.square().mean(), list(trainer.model.parameters())
    )
    log = trainer.train_step([batch])
    rate = 5 * batch["target"].size(1) / 12
    for (name, parameter), gradient in zip(trainer.model.named_parameters(), expected, strict=True):
        assert_close(parameter.detach(), before[name] - rate * gradient, rtol=1e-4, atol=1e-6)
    assert trainer.get_lr() == 5
    assert log["activation_penalty"] == pytest.approx(3 * features.square().mean().item(), abs=1e-4)
    assert log["nll_loss"] == pytest.approx(float(nll) / math.log(2), abs=2e-3)


def test_average_is_validated_and_saved_and_training_goes_on_from_the_weights(lm_data, tmp_path):
    options = ("--criterion", "mle", *NT_ASGD, "--asgd-patience", "0", "--save-dir", tmp_path)
    trainer, iterator = trainer_for(lm_data, *options, base=AWD)
    batches = list(iterator.next_epoch_itr())
    iterates = []
    for batch in batches[:4]:
        trainer.train_step([batch])
        iterates.append([p.detach().clone() for p in trainer.model.parameters()])
    averages = [torch.stack(values).mean(0) for values in zip(*iterates[1:], strict=True)]
    trainer.begin_valid_epoch(1)
    assert_close([p.detach() for p in trainer.model.parameters()], averages)
    trainer.cfg.checkpoint.no_save = False
    checkpoint_utils.save_checkpoint(trainer.cfg.checkpoint, trainer, iterator, 3.0)
    saved = torch.load(tmp_path / "checkpoint_last.pt", weights_only=False)
    names = [name for name, _ in trainer.model.named_parameters()]
    assert_close([saved["model"][name] for name in names], averages)
    resumed, _ = trainer_for(lm_data, *options, base=AWD)
    checkpoint_utils.load_checkpoint(resumed.cfg.checkpoint, resumed)
    for one in (trainer, resumed):
        one.train_step([batches[4]])
    assert all(map(torch.equal, trainer.model.parameters(), resumed.model.parameters()))
    assert trainer.optimizer.optimizer.param_groups[0]["losses"] == [3.0]


def reference(path, data, cache=None):
    """Perplexity of the test split, read at once, with the loop of the cache's test."""
    model, task = build_model(Checkpoint(path), data)
    tokens = torch.cat(list(task.load_dataset("test").dataset.dataset)).long()
    source = torch.cat([torch.tensor([task.dictionary.eos()]), tokens[:-1]])[None]
    with torch.no_grad():
        features = model(source, features_only=True)[0][0]
        probabilities = model.decoder.output_projection(features).softmax(1)
    if cache:
        probabilities = loop(features, tokens, probabilities, *cache)
    return math.exp(-probabilities.double()[torch.arange(len(tokens)), tokens].log().mean())


@pytest.mark.slow
def test_evaluation_carries_the_state_over_blocks(lm_data, tmp_path):
    """By the script of the example, fairseq-eval-lm and this package alike; and texts are
    generated."""
    called(
        "train", lm_data, "--user-dir", USER_DIR,
        *AWD, *NT_ASGD, "--criterion", "agg", "--agg-rare-fraction", 0.3, "--max-epoch", 2, "--cpu",
        "--seed", 3, "--num-workers", 0, "--save-dir", tmp_path, "--no-epoch-checkpoints",
    )  # fmt: skip
    path = tmp_path / "checkpoint_best.pt"
    script = USER_DIR / "evaluate.py"
    numbers = tmp_path / "numbers.json"
    expected = reference(path, lm_data)
    for cache in (None, (30, 0.5, 0.2)):
        options = (
            ()
            if cache is None
            else ("--cache-size", 30, "--cache-theta", 0.5, "--cache-lambda", 0.2)
        )
        run_command("python", script, path, "--data", lm_data, "--json", numbers, *options)
        found = json.loads(numbers.read_text())["rows"][0]["perplexity"]["total"]
        assert found == pytest.approx(reference(path, lm_data, cache), rel=1e-5)
    for length in (None, 5):
        result = perplexity(
            {"awd": Checkpoint(path)}, BinarizedText(lm_data, tokens_per_sample=length)
        )
        assert result["awd"]["perplexity"]["total"] == pytest.approx(expected, rel=1e-5)
    options = (
        "--path", path, "--task", "language_modeling_streams", "--tokens-per-sample", 12, "--cpu",
    )  # fmt: skip
    assert f"Perplexity: {expected:.2f}" in called(
        "eval-lm", lm_data, "--user-dir", USER_DIR, *options
    )
    texts = generate_texts(
        Checkpoint(path), lm_data, tmp_path / "texts.jsonl", prefix_length=5, length=5, device="cpu"
    )
    assert texts[str(tmp_path / "texts.jsonl")]["texts"] > 3
