"""`--criterion face`: frequency-aware cross-entropy, FACE-OPR (Jiang et al. 2019)."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..functional import CrossEntropyOutput, face_weights
from ..workers import summed_over_workers
from .base import LikelihoodCriterion, LikelihoodCriterionConfig
from .checkpoint_parts import counts_in, update_in
from .registration import register


@dataclass
class FaceCriterionConfig(LikelihoodCriterionConfig):
    """Options of `--criterion face`."""


@register("face", dataclass=FaceCriterionConfig)
class FaceCriterion(LikelihoodCriterion):
    """Likelihood whose positions weigh less the more often the model itself has output their target.

    Output are the arg-max predictions of all previous updates on all workers, so that the weights are the same for
    every worker and micro-batch of an update. (The authors' code also counts the batch at hand, of one worker.)
    """

    name: ClassVar[str] = "face"
    predicts: ClassVar[bool] = True

    def __init__(self, cfg: FaceCriterionConfig, task: Any) -> None:
        super().__init__(cfg, task)
        for name in ("frequency", "current"):  # of the updates that took place; of the one under way
            self.register_buffer(name, torch.zeros(self.vocabulary, dtype=torch.int64), persistent=False)
        self._open_update: int | None = None
        self._weights: Tensor | None = None

    def begin_update(self, update_num: int) -> None:
        """The previous update counts if it took place, and the weights of this one are set."""
        super().begin_update(update_num)
        if self._open_update is not None and update_num > self._open_update:
            self.frequency += self.current
        self.current.zero_()
        self._open_update = update_num
        self._weights = face_weights(self.frequency)

    def position_weight(self, target: Tensor) -> Tensor:
        """The weight of each target."""
        return self._weights[target]

    def observe(self, weight: nn.Parameter, target: Tensor, output: CrossEntropyOutput) -> None:
        """Counts the predictions."""
        if self.is_dummy:
            return
        kept = (target != self.padding_idx).flatten()
        self.current.index_add_(0, output.prediction.flatten(), kept.long())

    def on_optimizer_step(self) -> None:
        """The update's predictions are complete."""
        summed_over_workers(self.current)

    def checkpoint_state(self) -> dict[str, Any]:
        """How often each token was output."""
        return {"frequency": self.frequency.cpu(), "current": self.current.cpu(), "open_update": self._open_update}

    def load_checkpoint_state(self, state: dict[str, Any]) -> None:
        """Restores `checkpoint_state`."""
        if "frequency" in state:  # else from a criterion without counts
            self.frequency.copy_(counts_in(state, "frequency", self.vocabulary))
            self.current.copy_(counts_in(state, "current", self.vocabulary))
            self._open_update = update_in(state, "open_update")
