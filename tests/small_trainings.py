"""Small trainings inside fairseq's own task and trainer, without its command lines."""

import copy
import functools
from typing import Any, NamedTuple

import torch
from fairseq import options, tasks
from fairseq.dataclass import utils
from fairseq.logging import metrics
from fairseq.trainer import Trainer
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

import agg_fairseq
from agg_fairseq.fairseq_plugin.trainer import fill_placeholder
from tests.conftest import TINY_LM, read_lines, words

agg_fairseq.register()
ConfigStore.__deepcopy__ = lambda store, _: store  # hydra copies it at each call, to change nothing
compose_once = functools.cache(lambda *groups: hydra_compose("config", groups, strict=False))
parse_once = functools.cache(OverridesParser.create().parse_override)


def composed(_, overrides, strict):
    """What hydra composes, which would take nine tenths of the time of a small training: each
    choice of groups once, and each override is parsed once."""
    groups = [one for one in overrides if "." not in one.partition("=")[0]]
    config = copy.deepcopy(compose_once(*groups))
    for override in map(parse_once, overrides):
        if "." in override.key_or_group:
            OmegaConf.update(config, override.key_or_group, override.value(), merge=True)
    return config


hydra_compose, utils.compose = utils.compose, composed  # of the command lines here, too

LM = [*TINY_LM, "--dropout", "0"]
MT = "--task translation --arch transformer_tiny --dropout 0 --max-tokens 64".split()
F2_LM = [*LM, "--arch", "transformer_lm_f2"]
F2_MT = [*MT, "--arch", "transformer_f2_tiny"]
COMMON = (
    "--optimizer adam --lr 0.01 --cpu --max-update 50 --seed 3 --no-save "
    "--required-batch-size-multiple 1 "
    "--num-workers 0"  # no processes that read ahead: starting them would take most of the time
).split()

EVERY_CRITERION = {
    **{name: f"--criterion {name}" for name in ("mle", "agg", "face", "cosreg", "unlikelihood")},
    "agps": "--criterion agps --agps-rare-rank 20 --agps-mu1 30 --agps-mu2 5",
    "freeze_rare": "--criterion freeze_rare",
    "freeze_rare bc": "--criterion freeze_rare --freeze-parts bc",
    "unlikelihood_sequence": "--criterion unlikelihood_sequence --ul-prefix-length 5 "
    "--ul-completion-length 9 --ul-ngram 2",
}
"""Those of one softmax over all tokens, with options that fit the small data."""
TIED = "--share-decoder-input-output-embed"
ADAPTIVE = "--criterion adaptive_loss --ddp-backend legacy_ddp --adaptive-softmax-cutoff 20,40"

LM_TASK = "--task language_modeling --tokens-per-sample 16 --max-tokens 64 --dropout 0".split()
MT_TASK = "--task translation --max-tokens 64 --dropout 0".split()
SMALL_LM = (
    "--decoder-layers 1 --decoder-embed-dim 16 --decoder-ffn-embed-dim 16 "
    "--decoder-attention-heads 2"
).split()
SMALL_MT = (*SMALL_LM, *" ".join(SMALL_LM).replace("decoder", "encoder").split())
KERNELS = ("--encoder-kernel-size-list", "[3]", "--decoder-kernel-size-list", "[3]")
LIGHT, DYNAMIC = (
    ("--encoder-conv-type", kind, "--decoder-conv-type", kind, *KERNELS)
    for kind in ("lightweight", "dynamic")
)
SMALL_LSTM = ("--decoder-embed-dim", "16", "--decoder-out-embed-dim", "16")
SMALL_FCONV = (
    *"--encoder-embed-dim 8 --decoder-embed-dim 8 --decoder-out-embed-dim 8".split(),
    "--encoder-layers", "[(16, 3)]", "--decoder-layers", "[(16, 3)]",
)  # fmt: skip


def lm(arch, *options):
    return (*LM_TASK, "--arch", arch, *options)


def mt(arch, *options):
    return (*MT_TASK, "--arch", arch, *options)


