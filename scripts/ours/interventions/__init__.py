"""Interventions that `second-moments.sh` compares, and that no page recommends.

fairseq imports this folder as its user_dir. W is the output embedding, with a group of its own in
the optimizer.
"""

from typing import Any

import numpy as np
import torch
from fairseq.criterions import register_criterion
from fairseq.optim import register_optimizer
from fairseq.optim.adam import FairseqAdamConfig

from agg_fairseq.data.binarized import training_counts
from agg_fairseq.fairseq_plugin.criterions import GatedCriterion, GatedCriterionConfig
from agg_fairseq.fairseq_plugin.optimizers import AdamOfEmbedding
from agg_fairseq.functional import Gates
from agg_fairseq.gating import FixedGating
from agg_fairseq.metrics import frequency_groups
from agg_fairseq.optim import EmbeddingAdam


@register_optimizer("amsgrad_of_w", dataclass=FairseqAdamConfig)
class AmsgradOfW(AdamOfEmbedding):
    """Adam, for W with the largest second moment so far (Reddi et al. 2018)."""

    optimizer_class = torch.optim.AdamW

    def group_options(self, trainer: Any) -> dict[str, Any]:
        """Of W."""
        return {"amsgrad": True}


class RowAdam(EmbeddingAdam):
    """Adam, with β₂ = 0.999 for the `long` rows (V,) of a group."""

    def update(self, parameter: Any, gradient: Any, state: dict[str, Any], **group: Any) -> None:
        """Keeps a second moment for each."""
        rows, other, second = group.get("long"), parameter.clone(), {**state}
        if rows is not None:
            if state:
                second |= {"exp_avg": state["exp_avg"].clone(), "exp_avg_sq": state["long"]}
            super().update(
                other, gradient, second, **{**group, "betas": (group["betas"][0], 0.999)}
            )
        super().update(parameter, gradient, state, **group)
        if rows is not None:
            state["long"] = second["exp_avg_sq"]
            parameter[rows] = other[rows]


@register_optimizer("long_memory_of_frequent_rows", dataclass=FairseqAdamConfig)
class LongMemoryOfFrequentRows(AdamOfEmbedding):
    """Adam, for the frequent rows of W with β₂ = 0.999."""

    optimizer_class = RowAdam

    def group_options(self, trainer: Any) -> dict[str, Any]:
        """Of W."""
        counts = training_counts(trainer.task, "train")
        return {"long": frequency_groups(counts).members("frequent")}


# The ratio of pushes to pulls in `mle` of second-moments (seed 1), by pushes_and_pulls.py.
MEASURED_X = (0.0036, 0.0577, 0.1148, 0.2291, 0.4582, 0.9009, 1.0676)
MEASURED_RATIO = (1.0, 1.169, 1.327, 1.702, 2.661, 6.266, 8.72)


@register_criterion("balanced_pushes", dataclass=GatedCriterionConfig)
class BalancedPushes(GatedCriterion):
    """Likelihood with the pushes of each token divided by the ratio that was measured at its x with
    β₂ = 0.98."""

    gating: FixedGating

    def make_gating(self, **options: Any) -> FixedGating:
        """Gates that are known once the training split is."""
        return FixedGating(**options)

    def on_training_data(self, epoch: int) -> None:
        """Computes the gates, the same in every update."""
        counts = training_counts(self.task, "train")
        x = len(self.train_iterator) / counts.clamp(min=1) * (1 - 0.98) / 2
        logs = np.interp(x.log(), np.log(MEASURED_X), np.log(MEASURED_RATIO))
        gate = torch.from_numpy(np.exp(-logs)).float()
        self.gating.set_gates(Gates(torch.ones_like(counts, dtype=torch.bool), gate, gate))
