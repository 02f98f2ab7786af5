"""`--criterion f2_softmax`: likelihood of a model with the factorized output layer, inside the
target's class only."""

import math
from typing import Any, ClassVar

from fairseq.criterions import register_criterion
from torch import Tensor

from ...errors import fail
from ...f2 import FactorizedSoftmax, factorized_cross_entropy
from ...modules.linear_logits import leaves
from ..output_layer import output_layer, without_logits
from .base import CriterionConfig, LikelihoodCriterion


@register_criterion("f2_softmax", dataclass=CriterionConfig)
class F2SoftmaxCriterion(LikelihoodCriterion):
    """Computes what fairseq's `cross_entropy` computes on such a model, at about 1/C of its cost;
    with label smoothing, which is over the joint distribution, at the full cost.

    It takes no `--ul-alpha` and `--adv-epsilon`, which need the logits of all tokens.
    """

    logged: ClassVar[dict[str, int]] = LikelihoodCriterion.logged | {"class_nll": 3, "token_nll": 3}

    def forward(
        self, model: Any, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, int, dict[str, Any]]:
        layer = output_layer(model)
        if not isinstance(layer, FactorizedSoftmax):
            fail(
                f"--criterion {self.cfg._name}: found a model without the factorized output layer; "
                "expected --arch transformer_lm_f2… or transformer_f2…"
            )
        # before the model runs, so that a GPU's numbers have arrived when the loss reads them
        target = sample["target"]
        sorted_targets = layer.classes.sort(target, self.padding_idx)
        parameters = leaves(layer.weight, layer.class_weight)
        features = without_logits(model, sample["net_input"], parameters, self.cfg._name)
        output = factorized_cross_entropy(
            features,
            layer.weight,
            layer.class_weight,
            target,
            layer.classes,
            label_smoothing=self.objective.label_smoothing,
            ignore_index=self.padding_idx,
            sorted_targets=sorted_targets,
        )
        size = self.sample_size(target, sample["ntokens"])
        positions = (target != self.padding_idx).sum()
        # bits per token, whose sum is `nll_loss`
        bits = {
            "class_nll": (output.class_nll.sum() / math.log(2), positions),
            "token_nll": (output.token_nll.sum() / math.log(2), positions),
        }
        output = self.objective.complete(output, layer.weight, size, bits)
        return self.result(layer.weight, output, target, sample["ntokens"], reduce=reduce)
