"""`--arch transformer_lm_f2…` and `--arch transformer_f2…`: transformers with the factorized output layer."""

from dataclasses import dataclass

from fairseq.dataclass import ChoiceEnum, FairseqDataclass

from ..f2.decoupled_decoding import DECODINGS
from ..f2.fairseq_decoder import factorize
from ..f2.frequency_classes import ASSIGNMENTS
from ..fairseq_glue.registries import option
from .architectures import register_transformers


@dataclass
class F2Options(FairseqDataclass):
    """How tokens are assigned to frequency classes, and how the next one is found."""

    f2_assignment: ChoiceEnum(ASSIGNMENTS) = option(
        "mefmax",
        "how tokens are assigned to frequency classes, by target-side training counts: mefmax also determines their "
        "number (Choi et al. 2020, Algorithm 1); the others are the paper's ablations",
    )
    f2_classes: int = option(0, "number of classes for equal-frequency and equal-token; mefmax determines its own")
    f2_decoding: str = option(  # no ChoiceEnum: --model-overrides would fail with a traceback
        "joint",
        f"how generation uses the classes, {', '.join(DECODINGS)}: the joint distribution, or a class "
        "chosen first, the most probable or a sampled one (decoupled decoding, Eq. 7); scoring always uses the "
        "joint distribution",
    )


register_transformers("f2", F2Options, factorize)
