"""`--arch transformer_lm_unigram…` and `--arch transformer_unigram…`: transformers with a
log-unigram bias."""

from dataclasses import dataclass
from typing import Any

import torch
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from torch import Tensor, nn

from ...modules import UnigramLinear
from .. import option
from .architectures import register_transformers


@dataclass
class UnigramOptions(FairseqDataclass):
    """The option that says what becomes of the bias."""

    unigram_bias: ChoiceEnum(["learned", "fixed"]) = option(  # type: ignore[valid-type]
        "learned",
        "the bias of the output layer starts at the log of the training frequencies of the targets "
        "(Meister et al. 2022): learned trains it, and weight decay pulls it back to them; fixed "
        "does not train it",
    )


class UnigramLayer(UnigramLinear):
    """A log-unigram bias whose counts are 0 until a checkpoint or `fill` brings them."""

    @property
    def is_placeholder(self) -> bool:
        return not self.counts.any()

    def fill(self, counts: Tensor) -> None:
        self.counts.copy_(counts)


def add_log_unigram(decoder: nn.Module, options: Any) -> None:
    """Adds a log-unigram bias; W stays what it was, tied or not."""
    weight, learned = decoder.output_projection.weight, str(options.unigram_bias) == "learned"
    counts = torch.zeros(len(weight), dtype=torch.int64)
    decoder.output_projection = UnigramLayer(weight, counts, learned=learned)


register_transformers("unigram", UnigramOptions, add_log_unigram)
