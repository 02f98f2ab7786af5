"""Options of every model with the factorised output layer."""

from dataclasses import dataclass, field

from fairseq.dataclass import ChoiceEnum, FairseqDataclass

from ..functional.decoupled import DECODINGS
from ..functional.frequency_classes import ASSIGNMENTS


@dataclass
class F2Options(FairseqDataclass):
    """How tokens are assigned to frequency classes, and how the next one is found."""

    f2_assignment: ChoiceEnum(ASSIGNMENTS) = field(
        default="mefmax",
        metadata={
            "help": "how tokens are assigned to frequency classes, by target-side training counts: mefmax also finds "
            "their number (Choi et al. 2020, Algorithm 1); the others are the paper's ablations"
        },
    )
    f2_classes: int = field(
        default=0, metadata={"help": "number of classes for equal-frequency and equal-token; mefmax finds its own"}
    )
    f2_decoding: str = field(  # no ChoiceEnum: --model-overrides would fail with a traceback
        default="joint",
        metadata={
            "help": f"how generation uses the classes, {', '.join(DECODINGS)}: the joint distribution, or a class "
            "chosen first, the likeliest or a sampled one (decoupled decoding, Eq. 7); scoring always uses the joint "
            "distribution"
        },
    )
