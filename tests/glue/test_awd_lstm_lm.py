"""AWD-LSTM in fairseq: batches that continue each other, the average of NT-ASGD, criterions, and evaluation."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils

from agg_fairseq.awd_lstm.continuous_cache import CacheOptions
from agg_fairseq.awd_lstm.streams import StreamDataset
from agg_fairseq.checkpoints.fairseq_checkpoint import Checkpoint
from agg_fairseq.decoding import continuation
from agg_fairseq.evaluation import BinarizedText, generate_texts, perplexity
from agg_fairseq.fairseq_glue.output_layer import float32_copies
from agg_fairseq.models.from_checkpoint import build_model
from tests.commands import one_line
from tests.conftest import call, called
from tests.small_trainings import AWD, batches, build, small_trainer, trainer_for

PLAIN = (
    "--dropout-embedding 0 --dropout-input 0 --dropout-hidden 0 --dropout-output 0 --dropout-weight 0 "
    "--activation-penalty 0 --temporal-penalty 0"
).split()
NT_ASGD = ("--optimizer", "nt_asgd", "--lr", "5", "--clip-norm", "0.25", "--asgd-patience", "1")


def stream(tokens, length, seed=None):
    lines = torch.arange(tokens).split(7)
    return StreamDataset(SimpleNamespace(dataset=lines), first=-1, length=length, seed=seed)


@pytest.mark.parametrize("seed", [None, 3])
def test_rows_continue_each_other(seed):
    """What a row reads over an epoch is its stream, and the source is the target one token earlier."""
    data = stream(1003, 20, seed)
    data.arrange(10)
    for epoch in (1, 2):
        data.set_epoch(epoch)
        batches = [data.collater([data[i] for i in batch]) for batch in data.batch_by_size(data.ordered_indices())]
        assert [batch["net_input"]["continues"] for batch in batches] == [False] + [True] * (len(batches) - 1)
        read = torch.cat([batch["target"] for batch in batches], dim=1)
        assert torch.equal(read, torch.arange(1000).view(10, 100))
        assert torch.equal(torch.cat([batch["net_input"]["src_tokens"] for batch in batches], dim=1), read - 1)
        assert sum(data.sizes) == 1000 and all(data.num_tokens(i) == len(data[i]["target"]) for i in range(len(data)))


def test_lengths_are_random_around_the_mean_and_repeat_with_the_seed():
    data, again, lengths = stream(200_000, 70, seed=1), stream(200_000, 70, seed=1), []
    for epoch in range(1, 40):
        data.set_epoch(epoch)
        lengths.append(np.diff(data.bounds)[:-1])
    again.set_epoch(39)
    assert np.array_equal(data.bounds, again.bounds) and not np.array_equal(lengths[0], lengths[-1])
    lengths = np.concatenate(lengths)
    short = lengths < 52
    assert short.mean() == pytest.approx(0.05, abs=0.01) and lengths.min() >= 5
    assert lengths[~short].mean() == pytest.approx(69.5, abs=0.2) and lengths[~short].std() == pytest.approx(5, abs=0.2)


def test_two_workers_read_the_streams_of_one():
    whole, first, second = (stream(500, 10) for _ in range(3))
    whole.arrange(6)
    first.arrange(6, range(3))
    second.arrange(6, range(3, 6))
    parts = zip(first.batch_by_size(None), second.batch_by_size(None), strict=True)
    assert whole.batch_by_size(None) == [left + right for left, right in parts]


def test_the_state_is_carried_over_batches(lm_data):
    """Without dropout, features of the batches of an epoch are those of the streams read at once."""
    cfg, task, model, _ = build(lm_data, "--criterion", "mle", *PLAIN, base=AWD)
    itr = task.get_batch_iterator(task.dataset("train"), max_sentences=4, seed=1).next_epoch_itr()
    batches = list(itr)
    assert not batches[0]["net_input"]["continues"]
    whole = torch.cat([batch["net_input"]["src_tokens"] for batch in batches], dim=1)
    for train in (True, False):
        model.train(train)
        parts = [model(**batch["net_input"])[0] for batch in batches]
        torch.testing.assert_close(torch.cat(parts, dim=1), model(whole)[0])
    model.train()
    model(whole[:, :4], continues=True)
    model(whole[:3, :4])  # an update on other text
    torch.testing.assert_close(model(whole, continues=True)[0], model(whole)[0])


def test_validation_leaves_the_state_of_training_alone(lm_data):
    trainer, iterator = trainer_for(lm_data, "--criterion", "mle", *NT_ASGD, base=AWD)
    batches = list(iterator.next_epoch_itr())
    trainer.train_step(batches[:1])
    before = trainer.model.decoder.carried[True]
    trainer.task.load_dataset("valid")
    for batch in trainer.get_valid_iterator("valid").next_epoch_itr(shuffle=False, set_dataset_epoch=False):
        trainer.valid_step(batch)
    assert trainer.model.decoder.carried[True] is before
    trainer.train_step(batches[1:2])


@pytest.mark.slow
def test_the_learning_rate_follows_the_length(lm_data):
    """An update is that of SGD with lr · length / --tokens-per-sample, and the loss has the penalty of the model."""
    options = (*PLAIN, "--activation-penalty", 3, "--clip-norm", 0)
    trainer, iterator = trainer_for(lm_data, "--criterion", "mle", *NT_ASGD, *options, base=AWD)
    batch = next(iter(iterator.next_epoch_itr()))
    before = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
    features = trainer.model(**batch["net_input"], features_only=True)[0]
    logits = trainer.model.decoder.output_projection(features)
    nll = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch["target"].flatten())
    expected = torch.autograd.grad(nll + 3 * features.square().mean(), list(trainer.model.parameters()))
    log = trainer.train_step([batch])
    rate = 5 * batch["target"].size(1) / 12
    for (name, parameter), gradient in zip(trainer.model.named_parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.detach(), before[name] - rate * gradient, rtol=1e-4, atol=1e-6)
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
    torch.testing.assert_close([p.detach() for p in trainer.model.parameters()], averages)
    trainer.cfg.checkpoint.no_save = False
    checkpoint_utils.save_checkpoint(trainer.cfg.checkpoint, trainer, iterator, 3.0)
    saved = torch.load(tmp_path / "checkpoint_last.pt", weights_only=False)
    names = [name for name, _ in trainer.model.named_parameters()]
    torch.testing.assert_close([saved["model"][name] for name in names], averages)
    resumed, _ = trainer_for(lm_data, *options, base=AWD)
    checkpoint_utils.load_checkpoint(resumed.cfg.checkpoint, resumed)
    for one in (trainer, resumed):
        one.train_step([batches[4]])
    assert all(map(torch.equal, trainer.model.parameters(), resumed.model.parameters()))
    assert trainer.optimizer.optimizer.param_groups[0]["losses"] == [3.0]


@pytest.mark.parametrize(
    ("criterion", "mode"),
    [(("freeze_rare",), ("--bf16",)), (("mle", "--center-output"), ())],
    ids=["frozen", "centered"],
)
def test_the_average_of_rows_that_are_put_back_or_centered(lm_data, criterion, mode):
    """It is what is saved. The average is formed in the optimizer's step, before the rows are changed."""
    options = ("--criterion", *criterion, *NT_ASGD, "--asgd-patience", 0, "--weight-decay", 0.01, *mode)
    trainer, _ = small_trainer(lm_data, *options)
    weight = trainer.model.decoder.output_projection.weight
    before = weight.detach().clone()
    for batch in batches(trainer.cfg, trainer.task)[:4]:
        trainer.train_step([batch])
    trainer.begin_valid_epoch(1)
    assert trainer.optimizer.optimizer.swapped and not torch.equal(weight, before)
    if criterion[0] == "freeze_rare":
        assert torch.equal(weight[trainer.criterion.rare], before[trainer.criterion.rare])
    else:
        average = next(float32_copies(trainer.optimizer, weight), weight.detach())
        assert average.mean(0).abs().max() < 1e-6


