"""`--criterion cosreg`: likelihood with cosine regularization (Gao et al. 2019, Eq. 6)."""

from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from fairseq.criterions import register_criterion
from torch import Tensor

from ...functional import CrossEntropyOutput
from .. import option
from ..output_layer import has_output_layer, output_layer
from .base import LikelihoodCriterion, LikelihoodCriterionConfig


@dataclass
class CosRegCriterionConfig(LikelihoodCriterionConfig):
    """Options of `--criterion cosreg`."""

    cosreg_gamma: float = option(
        1.0, "weight of the mean cosine between output embeddings (the paper's value: 1.0)"
    )


@register_criterion("cosreg", dataclass=CosRegCriterionConfig)
class CosRegCriterion(LikelihoodCriterion):
    """`L = L_MLE + γ/V² (‖Σ_k ŵ_k‖² − V)`: `--criterion mle --cosreg-gamma 1`."""

    def forward(
        self, model: Any, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, int, dict[str, Any]]:
        """The term needs W alone: a model without `output_layer` is trained by its logits."""
        layer = output_layer(model)
        needs_features = self.objective.ul_alpha or self.objective.adv_epsilon
        if layer is None or has_output_layer(model) or needs_features:
            return super().forward(model, sample, reduce)
        net_output = model(**sample["net_input"])
        log_probs = model.get_normalized_probs(net_output, log_probs=True)  # B x T x V
        target = model.get_targets(sample, net_output)
        # of rows: that of blocks (B, V, T) has no deterministic implementation on CUDA
        rows = log_probs.flatten(0, 1), target.flatten()
        options = {"ignore_index": self.padding_idx, "reduction": "none"}
        nll = F.nll_loss(*rows, **options).view_as(target)
        losses, smoothing = nll, self.objective.label_smoothing
        if smoothing:
            losses = F.cross_entropy(*rows, label_smoothing=smoothing, **options).view_as(target)
        output = CrossEntropyOutput(losses.sum(), nll.detach(), losses.detach())
        size = self.sample_size(target, sample["ntokens"])
        output = self.objective.complete(output, layer.weight, size, {})
        return self.result(layer.weight, output, target, sample["ntokens"], reduce=reduce)
