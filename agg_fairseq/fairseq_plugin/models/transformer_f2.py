"""`--arch transformer_lm_f2…` and `--arch transformer_f2…`: transformers with the factorized output
layer."""

import logging
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.models.transformer import TransformerDecoderBase
from torch import Tensor, nn

from ...errors import fail
from ...f2.decoupled_decoding import DECODINGS, choose_class, decoupled_log_prob
from ...f2.factorized_softmax import FactorizedSoftmax
from ...f2.frequency_classes import ASSIGNMENTS, assign_classes
from .. import option
from .architectures import register_transformers

logger = logging.getLogger(__name__)


@dataclass
class F2Options(FairseqDataclass):
    """Options: the assignment of tokens to frequency classes, and the search for the next one."""

    f2_assignment: ChoiceEnum(ASSIGNMENTS) = option(
        "mefmax",
        "how tokens are assigned to frequency classes, by target-side training counts: mefmax also "
        "determines their number (Choi et al. 2020, Algorithm 1); the others are the paper's "
        "ablations",
    )
    f2_classes: int = option(
        0, "number of classes for equal-frequency and equal-token; mefmax determines its own"
    )
    f2_decoding: str = option(  # no ChoiceEnum: --model-overrides would fail with a traceback
        "joint",
        f"how generation uses the classes, {', '.join(DECODINGS)}: the joint distribution, or a "
        "class chosen first, the most probable or a sampled one (decoupled decoding, Eq. 7); "
        "scoring always uses the joint distribution",
    )


class F2Layer(FactorizedSoftmax):
    """The factorized softmax, with all tokens in one class until a checkpoint or `fill` brings the
    classes. It also loads the W of an ordinary softmax, from which `fill` then derives U."""

    decoding = "joint"
    continues_softmax = False

    def __init__(self, weight: nn.Parameter, assignment: str, number: int) -> None:
        with torch.random.fork_rng(devices=[]):  # U is drawn when the classes are known
            super().__init__(weight.size(1), torch.zeros(len(weight), dtype=torch.int64), weight)
        self.assignment, self.number = assignment, number

    @property
    def is_placeholder(self) -> bool:
        return self.classes.number == 1

    def fill(self, counts: Tensor) -> None:
        """Makes the frequency classes from training counts (V,), and draws U.

        If W comes from an ordinary softmax, u_c is instead the mean of the class's rows of W,
        weighted by the counts: the gradient of log Σ_{k in c} exp(h·w_k) with respect to h, where P
        equals the training frequencies.
        """
        class_ids = assign_classes(self.assignment, self.number, counts)
        class_ids = class_ids.to(self.class_of_token.device)
        self.assign(class_ids)
        if self.continues_softmax:
            weights = counts.to(class_ids.device).float().clamp(min=1e-3)
            share = F.one_hot(class_ids) * weights[:, None]  # V x C
            with torch.no_grad():
                self.class_weight.copy_((share / share.sum(0)).T @ self.weight.float())
        sizes = self.classes.sizes.tolist()
        logger.info(
            f"{self.assignment}: {len(sizes)} frequency classes of "
            f"{', '.join(map(str, sizes))} tokens"
        )

    def forward(self, features: Tensor) -> Tensor:
        """Log-probabilities (…, V) of features (…, D), in the place of logits."""
        if self.decoding == "joint":
            return self.log_prob(features)
        chosen = choose_class(features, self.class_weight, sample=self.decoding == "sample-class")
        return decoupled_log_prob(features, self.weight, self.class_weight, self.classes, chosen)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        if f"{prefix}class_of_token" not in state_dict:
            self.continues_softmax = True
            for name in ("class_of_token", "class_weight"):
                state_dict[f"{prefix}{name}"] = getattr(self, name)
        super()._load_from_state_dict(state_dict, prefix, *rest)
        if self.number and not self.continues_softmax and self.number != self.classes.number:
            fail(
                f"--f2-classes: found {self.number}; the checkpoint has {self.classes.number} "
                "classes, which are kept; leave out --f2-assignment and --f2-classes, or begin "
                "with a model of the ordinary softmax"
            )


class F2TransformerDecoder(TransformerDecoderBase):
    """A decoder that may choose the class first (Eq. 7) with an incremental state: to generate."""

    f2_decoding: str

    def forward(
        self,
        prev_output_tokens: Tensor,
        encoder_out: Any = None,
        incremental_state: Any = None,
        features_only: bool = False,
        **options: Any,
    ) -> tuple[Tensor, Any]:
        self.output_projection.decoding = "joint" if incremental_state is None else self.f2_decoding
        given = prev_output_tokens, encoder_out, incremental_state, features_only
        return super().forward(*given, **options)


def factorize(decoder: nn.Module, options: Any) -> None:
    """Replaces the output layer; W stays what it was, tied or not."""
    if str(options.f2_decoding) not in DECODINGS:
        fail(f"--f2-decoding: expected {', '.join(DECODINGS)}, got {options.f2_decoding!r}")
    weight = decoder.output_projection.weight
    decoder.output_projection = F2Layer(weight, str(options.f2_assignment), options.f2_classes)
    decoder.f2_decoding = str(options.f2_decoding)
    # fairseq's builders name the class of their decoder inside
    decoder.__class__ = F2TransformerDecoder


register_transformers("f2", F2Options, factorize)
