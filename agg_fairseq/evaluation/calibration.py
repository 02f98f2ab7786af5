"""A model whose frequency groups are calibrated: one offset per group, saved as the bias of its
output layer."""

import copy
from pathlib import Path

import torch

from ..checkpoints import Checkpoint
from ..columns import with_groups
from ..errors import UserError
from ..files import atomic_write, check_writable
from ..functional import log_unigram
from ..metrics import NextTokenStatistics
from ..result import Result
from .inputs import find_device
from .scoring import BinarizedText

LAYER = "decoder.output_projection"
COLUMNS = {
    "perplexity": ("frequent", "medium", "rare", "total"),
    "expected_over_observed": ("rare",),
}


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
    """Calibrates the groups of tokens of a trained model: on the split, each is then expected as
    often as it appears.

    One offset per group (frequent, medium, rare; or those of `occurrences_in`) is fitted on a
    split, added to the logits of its tokens, and saved as the bias of the output layer, on top of
    an old bias.

    Args:
        model: a `transformer_lm` or `transformer`, with a log-unigram bias or without.
        output: model to write, of a model with a log-unigram bias.
        split: the split to fit on; not the one that the model is compared on.
        occurrences_in: group tokens by their occurrences in the training split of this folder, as
            `perplexity` does.
        share: of the offsets that is added, in (0, 1]; below 1, groups come only nearer to how
            often they appear.
        force: replace an existing output.

    Returns:
        Result: the rows `as it was` and `calibrated`, with `perplexity` and
        `expected_over_observed` of the split by group. Facts: `offsets` by group, in nats.

    Reference: none; a measure of our own (docs/which-cure.md).
    """
    from fairseq.models import ARCH_MODEL_NAME_REGISTRY

    from .. import models as _  # noqa: F401 — registers the architectures of this package

    check_writable(output, model.path, replace=force)
    architecture = model.model_options.get("_name") or model.model_options.get("arch")
    name = ARCH_MODEL_NAME_REGISTRY.get(architecture, architecture)
    with_bias = {"transformer_lm": "transformer_lm_unigram", "transformer": "transformer_unigram"}
    with_bias |= {already: already for already in with_bias.values()}
    if name not in with_bias or model.model_options.get("adaptive_softmax_cutoff") is not None:
        expected = (
            "a transformer_lm or transformer with one softmax, with a log-unigram bias or without"
        )
        raise UserError(f"{model}: found a model {name}; expected {expected}")
    text = BinarizedText(data, split, max_tokens=max_tokens)
    models = {"calibrating": model}
    vocabulary = text.load_vocabulary(models)
    text.check(vocabulary)

    groups, torch_device = vocabulary.groups("types", occurrences_in), find_device(device)
    chunks = text.score(models, "calibrating", vocabulary, torch_device)
    statistics = NextTokenStatistics.of(chunks, groups, keep_positions=True)
    offsets = share * statistics.fit_offsets()

    parameters = dict(model.parameters)
    # (V,); the last, of index −1, is of no group
    shift = torch.cat([offsets, offsets.new_zeros(1)])[groups.of_token]
    if f"{LAYER}.counts" not in parameters:
        parameters[f"{LAYER}.counts"] = vocabulary.counts.double()  # as `UnigramLinear` saves them
        shift = shift - log_unigram(vocabulary.counts)  # which that layer adds
    elif f"{LAYER}.bias_shift" in parameters:
        shift = shift + parameters[f"{LAYER}.bias_shift"]
    weight = model.output_embedding.saved
    parameters.pop("decoder.embed_out", None)  # as older versions of fairseq name it
    # also in a half-precision model
    parameters |= {f"{LAYER}.weight": weight, f"{LAYER}.bias_shift": shift.float()}
    # All else is as it was, but for the state of the optimizer and the best validation, which are
    # of the old model.
    state = {**model.state, **{key: copy.deepcopy(model.state.get(key)) for key in ("cfg", "args")}}
    extra = {
        key: value
        for key, value in (state.get("extra_state") or {}).items()
        if key not in ("best", "val_loss")
    }
    state |= {"model": parameters, "last_optimizer_state": None, "extra_state": extra}
    options = state["cfg"]["model"] if state["cfg"] else state["args"]
    options = options if isinstance(options, dict) else vars(options)
    names = {
        key: with_bias[name] + options[key].removeprefix(name)
        for key in ("_name", "arch")
        if options.get(key)
    }
    options.update(names, unigram_bias="learned")
    atomic_write(output, lambda temporary: torch.save(state, temporary))

    as_it_was = statistics.compute()
    rows = {"as it was": {measure: as_it_was[measure] for measure in COLUMNS}}
    rows["calibrated"] = statistics.calibrated(offsets)
    settings = {
        "fitted-on": split,
        "targets": statistics.tokens,
        **text.settings(models, vocabulary),
        "share": share,
    }
    settings["occurrences-in"] = None if occurrences_in is None else str(occurrences_in)
    facts = {"offsets": dict(zip(groups.names, offsets.tolist(), strict=True))}
    return Result(rows, with_groups(COLUMNS, groups.names), settings, facts)
