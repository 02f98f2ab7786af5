"""Prepares a text in the tokens of another prepared corpus, so that a model of that corpus can be fine-tuned on it.

    python -m scripts.data.same_tokens --of PREPARED --output DIR [TRAIN VALID TEST]

The text is three files in UTF-8, or the documentation of Python.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from agg_fairseq.errors import UserError
from agg_fairseq.files import read_json_object

from ..command import Parser, run
from . import python_documentation, sentencepiece_bpe
from .files import Text, digest, write_lines
from .prepared_folder import MANIFEST, SPLITS, binarize, dictionary_size, prepare_folder


def prepare(output: Path, of: Path, files: Sequence[Path]) -> None:
    """Makes what is missing of a prepared folder, with the tokenizer and the dictionary of the prepared folder `of`."""
    manifest = read_json_object(of / MANIFEST, "the manifest of a prepared corpus")
    missing = {"tokenizer", "bpe"} - manifest.keys()
    if missing:
        raise UserError(
            f"--of: found no {min(missing)} in {of / MANIFEST}; expected a corpus of this version; prepare it again"
        )
    bpe = manifest["bpe"]
    if bpe["kind"] not in ("words", "sentencepiece"):
        raise UserError(f"--of: found a corpus in tokens of {bpe['kind']}; expected words or sentencepiece")
    model = of.absolute() / bpe.get("sentencepiece_model", "")

    def encoded(folder: Path) -> None:
        texts: dict[str, Iterable[str]] = {
            split: Text(file).lines() for split, file in zip(SPLITS, files, strict=bool(files))
        }
        for split, lines in (texts or python_documentation.split(python_documentation.documents())).items():
            of_model = sentencepiece_bpe.encode(model.parent, lines) if bpe["kind"] == "sentencepiece" else lines
            write_lines(folder / split, of_model)

    def data_bin(folder: Path) -> None:
        dictionary = of.absolute() / "data-bin" / "dict.txt"
        binarize(output / "encoded", folder, 1, ["--only-source", f"--srcdict={dictionary}"])

    def finish() -> tuple[dict[str, object], list[str]]:
        facts = {
            "corpus": "same-tokens",
            "tokenizer": manifest["tokenizer"],
            "bpe": {**bpe, **({"sentencepiece_model": str(model)} if bpe["kind"] == "sentencepiece" else {})},
            "dictionary": dictionary_size(output / "data-bin" / "dict.txt"),
        }
        return facts, [f"encoded/{split}" for split in SPLITS]

    settings = {"of": digest(of / MANIFEST), "from": [digest(file) for file in files] or "documentation of Python"}
    prepare_folder("same_tokens", output, settings, {"encoded": encoded, "data-bin": data_bin}, finish)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = Parser("same_tokens", __doc__)
    parser.add_argument("files", type=Path, nargs="*", metavar="FILE", help="the training, validation and test text")
    parser.add_argument("--of", type=Path, required=True, metavar="PREPARED", help="the folder with the tokenizer")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="the prepared folder")
    options = parser.parse_args(arguments)
    if len(options.files) not in (0, len(SPLITS)):
        raise UserError(f"found {len(options.files)} files; expected the training, validation and test text, or none")
    prepare(options.output, options.of, options.files)


if __name__ == "__main__":
    sys.exit(run("same_tokens", main))
