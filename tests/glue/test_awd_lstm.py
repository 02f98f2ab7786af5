"""examples/awd_lstm: layers, batches that continue each other, the average of NT-ASGD, the cache,
evaluation."""

import copy
import doctest
import json
import math
import random
from types import SimpleNamespace

import pytest
import torch
from fairseq.utils import import_user_module
from torch.nn import functional
from torch.testing import assert_close

from agg_fairseq.checkpoints.fairseq_checkpoint import Checkpoint
from agg_fairseq.evaluation import BinarizedText, perplexity
from agg_fairseq.fairseq_plugin.models.from_checkpoint import build_model
from tests.conftest import ROOT, called, run_command
from tests.small_trainings import batches, build, build_trainer

USER_DIR = ROOT / "examples" / "awd_lstm"
import_user_module(SimpleNamespace(user_dir=str(USER_DIR)))
from awd_lstm import nt_asgd  # noqa: E402
from awd_lstm.continuous_cache import CacheOptions, ContinuousCache  # noqa: E402
from awd_lstm.modules import AwdLSTM, LSTMDropout, activation_penalty  # noqa: E402
from awd_lstm.nt_asgd import NTASGD  # noqa: E402
from awd_lstm.streams import StreamDataset  # noqa: E402

AWD = (
    "--task language_modeling_streams --arch awd_lstm_lm --decoder-embed-dim 8 --decoder-layers 2 "
    "--decoder-hidden-size 12 --tokens-per-sample 12 --batch-size 4 --batch-size-valid 2"
)
PLAIN = (
    "--dropout-embedding 0 --dropout-input 0 --dropout-hidden 0 --dropout-output 0 "
    "--dropout-weight 0 --activation-penalty 0 --temporal-penalty 0"
)
NT_ASGD = "--optimizer nt_asgd --lr 5 --clip-norm 0.25 --asgd-patience 1"


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
    reference = torch.nn.LSTM(5, 5).double()
    reference.load_state_dict({**layer.state_dict(), "weight_hh_l0": dropped})
    expected, _ = reference(functional.embedding(tokens, embedding).transpose(0, 1))
    assert_close(features, expected.transpose(0, 1))
    features.sum().backward()
    assert (layer.weight_hh_l0.grad == 0).any() and layer.weight_hh_l0.grad.any()


def test_activation_penalty_by_hand():
    dropped, raw = torch.randn(2, 2, 6, 4).unbind()
    kept = torch.ones(2, 6, dtype=torch.bool)
    kept[1, 2:] = False
    size = torch.cat([dropped[0], dropped[1, :2]]).pow(2).mean()
    change = torch.cat([raw[0, 1:] - raw[0, :-1], raw[1, 1:2] - raw[1, :1]]).pow(2).mean()
    found = activation_penalty(dropped, raw, kept, alpha=2.0, beta=0.5)
    assert_close(found, 2 * size + 0.5 * change)


def triggered(losses, n):
    """Algorithm 1, with t validations before each."""
    for t, v in enumerate(losses):
        if t > n and v > min(losses[l] for l in range(t - n)):  # noqa: E741 — the paper's name
            return t
    return None


def test_the_example_in_the_docstring_of_nt_asgd():
    result = doctest.testmod(nt_asgd)
    assert result.attempted > 0 and result.failed == 0


@pytest.mark.parametrize("n", [1, 5])
def test_averaging_begins_as_in_algorithm_1(n):
    for seed in range(20):
        generator = random.Random(seed)
        losses = [round(10 / (t + 1) + generator.random(), 1) for t in range(15)]
        optimizer = NTASGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0, patience=n)
        found = None
        for t, loss in enumerate(losses):
            if optimizer.observe(loss, t):
                assert found is None
                found = t
            assert not optimizer.observe(0.0, t)  # a validation counts once
        assert found == triggered(losses, n)


def loop(features, targets, model, size, theta, weight):
    """Grave et al. (2017), position by position in float64: (N, V) probabilities."""
    features, found = features.double(), []
    for t in range(len(targets)):
        p, window = model[t].double(), slice(max(0, t - size), t)
        scores = (theta * features[window] @ features[t]).exp()
        cached = torch.zeros_like(p).index_add(0, targets[window], scores)
        found.append((1 - weight) * p + weight * cached / scores.sum() if t else p)
    return torch.stack(found)


