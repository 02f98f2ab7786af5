"""A transformer decoder whose output layer is the factorised softmax."""

from __future__ import annotations

from typing import Any

import torch
from fairseq.models.transformer import TransformerDecoderBase
from torch import Tensor, nn

from ..errors import fail
from ..functional.decoupled import DECODINGS
from ..modules.factorized_softmax import FactorizedSoftmax
from .f2_classes import classes_or_placeholder

MARK = "log_prob_of_first_token"
"""Where the decoder notes the first column of what it returns, to see later whether it is still that."""


class F2TransformerDecoder(TransformerDecoderBase):
    """Yields joint log-probabilities in the place of logits, which are their own log-softmax.

    So every criterion, scorer and generator of fairseq works as it is. While generating, that is, with an incremental
    state, `f2_decoding` may choose the class first (Eq. 7).
    """

    output_projection: FactorizedSoftmax
    f2_decoding: str
    missing_classes: str | None
    """Why the classes are a placeholder; None once they are the model's own."""

    def forward(
        self,
        prev_output_tokens: Tensor,
        encoder_out: Any = None,
        incremental_state: Any = None,
        features_only: bool = False,
        **options: Any,
    ) -> tuple[Tensor, Any]:
        """(B, T) to (B, T, V) log-probabilities, or (B, T, D) features; and what the decoder returns beside them."""
        if self.training and self.missing_classes:
            fail(f"the frequency classes could not be made: {self.missing_classes}")
        features, extra = super().forward(
            prev_output_tokens,
            encoder_out=encoder_out,
            incremental_state=incremental_state,
            features_only=True,
            **options,
        )
        if features_only:
            return features, extra
        log_probs = self._log_probs(features, is_generating=incremental_state is not None)
        return log_probs, {**extra, MARK: log_probs[..., :1].detach().clone()}

    def _log_probs(self, features: Tensor, *, is_generating: bool) -> Tensor:
        if not is_generating or self.f2_decoding == "joint":
            return self.output_layer(features)
        layer = self.output_projection
        chosen = layer.predict_class(features, sample=self.f2_decoding == "sample-class")
        return layer.decoupled_log_prob(features, chosen)

    def get_normalized_probs(self, net_output: Any, log_probs: bool, sample: Any = None) -> Tensor:
        """As they are, unless somebody has scaled them: fairseq's generator divides by its temperature, in place."""
        found, mark = net_output[0], (net_output[1] or {}).get(MARK)
        if mark is None or not torch.equal(mark[:, -found.size(1) :], found[..., :1]):
            return super().get_normalized_probs(net_output, log_probs, sample)
        return found if log_probs else found.exp()

    def upgrade_state_dict_named(self, state_dict: dict[str, Any], name: str) -> dict[str, Any]:
        """What fairseq calls before it loads a checkpoint's state."""
        if f"{name}.output_projection.class_of_token" not in state_dict:
            fail(
                "found a checkpoint of a model with an ordinary softmax; expected one with the factorised output "
                "layer; make one of it: agg-fairseq convert-to-f2"
            )
        self.missing_classes = None
        return super().upgrade_state_dict_named(state_dict, name)


def factorize(model: nn.Module, options: Any, task: Any) -> nn.Module:
    """Replaces the output layer of a transformer that fairseq has built.

    Args:
        model: with a `decoder` that is a transformer decoder.
        options: those of `F2Options`, and `train_subset`, `save_dir`, `restore_file`, `finetune_from_model`.
        task: gives the training data, whose target-side counts make the classes.

    Returns:
        The same model. W is what it was, tied or not; U is new.

    Raises:
        SystemExit: with status 2, after one line: an unknown decoding. Classes that cannot be made are refused by the
            first training step, unless a checkpoint has brought its own.
    """
    if str(options.f2_decoding) not in DECODINGS:
        fail(f"--f2-decoding: expected {', '.join(DECODINGS)}, got {options.f2_decoding!r}")
    decoder = model.decoder
    classes, missing = classes_or_placeholder(options, task)
    weight = decoder.output_projection.weight
    decoder.output_projection = FactorizedSoftmax(classes, weight.size(1), weight)
    decoder.f2_decoding, decoder.missing_classes = str(options.f2_decoding), missing
    decoder.__class__ = F2TransformerDecoder  # fairseq's builders name the class of their decoder in their midst
    return model


def refuse_adaptive_softmax(options: Any, architecture: str) -> None:
    """The factorised layer takes the place of every other output layer.

    Raises:
        SystemExit: with status 2, after one line.
    """
    if getattr(options, "adaptive_softmax_cutoff", None) is not None:
        fail(
            f"--arch {architecture}: found --adaptive-softmax-cutoff {options.adaptive_softmax_cutoff}; expected "
            "none, since the factorised output layer takes its place"
        )
