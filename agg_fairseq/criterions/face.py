"""`--criterion face`: frequency-aware cross-entropy, FACE-OPR (Jiang et al. 2019)."""

from typing import Any, ClassVar

from torch import Tensor

from ..fairseq_glue.distributed import sum_over_workers
from ..functional import face_weights
from ..modules import TokenCounter
from .base import LikelihoodCriterion, LikelihoodCriterionConfig, register


@register("face", dataclass=LikelihoodCriterionConfig)
class FaceCriterion(LikelihoodCriterion):
    """Likelihood whose positions weigh less the more often the model itself has output their target.

    Output are the arg-max predictions of all previous updates on all workers, so that the weights are the same for
    every worker and micro-batch of an update. (The authors' code also counts the batch at hand, of one worker.)
    """

    counts_tokens: ClassVar[bool] = True
    predicts: ClassVar[bool] = True

    def __init__(self, cfg: LikelihoodCriterionConfig, task: Any) -> None:
        super().__init__(cfg, task)
        self.counter = TokenCounter(self.vocabulary, window=None)
        self._weights: Tensor | None = None  # (V,) float32, of this update

    def begin_update(self, update_num: int) -> None:
        """The previous update counts if it took place, and the weights of this one are set."""
        super().begin_update(update_num)
        self.counter.begin(update_num)
        self._weights = face_weights(self.counter.appearances)

    def position_weight(self, target: Tensor) -> Tensor:
        """The weight of each target."""
        return self._weights[target]

    def count_predictions(self, prediction: Tensor, target: Tensor) -> None:
        """Counts what the model outputs at the positions that are not padding."""
        self.counter.add(prediction, positions=target != self.padding_idx)

    def on_optimizer_step(self) -> None:
        """The update's predictions are complete: sums them over the workers."""
        self.counter.close(sum_over_workers)

    def checkpoint_state(self) -> dict[str, Any]:
        """How often each token was output (V,), by the updates that took place and by the last one."""
        state = {"frequency": self.counter.appearances.cpu(), "current": self.counter.current.cpu()}
        return {**state, "open_update": self.counter.open_update}

    def load_checkpoint_state(self, state: dict[str, Any]) -> None:
        """Restores `checkpoint_state`; a state without counts is that of another criterion."""
        if "frequency" in state:
            self.counter.appearances.copy_(state["frequency"])
            self.counter.current.copy_(state["current"])
            self.counter.open_update = state.get("open_update")
