"""`--arch transformer_lm_f2…` and `--arch transformer_f2…`: fairseq's transformers with the factorized output layer.

Each has every architecture that fairseq knows of its parent, with the same sizes: `transformer_lm_f2_gpt2_small` is
`transformer_lm_gpt2_small`, `transformer_f2_wmt_en_de_big` is `transformer_wmt_en_de_big`.
"""

from dataclasses import dataclass, field
from typing import Any, Optional

from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import register_model
from fairseq.models.transformer import TransformerModel
from fairseq.models.transformer_lm import TransformerLanguageModel, TransformerLanguageModelConfig
from omegaconf import II

from ..f2.decoupled_decoding import DECODINGS
from ..f2.fairseq_decoder import factorize
from ..f2.frequency_classes import ASSIGNMENTS
from .architectures import refuse_adaptive_softmax, register_sizes


@dataclass
class F2Options(FairseqDataclass):
    """How tokens are assigned to frequency classes, and how the next one is found."""

    f2_assignment: ChoiceEnum(ASSIGNMENTS) = field(
        default="mefmax",
        metadata={
            "help": "how tokens are assigned to frequency classes, by target-side training counts: mefmax also "
            "determines their number (Choi et al. 2020, Algorithm 1); the others are the paper's ablations"
        },
    )
    f2_classes: int = field(
        default=0, metadata={"help": "number of classes for equal-frequency and equal-token; mefmax determines its own"}
    )
    f2_decoding: str = field(  # no ChoiceEnum: --model-overrides would fail with a traceback
        default="joint",
        metadata={
            "help": f"how generation uses the classes, {', '.join(DECODINGS)}: the joint distribution, or a class "
            "chosen first, the most probable or a sampled one (decoupled decoding, Eq. 7); scoring always uses the "
            "joint distribution"
        },
    )


@dataclass
class TransformerLanguageModelF2Config(TransformerLanguageModelConfig, F2Options):
    """Options of `transformer_lm`, and those of the factorized layer."""

    train_subset: str = II("dataset.train_subset")
    save_dir: str = II("checkpoint.save_dir")
    restore_file: str = II("checkpoint.restore_file")
    checkpoint_suffix: str = II("checkpoint.checkpoint_suffix")
    continue_once: Optional[str] = II("checkpoint.continue_once")  # noqa: UP045 — fairseq reads it
    finetune_from_model: Optional[str] = II("checkpoint.finetune_from_model")  # noqa: UP045


@register_model("transformer_lm_f2", dataclass=TransformerLanguageModelF2Config)
class TransformerLanguageModelF2(TransformerLanguageModel):
    """`transformer_lm` with F²-Softmax."""

    @classmethod
    def build_model(cls, args: Any, task: Any) -> "TransformerLanguageModelF2":
        """Called by fairseq."""
        refuse_adaptive_softmax(args, "transformer_lm_f2", "factorized output layer")
        return factorize(super().build_model(args, task), args, task)


@register_model("transformer_f2")
class TransformerF2Model(TransformerModel):
    """`transformer` with F²-Softmax."""

    @classmethod
    def add_args(cls, parser: Any) -> None:
        """Adds the options of `transformer`, and those of the factorized layer."""
        super().add_args(parser)
        gen_parser_from_dataclass(parser, F2Options())

    @classmethod
    def build_model(cls, args: Any, task: Any) -> "TransformerF2Model":
        """Called by fairseq."""
        refuse_adaptive_softmax(args, "transformer_f2", "factorized output layer")
        return factorize(super().build_model(args, task), args, task)


register_sizes("transformer_lm", "transformer_lm_f2")
register_sizes("transformer", "transformer_f2")
