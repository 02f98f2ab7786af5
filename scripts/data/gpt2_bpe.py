"""GPT-2's byte-level sub-words, by their numbers (15496), as fairseq writes them."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from .download import fetch
from .files import in_batches

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


def take(downloads: Path, folder: Path) -> None:
    """Writes both files into a folder, downloaded unless they are there."""
    for name, digest in FILES.items():
        path = fetch(downloads / "gpt2_bpe" / name, [f"{mirror}/{name}" for mirror in MIRRORS], [digest])
        shutil.copyfile(path, folder / name)


def encode(folder: Path, lines: Iterable[str]) -> Iterator[str]:
    """The sub-words of lines, each line on its own and without the spaces around it.

    So does fairseq's examples/roberta/multiprocessing_bpe_encoder.py, and so did Yu et al. (2022), whose
    gpt2_tokenize.py strips each line within pytorch_transformers and keeps the empty ones. It writes sub-words as
    strings (`Ġgame`), which makes no difference to a dictionary but their names. `folder` has encoder.json and
    vocab.bpe.
    """
    from tokenizers import ByteLevelBPETokenizer

    tokenizer = ByteLevelBPETokenizer.from_file(str(folder / "encoder.json"), str(folder / "vocab.bpe"))

    def encoded(batch: list[str]) -> list[str]:  # on all cores
        encodings = tokenizer.encode_batch([line.strip() for line in batch])
        return [" ".join(map(str, encoding.ids)) for encoding in encodings]

    return in_batches(encoded, lines)
