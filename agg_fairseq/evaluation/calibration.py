"""Calibration of the frequency groups of a model."""

from pathlib import Path

import torch

from ..checkpoints import Checkpoint
from ..checkpoints.with_bias import write_with_bias
from ..columns import CALIBRATION, add_groups
from ..errors import UserError
from ..files import check_writable
from ..metrics import NextTokenStatistics
from ..result import Result
from .inputs import find_device, load_vocabulary
from .scoring import BinarizedText

WITH_BIAS = {"transformer_lm": "transformer_lm_unigram", "transformer": "transformer_unigram"}
"""Models, and the same with a log-unigram bias."""


def calibrate(
    model: Checkpoint,
    data: str | Path,
    output: str | Path,
    *,
    split: str = "valid",
    occurrences_in: str | Path | None = None,
    share: float = 1.0,
    force: bool = False,
    max_tokens: int | None = None,
    device: str | None = None,
) -> Result:
    """Saves an offset per group of tokens as the bias of the output layer, so that a model expects
    each group as often as it appears in the split.

    Args:
        model: a `transformer_lm` or `transformer`, with a log-unigram bias or without.
        output: model to write, with a log-unigram bias.
        split: the split to fit on; not the one that the model is compared on.
        occurrences_in: group tokens instead by how often they occur in the training split of this
            folder: 100 times or more, 1 to 99 times, or never.
        share: share of the offsets that is added; below 1, groups come only nearer to how often they
            appear.

    Reference: none (docs/which-cure.md).
    """
    from ..fairseq_plugin.models.from_checkpoint import model_name  # imports fairseq

    check_writable(output, model.path, replace=force)
    name = model_name(model)
    is_known = name in {*WITH_BIAS, *WITH_BIAS.values()}
    if not is_known or model.options("model").get("adaptive_softmax_cutoff") is not None:
        raise UserError(
            f"{model}: found a model {name}; expected a transformer_lm or transformer with one softmax"
        )
    text = BinarizedText(data, split, max_tokens=max_tokens)
    models = {"calibrating": model}
    vocabulary = load_vocabulary(models, data)
    text.check(vocabulary)
    groups = vocabulary.groups("types", occurrences_in)
    text_settings = text.settings(models, vocabulary)
    chunks = text.score(model, vocabulary, text_settings, find_device(device))
    statistics = NextTokenStatistics.of(chunks, groups, keep_positions=True)
    offsets = share * statistics.fit_offsets()

    # (V,); the last, of index −1, is of no group
    shift = torch.cat([offsets, offsets.new_zeros(1)])[groups.group_ids]
    write_with_bias(model, output, shift, vocabulary.counts, name, WITH_BIAS.get(name, name))
    uncalibrated = statistics.compute()
    rows = {
        "as it was": {measure: uncalibrated[measure] for measure in CALIBRATION},
        "calibrated": statistics.calibrated(offsets),
    }
    settings = {
        "fitted-on": split,
        "targets": statistics.tokens,
        **text_settings,
        "share": share,
        "occurrences-in": None if occurrences_in is None else str(occurrences_in),
    }
    facts = {"offsets": dict(zip(groups.names, offsets.tolist(), strict=True))}
    return Result(rows, add_groups(CALIBRATION, groups.names), settings, facts)
