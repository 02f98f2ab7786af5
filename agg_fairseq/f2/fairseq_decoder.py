"""A transformer decoder whose output layer is the factorized softmax, and its frequency classes."""

from __future__ import annotations

import logging
from typing import Any

import torch
from fairseq.models.transformer import TransformerDecoderBase
from torch import Tensor, nn

from ..checkpoints.fairseq_checkpoint import Checkpoint
from ..errors import UserError, fail
from ..fairseq_glue.resume import restored_checkpoint
from ..fairseq_glue.training_counts import training_counts
from .decoupled_decoding import DECODINGS
from .factorized_softmax import FactorizedSoftmax
from .frequency_classes import assign_classes, mean_efficiency

logger = logging.getLogger(__name__)

MARK = "log_prob_of_first_token"
"""Under this name the decoder keeps the first column of what it returns, to see later whether it was changed."""


class F2TransformerDecoder(TransformerDecoderBase):
    """Returns joint log-probabilities in the place of logits, which are their own log-softmax.

    So every criterion, scorer and generator of fairseq works as it is. While generating, that is, with an incremental
    state, `f2_decoding` may choose the class first (Eq. 7).
    """

    output_projection: FactorizedSoftmax
    f2_decoding: str
    missing_classes: str | None
    """Why the classes are a placeholder; None once they are the model's own."""

    def forward(
        self,
        prev_output_tokens: Tensor,
        encoder_out: Any = None,
        incremental_state: Any = None,
        features_only: bool = False,
        **options: Any,
    ) -> tuple[Tensor, Any]:
        """(B, T) to (B, T, V) log-probabilities, or (B, T, D) features; and what the decoder returns beside them."""
        if self.training and self.missing_classes:
            fail(f"the frequency classes could not be made: {self.missing_classes}")
        features, extra = super().forward(
            prev_output_tokens,
            encoder_out=encoder_out,
            incremental_state=incremental_state,
            features_only=True,
            **options,
        )
        if features_only:
            return features, extra
        layer = self.output_projection
        if incremental_state is None or self.f2_decoding == "joint":
            log_probs = self.output_layer(features)
        else:
            chosen = layer.predict_class(features, sample=self.f2_decoding == "sample-class")
            log_probs = layer.decoupled_log_prob(features, chosen)
        return log_probs, {**extra, MARK: log_probs[..., :1].detach().clone()}

    def get_normalized_probs(self, net_output: Any, log_probs: bool, sample: Any = None) -> Tensor:
        """The output itself, unless it was scaled since: fairseq's generator divides by its temperature, in place."""
        found, mark = net_output[0], (net_output[1] or {}).get(MARK)
        if mark is None or not torch.equal(mark[:, -found.size(1) :], found[..., :1]):
            return super().get_normalized_probs(net_output, log_probs, sample)
        return found if log_probs else found.exp()

    def upgrade_state_dict_named(self, state_dict: dict[str, Any], name: str) -> dict[str, Any]:
        """Called by fairseq before it loads a checkpoint's state."""
        if f"{name}.output_projection.class_of_token" not in state_dict:
            fail(
                "found a checkpoint of a model with an ordinary softmax; expected one with the factorized output "
                "layer; make one of it: agg-fairseq convert-to-f2"
            )
        self.missing_classes = None
        return super().upgrade_state_dict_named(state_dict, name)


def factorize(model: nn.Module, options: Any, task: Any) -> nn.Module:
    """Replaces the output layer of a transformer that fairseq has built.

    Args:
        model: with a `decoder` that is a transformer decoder.
        options: those of `F2Options`, and `train_subset`, `save_dir`, `restore_file`, `finetune_from_model`.
        task: gives the training data, whose target-side counts make the classes.

    Returns:
        The same model. W is what it was, tied or not; U is new.

    Raises:
        SystemExit: with status 2, after one line: an unknown decoding. Classes that cannot be made are refused by the
            first training step, unless a checkpoint has brought its own.
    """
    if str(options.f2_decoding) not in DECODINGS:
        fail(f"--f2-decoding: expected {', '.join(DECODINGS)}, got {options.f2_decoding!r}")
    decoder = model.decoder
    classes, missing = classes_or_placeholder(options, task)
    weight = decoder.output_projection.weight
    decoder.output_projection = FactorizedSoftmax(classes, weight.size(1), weight)
    decoder.f2_decoding, decoder.missing_classes = str(options.f2_decoding), missing
    decoder.__class__ = F2TransformerDecoder  # fairseq's builders name the class of their decoder inside
    return model


def classes_or_placeholder(options: Any, task: Any) -> tuple[Tensor, str | None]:
    """The classes of the checkpoint that training will start from, else those made from the training data.

    If there is neither, one class of all tokens, until a checkpoint's take its place: beside a checkpoint that is only
    evaluated there may be no training data, or other data, from which its number of classes could not be made.

    Args:
        options: those of `F2Options`, and `train_subset`, `save_dir`, `restore_file`, `finetune_from_model`.
        task: fairseq's language_modeling or translation task.

    Returns:
        The class of each token (V,) int64; and the reason why they are only a placeholder, or None.
    """
    vocabulary = len(task.target_dictionary)
    checkpoint = restored_checkpoint(options)
    try:
        parameters = {} if checkpoint is None else Checkpoint(checkpoint).parameters
    except UserError as error:  # fairseq opens it next, and says what is wrong
        logger.warning(f"could not read the frequency classes of the checkpoint: {error}")
        parameters = {}
    found = parameters.get("decoder.output_projection.class_of_token")
    if found is not None and len(found) == vocabulary:
        return found.long(), None

    assignment = str(options.f2_assignment)
    try:
        counts = training_counts(task, options.train_subset, None)
        classes = assign_classes(assignment, options.f2_classes, counts)
    except (UserError, ValueError) as error:  # no training data; a number of classes that does not go with it
        return torch.zeros(vocabulary, dtype=torch.int64), str(error)
    sizes = torch.bincount(classes).tolist()
    logger.info(
        f"{assignment}: {len(sizes)} frequency classes of {', '.join(map(str, sizes))} tokens, mean efficiency "
        f"{mean_efficiency(counts, classes):.4f} of 2"
    )
    return classes, None
