"""`--arch transformer_f2…`: fairseq's translation transformer with the factorised output layer."""

from typing import Any

from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import register_model
from fairseq.models.transformer import TransformerModel

from .f2_architectures import register_architectures
from .f2_decoder import factorize, refuse_adaptive_softmax
from .f2_options import F2Options


@register_model("transformer_f2")
class TransformerF2Model(TransformerModel):
    """`transformer` with F²-Softmax."""

    @classmethod
    def add_args(cls, parser: Any) -> None:
        """The options of `transformer`, and those of the factorised layer."""
        super().add_args(parser)
        gen_parser_from_dataclass(parser, F2Options())

    @classmethod
    def build_model(cls, args: Any, task: Any) -> "TransformerF2Model":
        """What fairseq calls."""
        refuse_adaptive_softmax(args, "transformer_f2")
        return factorize(super().build_model(args, task), args, task)


register_architectures("transformer", "transformer_f2")
