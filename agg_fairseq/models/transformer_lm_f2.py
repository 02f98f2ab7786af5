"""`--arch transformer_lm_f2…`: fairseq's transformer language model with the factorised output layer."""

from dataclasses import dataclass
from typing import Any, Optional

from fairseq.models import register_model
from fairseq.models.transformer_lm import TransformerLanguageModel, TransformerLanguageModelConfig
from omegaconf import II

from .f2_architectures import register_architectures
from .f2_decoder import factorize, refuse_adaptive_softmax
from .f2_options import F2Options


@dataclass
class TransformerLanguageModelF2Config(TransformerLanguageModelConfig, F2Options):
    """Options of `transformer_lm`, and those of the factorised layer."""

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
        """What fairseq calls."""
        refuse_adaptive_softmax(args, "transformer_lm_f2")
        return factorize(super().build_model(args, task), args, task)


register_architectures("transformer_lm", "transformer_lm_f2")
