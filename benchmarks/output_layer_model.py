"""fairseq models that consist of an output layer only, so that its cost and a criterion's are
measured alone."""

import itertools
from types import SimpleNamespace
from typing import Any

import torch
from fairseq.criterions import CRITERION_DATACLASS_REGISTRY, CRITERION_REGISTRY
from fairseq.data import Dictionary
from fairseq.models import FairseqIncrementalDecoder, FairseqLanguageModel
from fairseq.models.transformer import TransformerDecoderBase
from fairseq.tasks import FairseqTask
from torch import Tensor, nn

import agg_fairseq.fairseq_plugin.criterions  # noqa: F401 — registers

from .measuring import Case, Variants, pause, zipf


class FullDecoder(TransformerDecoderBase):
    """A transformer decoder without its layers: it is given features instead of tokens."""

    def __init__(self, layer: nn.Module) -> None:
        FairseqIncrementalDecoder.__init__(self, None)
        self.output_projection, self.adaptive_softmax = layer, None

    def extract_features(
        self, prev_output_tokens: Tensor, **unused: Any
    ) -> tuple[Tensor, dict[str, Any]]:
        """Features (B, T, D), as they are; no attention."""
        pause()
        return prev_output_tokens, {"attn": [None]}


class OutputLayerModel(FairseqLanguageModel):
    """Multiplies the features it is given by the output embedding."""

    def __init__(self, features: int, vocabulary: int, layer: nn.Module | None = None) -> None:
        if layer is None:
            layer = nn.Linear(features, vocabulary, bias=False)
            nn.init.normal_(layer.weight, std=features**-0.5)
        super().__init__(FullDecoder(layer))


class OutputLayerTask(FairseqTask):
    """A task with a dictionary of V tokens and no data."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__(SimpleNamespace())
        self.dictionary = Dictionary()
        for index in range(vocabulary - len(self.dictionary)):
            self.dictionary.add_symbol(f"w{index}")

    @property
    def target_dictionary(self) -> Dictionary:
        """V tokens."""
        return self.dictionary


def batch(
    positions: int,
    features: int,
    vocabulary: int,
    device: str,
    steps: int = 512,
    target: Tensor | None = None,
    dtype: torch.dtype = torch.float32,
) -> dict[str, Any]:
    """Random features, as `src_tokens`, and targets (N,), by default of Zipf's law, in sequences
    of `steps`."""
    if target is None:
        target = zipf(vocabulary, positions)
    size = (positions // steps, steps)
    return {
        "net_input": {
            "src_tokens": torch.randn(*size, features, device=device, dtype=dtype).requires_grad_()
        },
        "target": target.view(size).to(device),
        "ntokens": positions,
    }


def criterion(name: str, task: FairseqTask, **options: Any) -> nn.Module:
    """A registered criterion with its defaults and these options; rare tokens are known without
    training data."""
    if name in ("cross_entropy", "label_smoothed_cross_entropy"):
        return CRITERION_REGISTRY[name](task, sentence_avg=False, **options)
    cfg = CRITERION_DATACLASS_REGISTRY[name](_name=name, train_subset="train", sentence_avg=False)
    given = {"update_freq": [1], "skip_remainder_batch": False, "use_bmuf": False} | options
    for option, value in given.items():
        setattr(cfg, option, value)
    objective = CRITERION_REGISTRY[name](cfg, task)
    vocabulary = len(task.target_dictionary)
    is_rare = torch.arange(vocabulary) >= 0.565 * vocabulary
    if name == "agps":  # the counts of a training set of a hundred million tokens under Zipf's law
        ranks = torch.arange(1, vocabulary + 1, dtype=torch.float64)
        objective.gating.set_counts((1e8 / ranks / (1 / ranks).sum()).long())
        objective.gating.rare_rank = int(0.565 * vocabulary)
    elif name == "freeze_rare":
        objective.set_rare(is_rare)
    return objective


class OutputLayer:
    """Features (N, D), targets and an output embedding (V, D), which criterions train."""

    def __init__(
        self, case: Case, dtype: torch.dtype, device: str, target: Tensor | None = None
    ) -> None:
        vocabulary, positions, width = case
        self.device, self.task = device, OutputLayerTask(vocabulary)
        self.model = OutputLayerModel(width, vocabulary).to(device, dtype)
        self.sample = batch(positions, width, vocabulary, device, target=target, dtype=dtype)
        self.features = self.sample["net_input"]["src_tokens"]
        self.weight = self.model.decoder.output_projection.weight
        self.variants = Variants({}, [self.features, self.weight])

    def add(self, variant: str, name: str, model: nn.Module | None = None, **options: Any) -> None:
        """Adds a criterion to the variants: by default, of the model with the whole softmax."""
        objective = criterion(name, self.task, **options).to(self.device).train()
        updates = itertools.count()

        def step() -> None:
            if hasattr(objective, "start_update"):
                objective.start_update(next(updates))
            objective(model or self.model, self.sample)[0].backward()

        self.variants.steps[variant] = step