@pytest.mark.parametrize(
    ("size", "theta", "weight"), [(1, 0.7, 0.1), (7, 0.0, 0.3), (500, 2.0, 1.0)]
)
def test_the_cache_equals_the_loop(size, theta, weight):
    h, y, log_probs = torch.randn(40, 4), torch.randint(6, (40,)), torch.randn(40, 6).log_softmax(1)
    expected = loop(h, y, log_probs.exp(), size, theta, weight)
    for blocks in ([40], [1] * 40, [3, 20, 1, 16]):
        cache = ContinuousCache(CacheOptions(size, theta, weight))
        parts = zip(h.split(blocks), y.split(blocks), log_probs.split(blocks), strict=True)
        found = torch.cat([cache.add(*part) for part in parts])
        assert_close(found.exp().double(), expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("seed", [None, 3])
def test_rows_continue_each_other(seed):
    lines = SimpleNamespace(dataset=torch.arange(1003).split(7))
    data = StreamDataset(lines, first=-1, length=20, seed=seed)
    data.arrange(10)
    for epoch in (1, 2):
        data.set_epoch(epoch)
        read = []
        for number, indices in enumerate(data.batch_by_size(data.ordered_indices())):
            batch = data.collater([data[index] for index in indices])
            assert batch["net_input"]["continues"] == (number > 0)
            assert torch.equal(batch["net_input"]["src_tokens"], batch["target"] - 1)
            assert data.num_tokens(indices[0]) == batch["target"].size(1)
            read.append(batch["target"])
        assert torch.equal(torch.cat(read, dim=1), torch.arange(1000).view(10, 100))


def test_the_state_is_carried_over_batches(lm_data):
    _, task, model, _ = build(lm_data, PLAIN, base=[AWD])
    iterator = task.get_batch_iterator(task.dataset("train"), max_sentences=4, seed=1)
    inputs = [batch["net_input"] for batch in iterator.next_epoch_itr()]
    whole = torch.cat([one["src_tokens"] for one in inputs], dim=1)
    for train in (True, False):
        model.train(train)
        parts = [model(**one)[0] for one in inputs]
        assert_close(torch.cat(parts, dim=1), model(whole)[0])
    model.train()
    model(whole[:, :4], continues=True)
    model(whole[:3, :4])  # an update on other text
    assert_close(model(whole, continues=True)[0], model(whole)[0])


@pytest.mark.slow
def test_the_learning_rate_follows_the_length(lm_data):
    """An update is that of SGD with lr · length / --tokens-per-sample, and the loss has the penalty
    of the model."""
    options = f"{PLAIN} --activation-penalty 3 --clip-norm 0 --weight-decay 0.1"
    trainer = build_trainer(lm_data, NT_ASGD, options, base=[AWD])
    batch, parameters = batches(trainer)[0], list(trainer.model.parameters())
    before, target = copy.deepcopy(parameters), batch["target"]
    features = trainer.model(**batch["net_input"], features_only=True)[0]
    logits = trainer.model.decoder.output_projection(features)
    nll = functional.cross_entropy(logits.flatten(0, 1), target.flatten())
    penalty = 3 * features.square().mean()
    gradients = torch.autograd.grad(nll + penalty, parameters)
    log = trainer.train_step([batch])
    for parameter, old, gradient in zip(parameters, before, gradients, strict=True):
        expected = old - 5 * target.size(1) / 12 * (gradient + 0.1 * old)
        assert_close(parameter, expected, rtol=1e-4, atol=1e-6)
    assert trainer.get_lr() == 5
    assert log["activation_penalty"] == pytest.approx(penalty.item(), abs=1e-4)
    assert log["nll_loss"] == pytest.approx(float(nll) / math.log(2), abs=2e-3)


def exact_perplexity(path, data, cache=None):
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
    options = "--criterion agg --agg-rare-fraction 0.3 --max-epoch 2 --seed 3 --cpu --num-workers 0"
    folders = ("--user-dir", USER_DIR, "--save-dir", tmp_path)
    called("train", lm_data, *folders, AWD, NT_ASGD, options, "--no-epoch-checkpoints")
    path, numbers = tmp_path / "checkpoint_best.pt", tmp_path / "numbers.json"
    given = ("--data", lm_data, "--json", numbers)
    cache = "--cache-size 30 --cache-theta 0.5 --cache-lambda 0.2"
    run_command("python", USER_DIR / "evaluate.py", path, *given, *cache.split())
    found = json.loads(numbers.read_text())["rows"][0]["perplexity"]["total"]
    assert found == pytest.approx(exact_perplexity(path, lm_data, (30, 0.5, 0.2)), rel=1e-5)
    expected = exact_perplexity(path, lm_data)
    for length in (None, 5):
        text = BinarizedText(lm_data, tokens_per_sample=length)
        found = perplexity({"awd": Checkpoint(path)}, text)["awd"]["perplexity"]["total"]
        assert found == pytest.approx(expected, rel=1e-5)
    options = ("--path", path, "--task language_modeling_streams --tokens-per-sample 12")
    printed = called("eval-lm", lm_data, "--user-dir", USER_DIR, *options, "--cpu")
    assert f"Perplexity: {expected:.2f}" in printed