def test_when_averaging_begins_for_a_metric_that_is_maximized(lm_data):
    """When it falls; and fairseq keeps a moving average, although the graph of the batch's penalty is not copied."""
    options = ("--best-checkpoint-metric", "bleu", "--maximize-best-checkpoint-metric", "--store-ema")
    trainer, iterator = trainer_for(lm_data, "--criterion", "mle", *NT_ASGD, *options, base=AWD)
    trainer.train_step([next(iter(iterator.next_epoch_itr()))])
    average, weights = trainer.ema.get_model().state_dict(), trainer.model.state_dict()
    assert average.keys() == weights.keys()
    assert not torch.equal(*(one["decoder.embed_tokens.weight"] for one in (average, weights)))
    optimizer = trainer.optimizer.optimizer
    for update, bleu in enumerate((10.0, 20.0, 30.0, 5.0)):
        assert not optimizer.averaging
        trainer.set_num_updates(update)
        trainer.before_saving(bleu)
    assert optimizer.averaging


@pytest.mark.slow
def test_a_resume_with_another_number_of_streams_begins_with_zeros(lm_data, caplog):
    """In the middle of an epoch, and the log says so."""
    trainer, iterator = trainer_for(lm_data, "--criterion", "mle", *NT_ASGD, base=AWD)
    for batch in list(iterator.next_epoch_itr())[:2]:
        trainer.train_step([batch])
    saved = trainer.task.get_checkpoint_dict()["LanguageModelingStreamsTask"]
    for rows in (4, 3):
        other, iterator = trainer_for(lm_data, "--criterion", "mle", *NT_ASGD, "--batch-size", rows, base=AWD)
        second = list(iterator.next_epoch_itr())[1]
        seen = []
        other.model.decoder.lstm.register_forward_pre_hook(lambda module, inputs, seen=seen: seen.append(inputs[2]))
        other.task.set_checkpoint_dict(saved)
        other.train_step([second])
        said = "has the states of 4 of 4 streams, and this training has 3" in caplog.text
        assert (seen[-1] is None) == said == (rows == 3)


