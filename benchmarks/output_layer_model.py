"""A fairseq model that is nothing but an output layer, so that a criterion's own cost shows."""

from types import SimpleNamespace
from typing import Any

import torch
from fairseq import utils
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.data import Dictionary
from fairseq.tasks import FairseqTask
from torch import Tensor, nn

import agg_fairseq.criterions  # noqa: F401 — registers


class OutputLayerDecoder(nn.Module):
    """The features it is given, times the output embedding unless only features are asked for."""

    def __init__(self, features: int, vocabulary: int) -> None:
        super().__init__()
        self.output_projection = nn.Linear(features, vocabulary, bias=False)
        nn.init.normal_(self.output_projection.weight, std=features**-0.5)

    def forward(self, features: Tensor, features_only: bool = False) -> tuple[Tensor, None]:
        """Features (1, N, D) or logits (1, N, V)."""
        return (features if features_only else self.output_projection(features)), None


class OutputLayerModel(nn.Module):
    """What a criterion calls of a fairseq model."""

    def __init__(self, features: int, vocabulary: int) -> None:
        super().__init__()
        self.decoder = OutputLayerDecoder(features, vocabulary)

    def forward(self, features: Tensor, **options: Any) -> tuple[Tensor, None]:
        """As the decoder's."""
        return self.decoder(features, **options)

    def get_normalized_probs(self, net_output: tuple[Tensor, None], log_probs: bool) -> Tensor:
        """As fairseq's decoders: a log-softmax in float32."""
        return utils.log_softmax(net_output[0], dim=-1)

    def get_targets(self, sample: dict[str, Any], net_output: Any) -> Tensor:
        """The batch's targets."""
        return sample["target"]


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


def batch(positions: int, features: int, vocabulary: int, device: str) -> dict[str, Any]:
    """Random features and targets that follow Zipf's law over the tokens that are not special."""
    ranks = torch.arange(1, vocabulary - 3, dtype=torch.float64)
    target = torch.multinomial(1 / ranks, positions, replacement=True) + 4
    return {
        "net_input": {"features": torch.randn(1, positions, features, device=device).requires_grad_()},
        "target": target[None].to(device),
        "ntokens": positions,
    }


def criterion(name: str, task: FairseqTask, rare_fraction: float) -> nn.Module:
    """A registered criterion with its defaults."""
    if name == "cross_entropy":
        return CRITERION_REGISTRY[name](task, sentence_avg=False)
    options = {"sentence_avg": False, "train_subset": "train", "label_smoothing": 0.0, "embedding_stats_interval": 0}
    if name == "agg":
        options |= {"agg_alpha": 0.03, "agg_rare_fraction": rare_fraction, "agg_window": 100, "agg_gates": "both"}
        options |= {"agg_count_current_batch": False, "agg_static_after_epoch": 0, "update_freq": [1]}
        options |= {"skip_remainder_batch": False}
    return CRITERION_REGISTRY[name](SimpleNamespace(**options), task)
