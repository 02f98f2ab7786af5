"""Loops and models of other packages as they are, each skipped where its package is not installed."""

import copy
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from agg_fairseq.errors import UserError
from agg_fairseq.functional import (
    Gates,
    ReplacedLinear,
    gated_linear,
    naive_gated_cross_entropy,
)
from agg_fairseq.functional.naive import _gate_matrix, gate_gradient
from agg_fairseq.gating import AggGating
from tests.small_transformers import VOCABULARY, dataset, gated_head, untied, word_tokenizer

TRL = {
    "use_cpu": True, "report_to": [], "disable_tqdm": True, "max_steps": 4, "learning_rate": 0.1, "optim": "sgd",
    "bf16": False, "save_strategy": "no", "gradient_checkpointing": False, "lr_scheduler_type": "constant",
}  # fmt: skip


def tokenizer():
    from transformers import PreTrainedTokenizerFast

    words = word_tokenizer(["<pad>", "<unk>", "<eos>", *map(str, range(3, VOCABULARY))])
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>")


def trl_trainer(method, folder, rows, *given, **options):
    """TRL's trainer for a method, on rows of data."""
    datasets, trl = pytest.importorskip("datasets"), pytest.importorskip("trl")
    config = getattr(trl, f"{method}Config")(**TRL, output_dir=str(folder), **options)
    data = {"train_dataset": datasets.Dataset.from_list(rows), "processing_class": tokenizer()}
    return getattr(trl, f"{method}Trainer")(*given, args=config, **data)


def sft_trainer(model, folder, **options):
    rows = []
    for number, row in enumerate(dataset(24)):
        length = 8 + number % 5
        rows.append({"input_ids": row["input_ids"][:length].tolist()})
        if options.get("completion_only_loss"):
            rows[-1]["completion_mask"] = [0] * 5 + [1] * (length - 5)
    sizes = {"per_device_train_batch_size": 3, "max_length": 16}
    return trl_trainer("SFT", folder, rows, model, **{**sizes, **options})


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"packing": True},
        {"padding_free": True, "max_length": None},
        {"completion_only_loss": True},
    ],
    ids=lambda options: next(iter(options), "padded"),
)
def test_sft_trainer(options, tmp_path):
    """As it comes, with its own loss without logits; beside Trainer's loss of the logits."""
    trl = pytest.importorskip("trl")
    from transformers import Trainer

    class OfLogits(trl.SFTTrainer):
        compute_loss = Trainer.compute_loss

    found = []
    for kind in (trl.SFTTrainer, OfLogits):
        training = sft_trainer(untied(), tmp_path, **options)
        training.__class__ = kind
        gated = gated_head(training.model, window=3)
        training.add_callback(gated)
        training.train()
        counter = gated.gating.counter
        found.append((dict(training.model.named_parameters()), counter.appearances))
        assert counter.updates == 3 and counter.appearances.sum() > 40
    assert_close(found[0][0], found[1][0], rtol=1e-5, atol=1e-6)
    assert found[0][1].equal(found[1][1])


def dpo_trainer(model, folder, completions):
    rows = []
    for n, one in enumerate(dataset(16)):
        words = [str(token) for token in one["input_ids"].clamp(min=3).tolist()]
        prompt, chosen, rejected = words[: 1 + n % 3], words[4:], words[3 : 5 + n % 6]
        completions += [[int(word) for word in words] + [2] for words in (chosen, rejected)]
        texts = [" ".join(["", *words, ""]) for words in (chosen, rejected)]
        rows.append({"prompt": " ".join(prompt), "chosen": texts[0], "rejected": texts[1]})
    options = {"per_device_train_batch_size": 4, "beta": 2.0}
    return trl_trainer("DPO", folder, rows, model, copy.deepcopy(model), **options)


def grpo_trainer(model, folder, completions):
    """Each completion is learned from twice, beside its likelihood before."""

    def reward(completion_ids, **given):
        completions.extend(completion_ids * 2)
        return [float(sum(token % 2 for token in row)) for row in completion_ids]

    sizes = {"per_device_train_batch_size": 4, "num_generations": 4, "max_completion_length": 5}
    options = {"num_iterations": 2, "entropy_coef": 0.1, **sizes}
    rows = []
    for number, row in enumerate(dataset(24)):
        prompt = row["input_ids"][: 2 + number % 3].tolist()
        rows.append({"prompt": " ".join(map(str, prompt))})
    return trl_trainer("GRPO", folder, rows, model, reward, **options)


class LiteralGates:
    """In the place of TRL's kernel on a GPU, which is given the positions with a label."""

    def __init__(self, rule):
        self.rule = rule

    def apply(self, features, weight, bias, target, *_):
        factors = _gate_matrix(self.rule(target), target, weight)
        gated = gate_gradient(features.detach() @ weight.t(), factors)
        logits = features @ weight.detach().t() + gated - gated.detach()
        log_p = logits.log_softmax(-1)
        entropy = -(log_p.exp() * log_p).sum(-1)
        found = log_p.gather(-1, target[:, None]).squeeze(-1), entropy, (2 * log_p).logsumexp(-1)
        return *found, logits.mean(-1), logits.argmax(-1) == target


