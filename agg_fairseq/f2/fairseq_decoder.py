"""A transformer decoder of fairseq whose output layer is the factorized softmax."""

import logging
from typing import Any

import torch
from fairseq.models.transformer import TransformerDecoderBase
from torch import Tensor, nn

from ..errors import fail
from .decoupled_decoding import DECODINGS, choose_class, decoupled_log_prob
from .factorized_softmax import FactorizedSoftmax
from .frequency_classes import assign_classes

logger = logging.getLogger(__name__)

MARK = "log_prob_of_first_token"
"""Under this name the decoder keeps the first column of what it returns, to see later whether it was changed."""


class F2TransformerDecoder(TransformerDecoderBase):
    """Returns joint log-probabilities in the place of logits, which are their own log-softmax.

    So every criterion, scorer and generator of fairseq works as it is. While generating, that is, with an incremental
    state, `f2_decoding` may choose the class first (Eq. 7).
    """

    output_projection: FactorizedSoftmax
    f2_assignment: str
    f2_classes: int
    f2_decoding: str
    is_placeholder: bool  # are all tokens in one class? So it is until a checkpoint or `fill` brings the classes

    def forward(
        self,
        prev_output_tokens: Tensor,
        encoder_out: Any = None,
        incremental_state: Any = None,
        features_only: bool = False,
        **options: Any,
    ) -> tuple[Tensor, Any]:
        """(B, T) to (B, T, V) log-probabilities, or (B, T, D) features; and what the decoder returns beside them."""
        features, extra = super().forward(
            prev_output_tokens,
            encoder_out=encoder_out,
            incremental_state=incremental_state,
            features_only=True,
            **options,
        )
        if features_only:
            return features, extra
        layer = self.output_projection
        if incremental_state is None or self.f2_decoding == "joint":
            log_probs = self.output_layer(features)
        else:
            chosen = choose_class(features, layer.class_weight, sample=self.f2_decoding == "sample-class")
            log_probs = decoupled_log_prob(features, layer.weight, layer.class_weight, layer.classes, chosen)
        return log_probs, {**extra, MARK: log_probs[..., :1].detach().clone()}

    def get_normalized_probs(self, net_output: Any, log_probs: bool, sample: Any = None) -> Tensor:
        """The output itself, unless it was scaled since: fairseq's generator divides by its temperature, in place."""
        output, mark = net_output[0], (net_output[1] or {}).get(MARK)
        if mark is None or not torch.equal(mark[:, -output.size(1) :], output[..., :1]):
            return super().get_normalized_probs(net_output, log_probs, sample)
        return output if log_probs else output.exp()

    def fill(self, counts: Tensor) -> None:
        """Makes the frequency classes from training counts (V,), and draws U."""
        classes = assign_classes(self.f2_assignment, self.f2_classes, counts)
        self.output_projection.assign(classes.to(self.output_projection.class_of_token.device))
        sizes = self.output_projection.classes.sizes
        logger.info(f"{self.f2_assignment}: {len(sizes)} frequency classes of {', '.join(map(str, sizes))} tokens")

    def upgrade_state_dict_named(self, state_dict: dict[str, Any], name: str) -> dict[str, Any]:
        if f"{name}.output_projection.class_of_token" not in state_dict:
            fail("found a checkpoint with an ordinary softmax; make one of it by agg-fairseq convert-to-f2")
        self.is_placeholder = False
        return super().upgrade_state_dict_named(state_dict, name)


def factorize(model: nn.Module, options: Any) -> nn.Module:
    """Replaces the output layer of a transformer that fairseq has built. W stays, tied or not.

    U and the classes are placeholders; the options are `f2_assignment`, `f2_classes` and `f2_decoding`.
    """
    if str(options.f2_decoding) not in DECODINGS:
        fail(f"--f2-decoding: expected {', '.join(DECODINGS)}, got {options.f2_decoding!r}")
    decoder = model.decoder
    weight = decoder.output_projection.weight
    with torch.random.fork_rng(devices=[]):  # U is drawn when the classes are known, from the numbers that come next
        one_class = torch.zeros(len(weight), dtype=torch.int64)
        decoder.output_projection = FactorizedSoftmax(one_class, weight.size(1), weight)
    decoder.f2_assignment, decoder.f2_classes = str(options.f2_assignment), options.f2_classes
    decoder.f2_decoding, decoder.is_placeholder = str(options.f2_decoding), True
    decoder.__class__ = F2TransformerDecoder  # fairseq's builders name the class of their decoder inside
    return model
