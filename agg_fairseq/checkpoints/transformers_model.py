"""Models that `save_pretrained` of transformers wrote, of which single matrices are read."""

from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UserError, first_line
from ..files import read_json_object, reading
from .output_embedding import OutputEmbedding, check_matrix

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
TENSORS_ENDING, INDEX_ENDING = ".safetensors", ".safetensors.index.json"


def is_pretrained(path: Path) -> bool:
    """Whether a path is a model of transformers: a file of safetensors, an index, or a folder."""
    if not path.is_dir():
        return path.name.endswith((TENSORS_ENDING, INDEX_ENDING))
    if any(path.glob(f"*{TENSORS_ENDING}")):
        return True
    return (path / "config.json").is_file() and not any(path.glob("checkpoint*.pt"))


class PretrainedModel:
    """A model in safetensors: a folder that `save_pretrained` wrote, the index in it, or a file.

    Args:
        path: of the folder, the index or the file; `config.json` is looked for beside it.
        matrix: the parameter that is measured; None: the output embedding.

    Attributes:
        path: of the file or index with the weights.
        tokenizer_file: where `tokenizer.json` is expected; it need not be there.
    """

    def __init__(self, path: str | Path, matrix: str | None = None) -> None:
        self.path = Path(path)
        if self.path.is_dir():
            names = [WEIGHTS, INDEX, "adapter_config.json"]
            name = next((name for name in names if (self.path / name).is_file()), WEIGHTS)
            if name not in (WEIGHTS, INDEX):
                raise UserError(
                    f"{path}: found adapters alone; expected a whole model: merge_and_unload of "
                    "PEFT, then save_pretrained"
                )
            self.path /= name
        self.matrix = matrix
        self.tokenizer_file = self.path.with_name("tokenizer.json")
        if self.path.name.endswith(INDEX_ENDING):
            expected = "an index of safetensors files, as save_pretrained writes it"
            files = read_json_object(self.path, expected).get("weight_map")
            if not isinstance(files, dict):
                raise UserError(f"{self.path}: found no weight_map; expected {expected}")
            self._files = {}
            for name, file in files.items():
                if Path(str(file)).name != file:
                    raise UserError(f"{self.path}: found {file}; expected files of its folder")
                self._files[name] = self.path.parent / file
        else:
            self._files = dict.fromkeys(_open(self.path).keys(), self.path)

    def __str__(self) -> str:
        return str(self.path)

    def __contains__(self, name: str) -> bool:
        """Whether a parameter is saved, by its name in the model or in the files."""
        return name in self._files or name in self._saved_names

    @cached_property
    def _saved_names(self) -> dict[str, str]:
        """Names in the files by names in the model: transformers renames some, such as the
        `embed_out` of GPT-NeoX."""
        from transformers.conversion_mapping import get_model_conversion_mapping
        from transformers.core_model_loading import WeightRenaming, rename_source_key

        renamings: list[Any] = []
        converters: list[Any] = []
        for conversion in get_model_conversion_mapping(self.skeleton):
            is_renaming = isinstance(conversion, WeightRenaming)
            (renamings if is_renaming else converters).append(conversion)
        known = (self.skeleton.base_model_prefix, self.skeleton.state_dict())
        saved_names = {}
        for saved in self._files:
            saved_names[rename_source_key(saved, renamings, converters, *known)[0]] = saved
        return saved_names

    def check(self) -> None:
        """Opens all files of the weights."""
        for path in dict.fromkeys(self._files.values()):
            _open(path)

    def tensor(self, name: str) -> Tensor:
        """A parameter in the dtype of its file, mapped from it."""
        name = name if name in self._files else self._saved_names[name]
        file = _open(self._files[name])
        if name not in file.keys():
            raise UserError(
                f"{self._files[name]}: found no {name}; expected the files of {self.path}"
            )
        tensor = file.get_tensor(name)
        if not tensor.is_floating_point() or tensor.element_size() == 1:
            raise UserError(
                f"{self.path}: found {name} of type {tensor.dtype}; expected numbers that are not "
                "quantized"
            )
        return tensor

    @cached_property
    def skeleton(self) -> Any:
        """The model on torch's meta device, without numbers."""
        try:
            import transformers

            config = transformers.AutoConfig.from_pretrained(
                self.path.parent, trust_remote_code=False
            )
            with torch.device("meta"):
                return getattr(transformers, config.architectures[0])(config)
        except Exception as error:  # a missing or damaged configuration, an unknown architecture
            raise UserError(
                f"{self.path}: transformers knows no model of the config.json beside it "
                f"({first_line(error)}); choose the matrix to measure by --matrix NAME"
            ) from error

    @property
    def positions(self) -> int | None:
        """The longest input in tokens, if the configuration names it."""
        rows = getattr(self.skeleton.config.get_text_config(), "max_position_embeddings", None)
        for name, module in self.skeleton.named_modules():
            padding = getattr(module, "padding_idx", None)
            if name.endswith(".position_embeddings") and padding is not None:
                return rows - padding - 1  # RoBERTa's positions begin after it
        return rows

    @cached_property
    def output_embedding(self) -> OutputEmbedding:
        """The parameter `matrix`; else the output embedding, or the input embedding of a tied
        model."""
        name, tied = self.matrix, None
        if name is None:
            head = self.skeleton.get_output_embeddings()
            inputs = self.skeleton.get_input_embeddings()
            if head is None:
                raise UserError(
                    f"{self.path}: found no output layer in this {type(self.skeleton).__name__}; "
                    "choose --matrix"
                )
            tied = head.weight is inputs.weight
            name = self._saved_name(head)
            input_name = self._saved_name(inputs) if tied else None
            if name is not None and input_name is not None:  # transformers ties them if equal
                tied = torch.equal(self.tensor(name), self.tensor(input_name))
            name = name or input_name
        if name not in self._files:
            raise UserError(
                f"{self.path}: found no {name or 'output embedding'}; expected --matrix with a "
                f"parameter, such as {', '.join([*self._files][:5])}"
            )
        return OutputEmbedding(name, tied, check_matrix(self.path, name, self.tensor(name)))

    @property
    def input_embedding(self) -> Tensor:
        """The input embedding (V, D), in the dtype of the file, of a decoder if it has its own."""
        # transformers names `shared` of an untied BART first, which no token passes
        parts = self.skeleton.get_decoder(), self.skeleton
        names = (self._saved_name(part.get_input_embeddings()) for part in parts)
        if (name := next(filter(None, names), None)) is None:
            raise UserError(
                f"{self.path}: found no input embedding among {len(self._files):,} parameters"
            )
        return check_matrix(self.path, name, self.tensor(name))

    def _saved_name(self, module: nn.Module) -> str | None:
        """The name in the files of the weight of a layer, possibly with fewer or other prefixes,
        such as `wte.weight`; None if they lack it."""
        path = next(path for path, part in self.skeleton.named_modules() if part is module)
        name = f"{path}.weight"
        if name in self:
            return self._saved_names.get(name, name)
        ending = ".".join(name.split(".")[-2:])
        names = [saved for saved in self._files if f".{saved}".endswith(f".{ending}")]
        # longer: those of additional layers, such as for more tokens ahead
        return min(names, key=len, default=None)


def _open(path: Path) -> Any:
    from safetensors import safe_open

    with reading(path, "whole safetensors, as save_pretrained writes them", Exception):
        return safe_open(path, framework="pt")
