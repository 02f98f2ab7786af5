"""Models as `save_pretrained` of Hugging Face transformers leaves them, measured without loading them.

Of a folder, the configuration, the headers of the weights and one matrix are read; nothing in it is run, and
transformers is not needed. Of a model in several files, only those that hold the embeddings are opened.
"""

import contextlib
import difflib
import logging
import re
from collections.abc import Collection, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import UserError, first_line
from ..files import fingerprint, read_json_object
from .output_embedding import OutputEmbedding, check_finite

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
TENSORS_ENDING, INDEX_ENDING = ".safetensors", ".safetensors.index.json"
OUTPUTS = (
    re.compile(r"(.*\.)?(lm_head|embed_out|proj_out|output_projection|output_layer)\.weight"),
    re.compile(r"(.*\.)?(output|head)\.weight"),
)
"""The names of output layers in transformers, and in models whose code comes with them; the first that are found."""
INPUTS = re.compile(
    r"(.*\.)?(embed_tokens|wte|embed_in|(word_|input_)?embeddings?|shared|tok_embeddings|tokens_embed|w)\.weight"
)
"""The names of input embeddings of tokens."""
LANGUAGE_MODELS = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "ForMaskedLM", "ForPreTraining", "MTModel")
"""How the names of transformers' classes with an output layer over the vocabulary end."""
POSITIONS = ("max_position_embeddings", "n_positions", "max_seq_len")
"""The names of the longest input in configurations of transformers."""
SHOWN = 5  # how many names an error lists


def is_pretrained(path: Path) -> bool:
    """Whether a path is a file of safetensors, an index of such files, or a folder of transformers."""
    if path.is_dir():
        is_run = any(path.glob("checkpoint*.pt"))
        return any(path.glob(f"*{TENSORS_ENDING}")) or ((path / "config.json").is_file() and not is_run)
    return path.name.endswith((TENSORS_ENDING, INDEX_ENDING))


def weights_file(path: Path) -> Path:
    """The weights of a folder: model.safetensors or, of a model in several files, their index; a file as it is."""
    if not path.is_dir():
        return path
    for name in (WEIGHTS, INDEX):
        if (path / name).is_file():
            return path / name
    others = sorted(file.name for file in path.iterdir() if file.name.endswith((TENSORS_ENDING, INDEX_ENDING, ".bin")))
    listed = f", but {', '.join(others[:SHOWN])}" if others else ""
    remedy = "name one of the files" if any(map(is_pretrained, map(Path, others))) else "save it by save_pretrained"
    raise UserError(f"{path}: found neither {WEIGHTS} nor {INDEX} in it{listed}; {remedy}")