FAMILIES = {
    "transformer_lm": LM,
    "transformer_lm, tied": (*LM, TIED),
    "transformer_lm, checkpointed": (*LM, "--checkpoint-activations"),
    "transformer_lm, adaptive input": (*LM, "--adaptive-input", "--adaptive-input-cutoff", "20,40"),
    "transformer_lm_unigram": (*LM, "--arch", "transformer_lm_unigram"),
    "fconv_lm": lm("fconv_lm", "--decoder-layers", "[(16, 3)] * 2", "--decoder-embed-dim", "8"),
    "lightconv_lm": lm("lightconv_lm", *SMALL_LM, *KERNELS[2:]),
    "lightconv_lm, tied": lm("lightconv_lm", *SMALL_LM, *KERNELS[2:], TIED),
    "lstm_lm": lm("lstm_lm", *SMALL_LSTM),
    "lstm_lm, tied": lm("lstm_lm", *SMALL_LSTM, TIED),
    "transformer": MT,
    "transformer_align": mt("transformer_align", *SMALL_MT, "--alignment-layer", "0", "--full-context-alignment"),
    "bart_base": mt("bart_base", *SMALL_MT),
    "fconv": mt("fconv", *SMALL_FCONV),
    "fconv, tied": mt("fconv", *SMALL_FCONV, "--share-input-output-embed"),
    "fconv_self_att": mt(
        "fconv_self_att_wp", *SMALL_FCONV, *"--decoder-attention True --encoder-attention False".split(),
        *"--self-attention True --gated-attention True --project-input True".split(),
        *"--multihead-self-attention-nheads 2".split(),
    ),
    "lightconv": mt("lightconv", *SMALL_MT, *LIGHT),
    "dynamicconv": mt("lightconv", *SMALL_MT, *DYNAMIC, "--share-all-embeddings"),
    "lstm": mt("lstm", "--encoder-embed-dim", "8", "--decoder-embed-dim", "8", "--decoder-out-embed-dim", "8"),
}  # fmt: skip


def configuration(data, *arguments, base=LM):
    """Of a training with `mle`, unless the options name another criterion."""
    parser = options.get_training_parser()
    line = words((data, "--criterion mle", *base, *COMMON, *arguments))
    return utils.convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, line))


class Parts(NamedTuple):
    """Parts of a training, as fairseq-train builds them."""

    cfg: Any
    task: Any
    model: Any
    criterion: Any


def build(data, *arguments, base=LM):
    """The parts, with the training split loaded and counted."""
    cfg = configuration(data, *arguments, base=base)
    torch.manual_seed(1)
    task = tasks.setup_task(cfg.task)
    model = task.build_model(cfg.model)
    fill_placeholder(model, task, "train")
    criterion = task.build_criterion(cfg.criterion)
    task.load_dataset("train")
    return Parts(cfg, task, model, criterion)


def batches(training, split="train"):
    """Those of an epoch, for parts of a training or a trainer."""
    task = training.task
    task.load_dataset(split)
    iterator = task.get_batch_iterator(task.dataset(split), max_tokens=64, seed=1).next_epoch_itr(
        shuffle=False
    )
    return [batch for batch in iterator if "net_input" in batch]


def build_trainer(data, *arguments, base=LM):
    """A trainer at the beginning of its first epoch."""
    parts = build(data, *arguments, base=base)
    parts.cfg.common.tpu = (
        False  # fairseq-train takes --bf16 for a TPU; fairseq-hydra-train does not
    )
    trainer = Trainer(*parts)
    trainer.get_train_iterator(epoch=1)
    trainer.begin_epoch(1)
    return trainer


def gradients(trainer, batch, update=0):
    """Of a training micro-batch, as the trainer asks for them; and its log."""
    trainer.criterion.train()
    trainer.criterion.start_update(update)
    loss, _, log = trainer.criterion(trainer.model, batch)
    return torch.autograd.grad(loss, list(trainer.model.parameters())), log


def count_targets(samples, dictionary):
    """(V,) of the targets of batches."""
    counts = torch.zeros(len(dictionary), dtype=torch.int64)
    for sample in samples:
        counts += torch.bincount(sample["target"].flatten(), minlength=len(counts))
    counts[dictionary.pad()] = 0
    return counts


def target_counts(data, dictionary):
    """Counted from the text: a target that fairseq's own dictionary lookup makes of each word, and
    the line ends."""
    counts = torch.zeros(len(dictionary), dtype=torch.int64)
    text = data.parent / ("train.de" if (data.parent / "train.de").exists() else "train")
    for line in read_lines(text):
        for word in line.split():
            counts[dictionary.index(word)] += 1
        counts[dictionary.eos()] += 1
    return counts


def logged(criterion, logs):
    with metrics.aggregate(new_root=True) as aggregator:
        type(criterion).reduce_metrics(logs)
    return aggregator.get_smoothed_values()


def rare_rows(trainer):
    weight = trainer.model.decoder.output_projection.weight
    return weight.detach()[trainer.criterion.rare].clone()
