"""`--criterion f2_softmax`: likelihood of a model with the factorized output layer, inside the
target's class only."""

import math
from typing import Any, ClassVar

from fairseq.criterions import register_criterion
from torch import Tensor

from ...errors import fail
from ...f2 import FactorizedOutput, FactorizedSoftmax, factorized_cross_entropy
from ..features import is_plain
from ..output_layer import Head, loss_of_features, output_layer, unwrapped
from .base import CriterionConfig, GatedCriterion


@register_criterion("f2_softmax", dataclass=CriterionConfig)
class F2SoftmaxCriterion(GatedCriterion):
    """Computes what fairseq's `cross_entropy` computes on such a model, at about 1/C of its cost;
    with label smoothing, which is over the joint distribution, at the full cost.

    It takes no `--ul-alpha` and `--adv-epsilon`, which need the logits of all tokens.
    """

    logged: ClassVar[dict[str, int]] = GatedCriterion.logged | {"class_nll": 3, "token_nll": 3}

    def find_head(self, model: Any, net_input: dict[str, Any]) -> Head:
        layer = output_layer(model)
        if not isinstance(layer, FactorizedSoftmax):
            fail(
                f"--criterion {self.cfg._name}: found a model without the factorized output layer; "
                "expected --arch transformer_lm_f2… or transformer_f2…"
            )
        if not is_plain(unwrapped(model), net_input, layer.log_prob):
            self.refuse(model, "which changes what its factorized output layer gives")
        return Head(unwrapped(model).decoder, layer, True)

    def forward(
        self, model: Any, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, int, dict[str, Any]]:
        if (head := self._heads.get(model)) is None:
            head = self._heads[model] = self.find_head(model, sample["net_input"])
        layer = head.layer
        target = sample["target"]
        # before the model runs, so that a GPU's numbers have arrived when the loss reads them
        sorted_targets = layer.classes.sort(target, self.padding_idx)

        def loss(features: Tensor) -> FactorizedOutput:
            return factorized_cross_entropy(
                features,
                layer.weight,
                layer.class_weight,
                target,
                layer.classes,
                label_smoothing=self.training_loss.label_smoothing,
                ignore_index=self.padding_idx,
                sorted_targets=sorted_targets,
            )

        found = loss_of_features(model, sample["net_input"], head, loss)
        values = {"losses": found.losses, "nll": found.nll}
        output = self.training_loss.complete(
            found.loss, values, layer.weight, target, self.sample_size(sample)
        )
        number = (target != self.padding_idx).sum()
        for name in ("class_nll", "token_nll"):
            bits = getattr(found, name).detach().sum() / math.log(2)
            output.logged[name] = bits, number
        return self.result(layer.weight, output, sample, reduce=reduce)
