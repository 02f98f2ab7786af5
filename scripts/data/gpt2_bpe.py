"""GPT-2's byte-level sub-words, by their numbers (15496), as fairseq writes them."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path
from typing import Any

from agg_fairseq.data.subwords import gpt2_tokenizer
from agg_fairseq.errors import UserError

from .download import expected, fetch

# Digests: tiktoken's tiktoken_ext/openai_public.py. fairseq's mirror has OpenAI's files.
FILES = {
    "encoder.json": "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
    "vocab.bpe": "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
}
"""SHA-256 by name."""
MIRRORS = (
    "https://dl.fbaipublicfiles.com/fairseq/gpt2_bpe",
    "https://openaipublic.blob.core.windows.net/gpt-2/encodings/main",
)


def download(downloads: Path, folder: Path) -> None:
    """Writes both files into a folder.

    Args:
        downloads: where they are kept.
        folder: where they go.

    Raises:
        UserError: no mirror could be reached.
    """
    for name, digest in FILES.items():
        kept = fetch(downloads / "gpt2_bpe" / name, [f"{mirror}/{name}" for mirror in MIRRORS], expected(digest))
        shutil.copyfile(kept, folder / name)


def take(given: Path, folder: Path) -> None:
    """Writes both files into a folder, from one that the user has them in.

    Raises:
        UserError: it does not have them, or has others.
    """
    for name, digest in FILES.items():
        if not (given / name).is_file():
            raise UserError(f"--bpe-dir: found no {name} in {given}; expected GPT-2's encoder.json and vocab.bpe")
        if wrong := expected(digest)(given / name):
            raise UserError(f"--bpe-dir: {given / name}: {wrong}, GPT-2's")
        shutil.copyfile(given / name, folder / name)


def encode(folder: str, lines: list[str]) -> list[str]:
    """The sub-words of lines, each line on its own and without the spaces around it.

    So does fairseq's examples/roberta/multiprocessing_bpe_encoder.py, and so did Yu et al. (2022), whose
    gpt2_tokenize.py strips each line within pytorch_transformers and keeps the empty ones. It writes sub-words as
    strings (`Ġgame`), which makes no difference to a dictionary but their names.

    Args:
        folder: of encoder.json and vocab.bpe.
        lines: without their ends.
    """
    tokenizer = _tokenizer(folder)
    return [" ".join(map(str, tokenizer.encode(line.strip()).ids)) for line in lines]


@cache
def _tokenizer(folder: str) -> Any:
    """Read once in each process."""
    return gpt2_tokenizer(f"{folder}/encoder.json", f"{folder}/vocab.bpe")
