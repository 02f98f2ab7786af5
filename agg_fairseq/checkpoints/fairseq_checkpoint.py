"""Checkpoints of fairseq-train, opened without running what is in them."""

import _codecs
import argparse
import zipfile
import zlib
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from ..errors import UserError
from .output_embedding import OutputEmbedding, check_matrix

OUTPUT_NAMES = (
    "decoder.output_projection.weight", "decoder.embed_out", "decoder.fc_out.weight", "decoder.fc3.weight",
    "decoder.model.lm_head.weight",
)  # fmt: skip
"""Output layers of fairseq's transformers (in 0.9, if untied), LSTMs, `fconv` and `hf_gpt2`."""
INPUT_NAMES = ("decoder.embed_tokens.weight", "decoder.model.transformer.wte.weight")
TYING_OPTIONS = ("share_decoder_input_output_embed", "share_all_embeddings")
UNIGRAM_COUNTS_NAME = "decoder.output_projection.counts"  # a buffer that `UnigramLinear` adds
BEST, LAST = "checkpoint_best.pt", "checkpoint_last.pt"
STATE_KEY = "agg_fairseq"  # of the state of our criterions, in the task's part of `extra_state`
MOVING_AVERAGE = ("ema", "ema_fp32_params")  # what --store-ema adds to `extra_state`