@pytest.mark.parametrize("make", [dpo_trainer, grpo_trainer])
def test_trainers_of_preferences_and_rewards(make, tmp_path, monkeypatch):
    """Counted are the labels of the passes that train, not what is generated, nor what the model of
    reference or that before an update scores."""
    utils = pytest.importorskip("trl").trainer.utils
    from transformers import TrainerCallback

    class Commits(TrainerCallback):
        def on_optimizer_step(self, *arguments, **given):
            rule.commit_update()

    found, completions = [], []
    for is_literal in (False, True):
        completions.clear()
        training = make(untied(), tmp_path, completions)
        gated = gated_head(training.model, window=4)
        callback, rule = gated, gated.gating
        if is_literal:
            gated.remove()
            callback = Commits()
            monkeypatch.setattr(utils, "_ChunkedLogProbFunction", LiteralGates(rule))
            monkeypatch.setattr(utils, "_use_triton", lambda device: True)
        training.add_callback(callback)
        training.train()
        found.append(([*training.model.parameters()], rule.counter.appearances))
    assert_close(found[0][0], found[1][0], rtol=1e-5, atol=1e-6)
    counts = torch.tensor(sum(completions, [])).bincount(minlength=VOCABULARY)
    assert found[0][1].equal(counts) and found[1][1].equal(counts)


def test_sft_trainer_around_the_gates_is_refused(tmp_path):
    """It replaces the forward pass of a model with gates by its own."""
    model = untied()
    gated = gated_head(model)
    training = sft_trainer(model, tmp_path)
    training.add_callback(gated)
    with pytest.raises(UserError, match="found no step of the model with labels"):
        training.train()


def test_a_temperature_of_fused_heads_is_refused():
    pytest.importorskip("trl")
    from trl.trainer.utils import add_fused_lm_head

    model = untied()
    model.lm_head.weight.data *= 50
    add_fused_lm_head(model, temperature=0.7)
    gated_head(model)
    ids = torch.stack([row["input_ids"] for row in dataset(2)])
    with pytest.raises(UserError, match="in TRL's fused head"):
        model(input_ids=ids, labels=ids, fused_lm_head=True)


SPECIAL = {"unk_token": "unk", "pad_token": "<blank>", "bos_token": "bos", "eos_token": "eos"}
WORDS = [*SPECIAL.values(), *map(str, range(4, VOCABULARY))]


def litgpt():
    model = pytest.importorskip("litgpt.model")
    sizes = {"block_size": 16, "n_layer": 1, "n_head": 2, "n_embd": 16, "vocab_size": VOCABULARY}
    gpt = model.GPT(model.Config(padded_vocab_size=VOCABULARY, **sizes))
    return gpt, gpt.lm_head, lambda tokens: gpt(tokens[:, :-1])


def x_transformers():
    package = pytest.importorskip("x_transformers")
    layers = package.Decoder(dim=16, depth=1, heads=2)
    model = package.TransformerWrapper(num_tokens=VOCABULARY, max_seq_len=16, attn_layers=layers)
    return model, model.to_logits, lambda tokens: model(tokens[:, :-1])


def joeynmt():
    build, vocabulary = map(pytest.importorskip, ("joeynmt.model", "joeynmt.vocabulary"))
    ids = {name.replace("token", "id"): row for row, name in enumerate(SPECIAL)}
    special = SimpleNamespace(**SPECIAL, **ids, sep_token=None, lang_tags=[])
    words = vocabulary.Vocabulary(WORDS, special)
    sizes = {"hidden_size": 16, "ff_size": 16, "num_layers": 1, "num_heads": 2}
    side = {"type": "transformer", "embeddings": {"embedding_dim": 16}, **sizes}
    model = build.build_model({"encoder": side, "decoder": side}, words, words)
    model.loss_function = "crossentropy", 0.0

    def run(tokens):
        mask = torch.ones_like(tokens, dtype=torch.bool)[:, None]
        source = {"src": tokens, "src_mask": mask, "src_length": mask.sum(-1)}
        target = {"trg_input": tokens[:, :-1], "trg": tokens[:, 1:], "trg_mask": mask[..., 1:]}
        model(return_type="loss", **source, **target)

    return model, model.decoder.output_layer, run


def filled(model):
    """With values, which are left to a checkpoint or to the trainer."""
    for parameter in model.parameters():
        torch.nn.init.uniform_(parameter, -0.3, 0.3)
    return model


def eole():
    config, loss = map(pytest.importorskip, ("eole.config.models", "eole.utils.loss"))
    from eole.inputters.inputter import dict_to_vocabs
    from eole.models.model import EncoderDecoderModel

    words = {"src": WORDS, "tgt": WORDS, "specials": SPECIAL, "decoder_start_token": "bos"}
    embeddings = {"word_vec_size": 16, "position_encoding_type": "SinusoidalInterleaved"}
    sizes = {"hidden_size": 16, "layers": 1, "heads": 2, "transformer_ff": 16}
    options = config.TransformerModelConfig(**sizes, embeddings=embeddings)
    vocabularies, running = dict_to_vocabs(words), SimpleNamespace(dropout=[0.0])
    model = filled(EncoderDecoderModel.build(options, vocabularies, running))
    summed = torch.nn.CrossEntropyLoss(reduction="sum")
    compute = loss.LossCompute(summed, model.generator, vocabs=vocabularies)

    def run(tokens):
        lengths = torch.full((len(tokens),), tokens.size(1))
        given = {"src": tokens, "tgt": tokens, "srclen": lengths, "cid": (), "cid_line_number": ()}
        compute(given, *model(tokens, tokens, lengths))

    return model, model.generator, run