class PretrainedModel:
    """A model in safetensors: a folder that `save_pretrained` wrote, the index in it, or a file.

    Args:
        path: of the folder, the index or the file. `config.json` and `tokenizer.json` are looked for beside the file.
        matrix: the parameter that is measured; None: the output embedding.

    Attributes:
        path: of the file or index with the weights.
        tokenizer_file: where `tokenizer.json` is expected; it need not be there.
        configuration: of `config.json`; empty where there is none.
    """

    def __init__(self, path: str | Path, matrix: str | None = None) -> None:
        self.path = weights_file(Path(path))
        self.matrix = matrix
        self._files: dict[Path, Any] = {}  # of weights, opened by safetensors, which reads the header alone
        configuration, self.tokenizer_file = (self.path.parent / name for name in ("config.json", "tokenizer.json"))
        self._status = [*map(fingerprint, (self.path, configuration, self.tokenizer_file))]
        exists = configuration.exists()
        self.configuration = read_json_object(configuration, "that of transformers") if exists else {}
        if self.path.name.endswith(INDEX_ENDING):
            self._file_of = self._read_index()
        else:
            self._file_of = dict.fromkeys(self._open(self.path).keys(), self.path)

    def __str__(self) -> str:
        return str(self.path)

    @property
    def fingerprint(self) -> tuple[Any, ...]:
        """What the measures of this model depend on: the files that were read, and the chosen matrix."""
        self.output_embedding  # noqa: B018 — opens the files that it is in
        return (*self._status, *map(fingerprint, self._files), self.matrix)

    @property
    def positions(self) -> int | None:
        """The longest input that the configuration names, in tokens; None if it names none."""
        return next((positions for name in POSITIONS if isinstance(positions := self._option(name), int)), None)

    @cached_property
    def output_embedding(self) -> OutputEmbedding:
        """The matrix given by `matrix`; else the output embedding, or the input embedding of a tied model.

        A parameter is taken for an embedding if its name is one that transformers uses and it has a row for each of the
        configuration's `vocab_size`. A model is tied if it says so, or if it is a language model without an output
        layer of its own; of one that has both matrices and does not say, the two are compared. UserError if there is no
        such matrix, or several, or one that is not of finite floating-point numbers.
        """
        if self.matrix is not None and self.matrix not in self._file_of:
            near = ", ".join(difflib.get_close_matches(self.matrix, self._file_of, SHOWN) or [*self._file_of][:SHOWN])
            raise UserError(f"--matrix: found no {self.matrix!r} in {self.path}; expected one such as {near}")
        name, tied = (self.matrix, None) if self.matrix is not None else self._find()
        saved = self.tensor(name)
        if saved.dim() != 2:
            raise UserError(f"{self.path}: found {name} of shape {list(saved.shape)}; expected a matrix")
        for rows in saved.split(8192):
            check_finite(self.path, {name: rows.float()})  # as it is used: a large float64 is infinite there
        return OutputEmbedding(name, tied, saved)

    @property
    def input_embedding(self) -> Tensor:
        """The input embedding (V, D), in the dtype of the file; UserError if there is none, or several."""
        rows = len(self.output_embedding.saved)
        names = [name for name in self._candidates(INPUTS) if self._shape(name)[0] == rows]
        return self.tensor(self._only(names, "input embedding"))

    def _only(self, names: list[str], kind: str) -> str:
        if len(names) != 1:
            listed = ", ".join(names[:SHOWN]) or f"none of a known name among {len(self._file_of):,} parameters"
            size = self._option("vocab_size")
            rows = f" of {size} rows, the vocab_size of its config.json" if type(size) is int else ""
            raise UserError(f"{self.path}: found as {kind}{rows}: {listed}; expected one; choose it by --matrix NAME")
        return names[0]

    def _candidates(self, names: re.Pattern[str]) -> list[str]:
        """Parameters of such a name that have a row per token."""
        size = self._option("vocab_size")
        shapes = {name: self._shape(name) for name in self._file_of if names.fullmatch(name)}
        return [
            name for name, shape in shapes.items() if len(shape) == 2 and (type(size) is not int or size == shape[0])
        ]

    def _option(self, name: str) -> Any:
        """An option of the configuration, or of the text model in it."""
        text = self.configuration.get("text_config")
        return self.configuration.get(name, text.get(name) if isinstance(text, dict) else None)

    def _find(self) -> tuple[str, bool]:
        """The name of the output embedding, and whether it is tied."""
        ties, classes = self._option("tie_word_embeddings"), self.configuration.get("architectures")
        has_output = isinstance(classes, list) and any(str(kind).endswith(LANGUAGE_MODELS) for kind in classes)
        outputs, inputs = next(filter(None, map(self._candidates, OUTPUTS)), []), self._candidates(INPUTS)
        name = self._only(outputs or inputs, "output embedding")
        if not outputs:
            if ties or (ties is None and has_output):
                return name, True
            raise UserError(f"{self.path}: found no output layer, and none tied by config.json; choose --matrix {name}")
        if ties is False or not inputs:  # an input embedding with other rows, such as those of prompts, is another one
            return name, bool(ties) and not any(map(INPUTS.fullmatch, self._file_of))
        same = any(torch.equal(self.tensor(input_name), self.tensor(name)) for input_name in inputs)
        if ties and not same:
            raise UserError(f"{self.path}: config.json ties {name} and {inputs[0]}, which differ; choose by --matrix")
        return name, same

    def _shape(self, name: str) -> tuple[int, ...]:
        path = self._file_of[name]
        if name not in self._open(path).keys():
            raise UserError(f"{self.path}: found no {name} in {path.name}, which it names; download both again")
        return tuple(self._open(path).get_slice(name).get_shape())

    def tensor(self, name: str) -> Tensor:
        """A parameter in the dtype of its file, mapped from it: pages are read when they are used."""
        self._shape(name)  # refuses a file that lacks it
        path = self._file_of[name]
        tensor = self._open(path).get_tensor(name)
        if not tensor.is_floating_point() or tensor.element_size() == 1:
            raise UserError(f"{path}: found {name} of type {tensor.dtype}; expected numbers that are not quantized")
        return tensor

    def _open(self, path: Path) -> Any:
        if path not in self._files:
            try:
                from safetensors import SafetensorError, safe_open
            except ImportError as error:
                raise UserError("the package safetensors is missing; pip install '.[eval]'") from error
            try:
                if not path.is_file():
                    raise FileNotFoundError("no such file")
                self._files[path] = safe_open(path, framework="pt")
            except (OSError, RuntimeError, SafetensorError) as error:  # RuntimeError: a file beyond all memory
                raise UserError(f"{path}: unreadable ({first_line(error)}); expected whole safetensors") from error
        return self._files[path]

    def _read_index(self) -> dict[str, Path]:
        expected = "an index of safetensors files, as save_pretrained writes it"
        files = read_json_object(self.path, expected).get("weight_map")
        if not isinstance(files, dict) or not all(isinstance(file, str) for file in files.values()):
            raise UserError(f"{self.path}: found no weight_map with the file of each parameter; expected {expected}")
        return {name: self.path.parent / file for name, file in files.items()}


@contextlib.contextmanager
def report_without(names: Collection[str]) -> Iterator[None]:
    """Within, what transformers reports of a model that it loads leaves out parameters that the caller loads itself.

    The report is logged at the end, where it has other rows; so `names` may be filled within.
    """
    logger, reports = logging.getLogger("transformers.modeling_utils"), []

    def hold_back(record: logging.LogRecord) -> bool:
        is_report = "LOAD REPORT" in record.getMessage()
        if is_report:
            reports.append(record)
        return not is_report

    logger.addFilter(hold_back)
    try:
        yield
    finally:
        logger.removeFilter(hold_back)
        for record in reports:
            lines = record.getMessage().split("\n")  # a table of parameters: Key | Status | …
            lines = [line for line in lines if line.split("|")[0].strip() not in names]
            if any("|" in line and not line.startswith("Key") for line in lines):
                record.msg, record.args = "\n".join(lines), None
                logger.handle(record)
