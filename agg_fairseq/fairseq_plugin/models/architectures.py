"""fairseq's transformers with another output layer: `--arch transformer_lm_NAME…` and `--arch
transformer_NAME…`.

Each has every architecture that fairseq knows of its parent, but for those that end in an adaptive
softmax: `transformer_lm_f2_gpt2_small` has the sizes of `transformer_lm_gpt2_small`.
"""

from argparse import Namespace
from collections.abc import Callable
from dataclasses import make_dataclass
from typing import Any

from fairseq import models
from fairseq.dataclass import FairseqDataclass
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models.transformer import TransformerModel
from fairseq.models.transformer_lm import TransformerLanguageModel, TransformerLanguageModelConfig
from torch import nn

from ...errors import fail
from ..trainer import build_optimizer  # noqa: F401 — calls `fill`


def register_transformers(
    name: str, options: type[FairseqDataclass], replace: Callable[..., None]
) -> None:
    """Registers `transformer_lm_NAME` and `transformer_NAME`, and their architectures.

    `replace` puts the output layer, with its `options`, into a transformer decoder that fairseq has
    built. A layer with `is_placeholder` gets the training counts by its `fill` (`trainer.py`).
    """

    class Replaced:
        @classmethod
        def build_model(cls, args: Any, task: Any) -> nn.Module:
            model = super().build_model(args, task)
            if model.decoder.output_projection is None:
                fail(
                    f"--arch transformer…_{name}: found --adaptive-softmax-cutoff; expected none, "
                    "for one output layer"
                )
            replace(model.decoder, args)
            return model

    class LanguageModel(Replaced, TransformerLanguageModel):
        pass

    class TranslationModel(Replaced, TransformerModel):
        @classmethod
        def add_args(cls, parser: Any) -> None:
            super().add_args(parser)
            gen_parser_from_dataclass(parser, options())

    # the names in logs and errors
    LanguageModel.__name__, TranslationModel.__name__ = (
        f"{parent.__name__}{name.capitalize()}"
        for parent in (TransformerLanguageModel, TransformerModel)
    )
    config = make_dataclass(
        f"{LanguageModel.__name__}Config", [], bases=(TransformerLanguageModelConfig, options)
    )
    models.register_model(f"transformer_lm_{name}", dataclass=config)(LanguageModel)
    models.register_model(f"transformer_{name}")(TranslationModel)
    for parent in ("transformer_lm", "transformer"):
        for theirs in list(models.ARCH_MODEL_INV_REGISTRY[parent]):
            configure, options_of_theirs = models.ARCH_CONFIG_REGISTRY[theirs], Namespace()
            configure(options_of_theirs)
            if (
                theirs.startswith(parent)
                and getattr(options_of_theirs, "adaptive_softmax_cutoff", None) is None
            ):
                ours = f"{parent}_{name}{theirs.removeprefix(parent)}"
                if ours not in models.ARCH_MODEL_REGISTRY:
                    models.register_model_architecture(f"{parent}_{name}", ours)(configure)