def test_incremental_decoding_is_that_of_the_whole_text(lm_data):
    _, _, model, _ = build(lm_data, "--criterion", "mle", base=AWD)
    model.eval()
    prefixes = torch.randint(5, 40, (3, 6))
    found = continuation(model, prefixes, 8)
    tokens = prefixes
    for _ in range(8):
        tokens = torch.cat([tokens, model(tokens)[0][:, -1:].argmax(-1)], dim=1)
    assert torch.equal(found, tokens[:, 6:])


@pytest.fixture(scope="module")
def awd_run(lm_data, tmp_path_factory):
    run = tmp_path_factory.mktemp("awd")
    called(
        "train", lm_data, *AWD, *NT_ASGD, "--criterion", "agg", "--agg-rare-fraction", 0.3, "--max-epoch", 2, "--cpu",
        "--seed", 3, "--num-workers", 0, "--save-dir", run, "--no-epoch-checkpoints",
    )  # fmt: skip
    return run


def reference(run, data, cache=None):
    """Perplexity of the test split, read at once, with the loop of the cache's test."""
    from tests.unit.test_continuous_cache import loop

    model, task = build_model(Checkpoint(run / "checkpoint_best.pt"), data)
    tokens = torch.cat(list(task.load_dataset("test").dataset.dataset)).long()
    source = torch.cat([torch.tensor([task.dictionary.eos()]), tokens[:-1]])[None]
    with torch.no_grad():
        features = model(source, features_only=True)[0][0]
        probabilities = model.decoder.output_projection(features).softmax(1)
    if cache:
        probabilities = loop(features, tokens, probabilities, *cache)
    return math.exp(-probabilities.double()[torch.arange(len(tokens)), tokens].log().mean())


@pytest.mark.slow
def test_evaluation_carries_the_state_over_blocks(lm_data, awd_run):
    """As fairseq-eval-lm does; and texts are generated."""
    path = awd_run / "checkpoint_best.pt"
    for length in (None, 5, 200):
        result = perplexity({"awd": Checkpoint(path)}, BinarizedText(lm_data, tokens_per_sample=length))
        assert result["awd"]["perplexity"]["total"] == pytest.approx(reference(awd_run, lm_data), rel=1e-5)
        assert "|state:carried(awd)|" in result.signature
    options = ("--path", path, "--task", "language_modeling_streams", "--tokens-per-sample", 12, "--cpu")
    printed = called("eval-lm", lm_data, *options)
    assert f"Perplexity: {reference(awd_run, lm_data):.2f}" in printed
    texts = generate_texts(Checkpoint(path), lm_data, awd_run / "texts.jsonl", prefix_length=5, length=5, device="cpu")
    assert texts[str(awd_run / "texts.jsonl")]["texts"] > 3


@pytest.mark.slow
def test_evaluation_with_a_cache(lm_data, awd_run, lm_runs):
    cache = CacheOptions(30, 0.5, 0.2)
    paths = {"awd": awd_run / "checkpoint_best.pt", "mle": lm_runs / "mle" / "checkpoint_best.pt"}
    checkpoints = {name: Checkpoint(path) for name, path in paths.items()}
    result = perplexity(checkpoints, BinarizedText(lm_data, tokens_per_sample=16, cache=cache))
    assert result["awd"]["perplexity"]["total"] == pytest.approx(reference(awd_run, lm_data, cache), rel=1e-5)
    assert "|cache:30,theta=0.5,lambda=0.2|" in result.signature
    for name in checkpoints:  # the probabilities of the mixture add up to 1
        assert result[name]["expected_over_observed"]["total"] == pytest.approx(1, abs=1e-5)


def test_mistakes_end_in_one_line(lm_data, capsys):
    _, task, _, _ = build(lm_data, "--criterion", "mle", base=AWD)
    error = one_line(capsys, task.eval_lm_dataloader, task.dataset("train"), context_window=5)
    assert "--task language_modeling_streams: found --context-window" in error
    start = (*AWD[:4], *NT_ASGD, "--tokens-per-sample", 12, "--batch-size", 4)
    for options, message in (
        (("--sample-break-mode", "eos"), "found --sample-break-mode eos; expected none"),
        (("--batch-size", 2000), "found 2000 streams of"),
    ):
        status, _, _, error = call("train", lm_data, *start, "--criterion", "mle", "--cpu", "--no-save", *options)
        assert status == 2 and message in error and "Traceback" not in error
