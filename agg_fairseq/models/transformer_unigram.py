"""`--arch transformer_lm_unigram…` and `--arch transformer_unigram…`: transformers with a log-unigram bias.

Each has every architecture that fairseq knows of its parent, with the same sizes: `transformer_lm_unigram_gpt2_small`
is `transformer_lm_gpt2_small`, `transformer_unigram_wmt_en_de_big` is `transformer_wmt_en_de_big`.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import register_model
from fairseq.models.transformer import TransformerDecoderBase, TransformerModel
from fairseq.models.transformer_lm import TransformerLanguageModel, TransformerLanguageModelConfig
from omegaconf import II
from torch import Tensor, nn

from ..errors import UserError, fail
from ..fairseq_glue.training_counts import training_counts
from ..modules import UnigramLinear
from .architectures import refuse_adaptive_softmax, register_sizes

LEARNED, FIXED = "learned", "fixed"


@dataclass
class UnigramOptions(FairseqDataclass):
    """What becomes of the bias."""

    unigram_bias: ChoiceEnum([LEARNED, FIXED]) = field(  # type: ignore[valid-type]
        default=LEARNED,
        metadata={
            "help": "the bias of the output layer starts at the log of the training frequencies of the targets "
            "(Meister et al. 2022): learned trains it, and weight decay pulls it back to them; fixed does not "
            "train it"
        },
    )


@dataclass
class TransformerLanguageModelUnigramConfig(TransformerLanguageModelConfig, UnigramOptions):
    """Options of `transformer_lm`, and that of the bias."""

    train_subset: str = II("dataset.train_subset")


class UnigramTransformerDecoder(TransformerDecoderBase):
    """A transformer decoder that is not trained without training counts."""

    output_projection: UnigramLinear
    missing_counts: str | None
    """Why the counts are a placeholder; None once they are the model's own."""

    def extract_features(self, *inputs: Any, **options: Any) -> tuple[Tensor, Any]:
        """As in fairseq; called by `forward`."""
        if self.training and self.missing_counts:
            fail(f"the log-unigram bias could not be made: {self.missing_counts}")
        return super().extract_features(*inputs, **options)

    def upgrade_state_dict_named(self, state_dict: dict[str, Any], name: str) -> dict[str, Any]:
        """Called by fairseq before it loads a checkpoint's state."""
        layer = f"{name}.output_projection"
        expected = LEARNED if self.output_projection.bias_shift is not None else FIXED
        if f"{layer}.counts" not in state_dict:
            fail("found a checkpoint of a model without log-unigram bias; expected one of the same --arch")
        found = LEARNED if f"{layer}.bias_shift" in state_dict else FIXED
        if found != expected:
            fail(f"--unigram-bias {expected}: found a checkpoint with a {found} bias; expected --unigram-bias {found}")
        self.missing_counts = None
        return super().upgrade_state_dict_named(state_dict, name)


def add_log_unigram(model: nn.Module, options: Any, task: Any) -> nn.Module:
    """Gives the output layer of a transformer that fairseq has built a log-unigram bias.

    Args:
        model: with a `decoder` that is a transformer decoder.
        options: with `unigram_bias` and `train_subset`.
        task: gives the training data, whose target-side counts make the bias.

    Returns:
        The same model. W is what it was, tied or not. Where there is no training data, as beside a checkpoint that is
        only evaluated, the counts are 0 until the checkpoint's take their place; training is refused.
    """
    decoder = model.decoder
    try:
        counts, missing = training_counts(task, options.train_subset, None), None
    except UserError as error:
        counts, missing = torch.zeros(len(task.target_dictionary), dtype=torch.int64), str(error)
    learned = str(options.unigram_bias) == LEARNED
    decoder.output_projection = UnigramLinear(decoder.output_projection.weight, counts, learned=learned)
    decoder.missing_counts = missing
    decoder.__class__ = UnigramTransformerDecoder  # fairseq's builders name the class of their decoder inside
    return model


@register_model("transformer_lm_unigram", dataclass=TransformerLanguageModelUnigramConfig)
class TransformerLanguageModelUnigram(TransformerLanguageModel):
    """`transformer_lm` with a log-unigram bias."""

    @classmethod
    def build_model(cls, args: Any, task: Any) -> "TransformerLanguageModelUnigram":
        """Called by fairseq."""
        refuse_adaptive_softmax(args, "transformer_lm_unigram", "output layer with a log-unigram bias")
        return add_log_unigram(super().build_model(args, task), args, task)


@register_model("transformer_unigram")
class TransformerUnigramModel(TransformerModel):
    """`transformer` with a log-unigram bias."""

    @classmethod
    def add_args(cls, parser: Any) -> None:
        """Adds the options of `transformer`, and that of the bias."""
        super().add_args(parser)
        gen_parser_from_dataclass(parser, UnigramOptions())

    @classmethod
    def build_model(cls, args: Any, task: Any) -> "TransformerUnigramModel":
        """Called by fairseq."""
        refuse_adaptive_softmax(args, "transformer_unigram", "output layer with a log-unigram bias")
        return add_log_unigram(super().build_model(args, task), args, task)


register_sizes("transformer_lm", "transformer_lm_unigram")
register_sizes("transformer", "transformer_unigram")