class Checkpoint:
    """A checkpoint of fairseq-train.

    Args:
        path: of the file, or of the folder of a run, for its best checkpoint, else its last one.

    Attributes:
        path: of the file.
        state: the contents: `model`, `cfg` or `args`, `extra_state`, `optimizer_history`, …;
            tensors are mapped from the file where torch can do so.
        parameters: those and the buffers of the model, by name.

    Raises:
        UserError: the file is missing, damaged or no checkpoint of fairseq; or opening it would run
            code.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if self.path.is_dir():
            found = [file for file in (self.path / BEST, self.path / LAST) if file.is_file()]
            if not found:
                raise UserError(
                    f"{path}: found neither {BEST} nor {LAST}; expected a checkpoint of fairseq or "
                    "the folder of a run"
                )
            self.path = found[0]
        self.state: dict[str, Any] = _load(self.path)
        self.parameters: dict[str, Tensor] = self.state["model"]

    def __str__(self) -> str:
        return str(self.path)

    def options(self, section: str) -> dict[str, Any]:
        """The options of a section of fairseq's configuration, such as "task", its name as `_name`;
        empty if it has none."""
        options = self.state.get("cfg") or vars(self.state["args"])  # older ones: of all sections
        if section == "model" and not self.state.get("cfg"):
            return options
        found = options.get(section)
        if isinstance(found, argparse.Namespace):  # not configured by a dataclass
            return vars(found)
        if isinstance(found, str):
            return {**options, "_name": found}
        return found if isinstance(found, dict) else {}

    @property
    def languages(self) -> tuple[str | None, str | None] | None:
        """Source and target of a translation model, if given; None for a language model."""
        options = self.options("task")
        task = str(options.get("_name"))
        if task.startswith("language_modeling"):  # or one that extends it by name
            return None
        if task != "translation":
            raise UserError(
                f"{self.path}: found a model of the task {task}; expected language_modeling or "
                "translation"
            )
        return options.get("source_lang"), options.get("target_lang")

    @property
    def updates(self) -> int:
        """The number of updates before it was saved; 0 where it does not say."""
        history = self.state.get("optimizer_history") or [{}]
        return history[-1].get("num_updates", 0)

    def model_state(self) -> dict[str, Any]:
        """The contents without the state of the optimizer and the moving average of --store-ema."""
        extra = dict(self.state.get("extra_state") or {})
        for key in MOVING_AVERAGE:
            extra.pop(key, None)
        return {**self.state, "last_optimizer_state": None, "extra_state": extra}

    @cached_property
    def output_embedding(self) -> OutputEmbedding:
        """The output embedding, or the input embedding of a tied model that saves no other."""
        output_name, input_name = self._find(OUTPUT_NAMES), self._find(INPUT_NAMES)
        if any(map(self.options("model").get, TYING_OPTIONS)):
            output_name = output_name or input_name
        if output_name is None:
            raise UserError(
                f"{self.path}: found no output embedding among "
                f"{', '.join(list(self.parameters)[:3])}, …; expected {OUTPUT_NAMES[0]} or a tied one"
            )
        saved = self._matrix(output_name)
        tied = input_name is not None and torch.equal(
            self._matrix(input_name).float(), saved.float()
        )
        return OutputEmbedding(output_name, tied, saved, UNIGRAM_COUNTS_NAME in self.parameters)

    @property
    def input_embedding(self) -> Tensor:
        """The input embedding (V, D) of the decoder, in the dtype of the file."""
        name = self._find(INPUT_NAMES)
        if name is None:
            raise UserError(f"{self.path}: found no input embedding; expected {INPUT_NAMES[0]}")
        return self._matrix(name)

    def _find(self, names: tuple[str, ...]) -> str | None:
        saved = self.parameters.keys()
        return next((name for name in names if {name, f"{name}_v"} & saved), None)

    def _matrix(self, name: str) -> Tensor:
        saved = self.parameters.get(name)
        if saved is None:  # of weight normalization
            saved = torch._weight_norm(*(self.parameters[f"{name}_{part}"] for part in "vg"))
        return check_matrix(self.path, name, saved)

    def check_vocabulary(self, tokens: int, data: str | Path) -> None:
        """Raises UserError unless embeddings have a row for each of the `tokens` in `data`."""
        size = self.options("task").get("output_dictionary_size")
        if size is not None and size >= 0:
            raise UserError(
                f"{self.path}: found --output-dictionary-size {size}; expected a model that "
                "predicts all tokens of its dictionary"
            )
        for name in {*INPUT_NAMES, *OUTPUT_NAMES} & self.parameters.keys():
            rows = self.parameters[name].shape[:1].numel()
            if rows != tokens:
                raise UserError(
                    f"{self.path}: found {rows} tokens, but {data} has {tokens}; pass "
                    "the model's own data"
                )


def checkpoints_of_run(folder: str | Path) -> list[Checkpoint]:
    """The checkpoints in the --save-dir of a run, by ascending updates; of several with the same
    number of updates, the last by name."""
    by_updates = {}
    for path in sorted(Path(folder).glob("checkpoint*.pt")):
        checkpoint = Checkpoint(path)
        by_updates[checkpoint.updates] = checkpoint
    if not by_updates:
        raise UserError(
            f"{folder}: found no checkpoint*.pt in it; expected the --save-dir of fairseq-train"
        )
    return [by_updates[updates] for updates in sorted(by_updates)]


def allow_plain_values() -> None:
    """Lets `torch.load(weights_only=True)` open what `fairseq-train` saves: an `argparse.Namespace`
    of options; and arrays and numbers of numpy in meters, except arrays of objects."""
    allowed: list[Any] = [argparse.Namespace, np.ndarray, np.dtype, _codecs.encode]
    allowed += {type(np.dtype(code)) for code in np.typecodes["All"] if code not in "OV"}
    for value, name in ((np.array(0.5), "_reconstruct"), (np.float64(0.5), "scalar")):
        function = value.__reduce__()[0]
        for module in ("numpy.core", "numpy._core"):  # as numpy 1 and 2 name it in a file
            allowed.append((function, f"{module}.multiarray.{name}"))
    torch.serialization.add_safe_globals(allowed)


def _load(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise UserError(
            f"{path}: found no such file; expected a checkpoint, such as {BEST} of a run, or a model "
            "of transformers"
        )
    allow_plain_values()
    try:
        if is_zip := zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                if any(record.compress_type for record in archive.infolist()):
                    raise ValueError("a compressed record, which may be of any size; torch stores")
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=is_zip)
        if is_zip:
            _check_sums(path, {**state, "last_optimizer_state": None})
    except Exception as error:  # in as many ways as a pickle has instructions
        raise UserError(
            f"{path}: refused, since it is damaged, or loading it would run code; expected a "
            "checkpoint of fairseq"
        ) from error
    parts = state if isinstance(state, dict) else {}
    model = parts.get("model")
    is_model = isinstance(model, dict) and all(isinstance(one, Tensor) for one in model.values())
    if not is_model or not (parts.get("cfg") or parts.get("args")):
        found = ", ".join(map(str, list(parts)[:5])) or f"a {type(state).__name__}"
        raise UserError(
            f"{path}: found {found}; expected a fairseq checkpoint, with its `model` and its `cfg`"
        )
    return parts


def _check_sums(path: Path, state: dict[str, Any]) -> None:
    """Raises ValueError if a tensor has other bytes than were saved, at which torch does not look,
    and zipfile's own exceptions for what else is damaged."""
    with zipfile.ZipFile(path) as archive:
        saved = set()
        for record in archive.infolist():
            saved.add((record.file_size, record.CRC))
            if "/data/" not in record.filename:
                archive.read(record)
    storages = {}
    for tensor in tree_leaves(state):
        if isinstance(tensor, Tensor):
            storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
    for storage in storages.values():
        content = torch.empty(0, dtype=torch.uint8).set_(storage).numpy()
        if len(content) and (len(content), zlib.crc32(content)) not in saved:
            raise ValueError("a tensor has another checksum")