def opennmt():
    build, loss = map(pytest.importorskip, ("onmt.model_builder", "onmt.utils.loss"))
    from onmt.inputters.inputter import dict_to_vocabs
    from onmt.opts import train_opts
    from onmt.utils.parse import ArgumentParser

    parser = ArgumentParser()
    train_opts(parser)
    paths = "-data d -save_model m -src_vocab s -encoder_type transformer -decoder_type transformer"
    sizes = "-layers 1 -heads 2 -transformer_ff 16 -hidden_size 16 -word_vec_size 16 -dropout 0"
    options = parser.parse_args([*paths.split(), *sizes.split(), "-attention_dropout", "0"])
    ArgumentParser.update_model_opts(options)
    words = {"src": WORDS, "tgt": WORDS, "data_task": "seq2seq", "decoder_start_token": "bos"}
    vocabularies = dict_to_vocabs(words)
    model = filled(build.build_base_model(options, vocabularies))
    summed = torch.nn.CrossEntropyLoss(reduction="sum")
    compute = loss.LossCompute(summed, model.generator, vocab=vocabularies["tgt"])

    def run(tokens):
        lengths, tokens = torch.full((len(tokens),), tokens.size(1)), tokens[..., None]
        given = {"src": tokens, "tgt": tokens, "srclen": lengths}
        compute(given, *model(tokens, tokens, lengths))

    return model, model.generator, run


@pytest.mark.parametrize("make", [litgpt, x_transformers, joeynmt, eole, opennmt])
def test_output_layers_of_other_packages(make):
    """Against literal gates, in float64. The last two call it in their loss, which is in float32;
    here, the loss is of the same logits."""
    torch.manual_seed(0)
    model, head, run = make()
    model.double()
    tokens = torch.stack([row["input_ids"] for row in dataset(3)]).clamp(min=len(SPECIAL))
    target = tokens[:, 1:]
    gates = Gates(torch.arange(VOCABULARY) > 20, *torch.rand(2, VOCABULARY))
    seen = []
    head.register_forward_hook(lambda layer, given, output: seen.append((given[0], output)))

    def linear(input, weight, bias=None):
        return gated_linear(input, weight, bias, target.reshape(input.shape[:-1]), gates)

    with ReplacedLinear(head, linear):
        run(tokens)
    [(features, logits)] = seen
    target = target.reshape(logits.shape[:-1])
    F.cross_entropy(logits.flatten(0, -2), target.flatten(), reduction="sum").backward()
    weight, literal = head.weight.detach().requires_grad_(), {"bias": head.bias, "gates": gates}
    naive_gated_cross_entropy(features.detach(), weight, target, **literal).backward()
    assert_close(head.weight.grad, weight.grad, rtol=1e-9, atol=1e-11)


def schedule_free(groups):
    optimizer = pytest.importorskip("schedulefree").AdamWScheduleFree(groups, betas=(0.9, 0.98))
    optimizer.train()
    return [optimizer]


def eight_bits(groups):
    bitsandbytes = pytest.importorskip("bitsandbytes")
    return [bitsandbytes.optim.AdamW8bit(groups, betas=(0.9, 0.98))]


def beside_muon(groups):
    others = groups[0]["params"]
    groups[0]["params"] = [torch.nn.Parameter(torch.zeros(1))]
    return [torch.optim.AdamW(groups, betas=(0.9, 0.98)), torch.optim.Muon(others)]


@pytest.mark.parametrize("make", [schedule_free, eight_bits, beside_muon])
def test_other_optimizers(make):
    """W has a group of its own; a step changes it, and is seen by the rule."""
    size = 70, 64  # smaller ones have no states of 8 bits
    weight, other = (torch.nn.Parameter(torch.randn(size)) for _ in range(2))
    optimizers = make([{"params": [other]}, {"params": [weight], "betas": (0.9, 0.999)}])
    rule, target = AggGating(70, rare_fraction=0.3, window=2), torch.arange(70)
    for _ in range(2):
        before = weight.detach().clone(), other.detach().clone()
        logits = gated_linear(other, weight, None, target, rule(target))
        F.cross_entropy(logits, target).backward()
        for optimizer in optimizers:
            optimizer.step()
        assert rule.has_stepped and not any(map(torch.equal, before, (weight, other)))
        rule.commit_update()
    assert [group["betas"][1] for group in optimizers[0].param_groups] == [0.98, 0.999]
    if make is eight_bits:
        assert optimizers[0].state[weight]["state2"].dtype == torch.uint8
