"""The text that models are trained on, as folders that the preparation scripts make."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agg_fairseq.errors import UserError

from ..data.digests import sha256
from .bench import ROOT, Bench, check_fit
from .experiment import Corpus

DATA = Path("data")
"""Where the preparation scripts put their folders, beside where the user is."""
WIKITEXT103_GPT2 = Corpus("wikitext103-gpt2", "wikitext103/prepare.sh", "gpt2")
WIKITEXT103_SENTENCEPIECE = Corpus("wikitext103-sentencepiece", "wikitext103/prepare.sh", "sentencepiece")
WIKITEXT103_WORDS = Corpus("wikitext103-words", "wikitext103/prepare.sh", "words")
WIKITEXT2_WORDS = Corpus("wikitext2-words", "wikitext2/prepare.sh", "words")
WMT14 = Corpus("wmt14_en_de", "wmt14_en_de/prepare.sh", "moses", parallel=True)
VOCABULARY = 8000
MERGES = 6000
"""Of sub-words, of a small corpus and of a small parallel one."""


@dataclass(frozen=True)
class Prepared:
    """A folder that a preparation script made."""

    folder: Path
    manifest: dict[str, Any]

    @property
    def identity(self) -> str:
        """Of the text and its tokens, wherever the folder is: the SHA-256 of its manifest."""
        return sha256(self.folder / "manifest.json")

    @property
    def binarised(self) -> Path:
        """What fairseq-train reads."""
        return self.folder / "data-bin"

    def reference(self, language: str) -> Path:
        """The test split of a parallel corpus, as people write it."""
        return self.folder / "reference" / f"test.{language}"

    def tokeniser(self) -> list[str]:
        """The options by which the commands find the tokeniser."""
        kind, *files = self.manifest["bpe"].items()
        options = ["--bpe", kind[1]]
        for name, path in files:
            options += [f"--{name.replace('_', '-')}", str(self.folder / path)]
        return options


def prepare(bench: Bench, corpus: Corpus) -> Prepared:
    """The corpus at the scale of the bench; made where it is missing.

    Raises:
        UserError: it cannot be made, nothing can be trained on it, or it is not of the languages that are asked for.
    """
    folder = _folder(bench, corpus)
    check_fit(folder)
    if folder not in bench.prepared:
        bench.prepared[folder] = _prepared(bench, corpus, folder)
    prepared: Prepared = bench.prepared[folder]
    if not bench.dry:
        _check(bench, corpus, prepared)
    return prepared


def _check(bench: Bench, corpus: Corpus, prepared: Prepared) -> None:
    """Sees that a folder has as many languages as the corpus, and, but for tiny ones, its tokens."""
    if (prepared.binarised / "dict.txt").is_file() == corpus.parallel:
        found, expected = ("one language", "two") if corpus.parallel else ("two languages", "one")
        raise UserError(f"--data: found text of {found} in {prepared.folder}; expected {expected}, for this table")
    tokenizer = prepared.manifest.get("tokenizer")
    if bench.scale != "tiny" and tokenizer != corpus.tokenizer:
        raise UserError(
            f"--data: found the tokenizer {tokenizer!r} in {prepared.folder}; expected {corpus.tokenizer!r}, for this "
            "table; give the raw corpus, or a folder that was prepared with it"
        )


def _prepared(bench: Bench, corpus: Corpus, folder: Path) -> Prepared:
    """Raw text is given to its script each time, which sees whether it is still the same."""
    manifest = folder / "manifest.json"
    if bench.train and folder != bench.data and (bench.data is not None or not manifest.is_file()):
        _make(bench, corpus, folder)
    if bench.dry:
        return Prepared(folder, {})
    if not manifest.is_file():
        raise UserError(f"{folder}: found no prepared corpus there; leave out --show to have it made")
    return Prepared(folder, _read(manifest))


def _read(path: Path) -> dict[str, Any]:
    """A manifest, of which what is read here is there.

    Raises:
        UserError: it is none.
    """
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        kind, *files = manifest["bpe"].items()
        is_complete = kind[0] == "kind" and all(isinstance(file, str) for _, file in [kind, *files])
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        is_complete = False
    if not is_complete:
        raise UserError(f"{path}: found no manifest of a prepared corpus; expected that of a prepare.sh; run it again")
    return manifest


def _folder(bench: Bench, corpus: Corpus) -> Path:
    if bench.data is not None:
        is_prepared = (bench.data / "manifest.json").is_file()
        return bench.data if is_prepared else bench.output / f"data-{_name(bench, corpus)}-{bench.data.name}"
    if bench.scale == "tiny":
        if corpus.parallel:
            raise UserError(
                "found no --data; expected a folder of {train,valid,test}.{en,de}, such as Multi30k, for a translation "
                "experiment at --scale tiny"
            )
        return bench.output / "data-demo"
    return (DATA / corpus.name).absolute()


def _name(bench: Bench, corpus: Corpus) -> str:
    """Of a corpus that is given raw: at tiny, all text of one language is cut into the same tokens."""
    return corpus.name if corpus.parallel or bench.scale != "tiny" else "text"


def _make(bench: Bench, corpus: Corpus, folder: Path) -> None:
    if bench.data is None and bench.scale == "tiny":
        bench.prepare([sys.executable, ROOT / "scripts/run.py", "scripts.data.demo", "--output", folder])
        return
    options = [] if corpus.parallel else ["--tokenizer", corpus.tokenizer]
    if bench.scale == "tiny":
        small = ["--tokenizer", "sentencepiece", "--vocabulary", str(VOCABULARY)]
        options = ["--merges", str(MERGES)] if corpus.parallel else small
    if bench.data is not None:
        options += ["--from", str(bench.data)]
    bench.prepare(["bash", ROOT / "scripts" / corpus.prepare, *options, "--output", folder])
