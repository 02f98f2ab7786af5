"""`--arch transformer_lm_unigram…` and `--arch transformer_unigram…`: transformers with a log-unigram bias."""

from dataclasses import dataclass
from typing import Any

import torch
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.models.transformer import TransformerDecoderBase
from torch import Tensor, nn

from ..errors import fail
from ..fairseq_glue.registries import option
from ..modules import UnigramLinear
from .architectures import register_transformers


@dataclass
class UnigramOptions(FairseqDataclass):
    """What becomes of the bias."""

    unigram_bias: ChoiceEnum(["learned", "fixed"]) = option(  # type: ignore[valid-type]
        "learned",
        "the bias of the output layer starts at the log of the training frequencies of the targets (Meister et al. "
        "2022): learned trains it, and weight decay pulls it back to them; fixed does not train it",
    )


class UnigramTransformerDecoder(TransformerDecoderBase):
    """A transformer decoder whose output layer has a log-unigram bias."""

    output_projection: UnigramLinear
    is_placeholder: bool  # are the counts 0? So they are until a checkpoint or `fill` brings them

    def fill(self, counts: Tensor) -> None:
        self.output_projection.counts.copy_(counts)

    def upgrade_state_dict_named(self, state_dict: dict[str, Any], name: str) -> dict[str, Any]:
        if f"{name}.output_projection.counts" not in state_dict:
            fail("found a checkpoint of a model without log-unigram bias; expected one of the same --arch")
        self.is_placeholder = False
        return super().upgrade_state_dict_named(state_dict, name)


def add_log_unigram(model: nn.Module, options: Any) -> nn.Module:
    """Gives the output layer of a transformer that fairseq has built a log-unigram bias. The counts are a placeholder.

    Args:
        model: with a `decoder` that is a transformer decoder. W stays what it was, tied or not.
        options: `unigram_bias`.
    """
    decoder = model.decoder
    weight, learned = decoder.output_projection.weight, str(options.unigram_bias) == "learned"
    decoder.output_projection = UnigramLinear(weight, torch.zeros(len(weight), dtype=torch.int64), learned=learned)
    decoder.is_placeholder = True
    decoder.__class__ = UnigramTransformerDecoder  # fairseq's builders name the class of their decoder inside
    return model


register_transformers("unigram", UnigramOptions, add_log_unigram)
