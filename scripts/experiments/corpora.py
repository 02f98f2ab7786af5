"""The corpora that models are trained on, as folders that the programs of `scripts.data` prepare."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agg_fairseq.data.subwords import FILES, Tokenizer
from agg_fairseq.errors import UserError

from ..data.download import sha256
from ..data.prepared_folder import MANIFEST
from .experiment import ROOT, Corpus, Workspace, check_path

DATA = Path("data")
"""Where the programs put prepared folders by default, seen from where the user is."""
_WIKITEXT103 = ("scripts.data.wikitext", "wikitext103")
WIKITEXT103_GPT2 = Corpus("wikitext103-gpt2", _WIKITEXT103, "gpt2", entries=44_256, disk=2e9)
WIKITEXT103_SENTENCEPIECE = Corpus("wikitext103-sentencepiece", _WIKITEXT103, "sentencepiece", entries=30_000, disk=2e9)
WIKITEXT103_WORDS = Corpus("wikitext103-words", _WIKITEXT103, "words", entries=267_744, disk=2e9)
WIKITEXT2_WORDS = Corpus(
    "wikitext2-words", ("scripts.data.wikitext", "wikitext2"), "words", entries=33_280, tokens=2_088_628, disk=4e7
)
WMT14 = Corpus("wmt14_en_de", ("scripts.data.translation",), "moses", parallel=True, entries=40_624, disk=7e9)
DOCUMENTATION = Corpus("demo", ("scripts.data.python_documentation",), "sentencepiece", options=())
"""The text of `tiny`, if there is no --data, and of the demo."""
VOCABULARY, MERGES = 8000, 6000
"""At tiny, the number of sub-words of a corpus, and of merges of a parallel one."""


@dataclass(frozen=True)
class Prepared:
    """A prepared folder."""

    folder: Path
    manifest: dict[str, Any]

    @property
    def identity(self) -> str:
        """What identifies the text and its tokens, wherever the folder is: the SHA-256 of its manifest."""
        return sha256(self.folder / MANIFEST)

    @property
    def binarized(self) -> Path:
        """What fairseq-train reads."""
        return self.folder / "data-bin"

    def reference(self, language: str) -> Path:
        """The plain text of the test split of a parallel corpus."""
        return self.folder / "reference" / f"test.{language}"

    def tokenizer(self) -> Tokenizer:
        """How words of this corpus are split into tokens."""
        kind = self.manifest["bpe"]["kind"]
        return Tokenizer(kind, **{name: self.folder / self.manifest["bpe"][name] for name in FILES.get(kind, ())})


def prepare(workspace: Workspace, corpus: Corpus) -> Prepared:
    """The prepared corpus of a workspace; it is made if it is missing.

    Raises:
        UserError: it cannot be made, it is no prepared corpus, or it has other languages or tokens than expected.
    """
    folder = _folder(workspace, corpus)
    check_path(folder)
    if folder not in workspace.prepared:
        workspace.prepared[folder] = _prepared(workspace, corpus, folder)
    prepared: Prepared = workspace.prepared[folder]
    if workspace.dry:
        return prepared
    if (prepared.binarized / "dict.txt").is_file() == corpus.parallel:
        found, expected = ("one language", "two") if corpus.parallel else ("two languages", "one")
        raise UserError(f"--data: found text of {found} in {prepared.folder}; expected {expected}, for this table")
    tokenizer = prepared.manifest.get("tokenizer")
    if workspace.scale != "tiny" and tokenizer != corpus.tokenizer:
        raise UserError(
            f"--data: found the tokenizer {tokenizer!r} in {prepared.folder}; expected {corpus.tokenizer!r}, for this "
            "table; give the raw corpus, or a folder that was prepared with it"
        )
    return prepared


def _folder(workspace: Workspace, corpus: Corpus) -> Path:
    data, output = workspace.data, workspace.output
    if data is not None and (data / MANIFEST).is_file():
        return data
    if corpus.options is not None:
        return output
    if data is not None:
        # At tiny, all text of one language is cut into the same tokens, so that all tables share it.
        name = corpus.name if corpus.parallel or workspace.scale != "tiny" else "text"
        return output / f"data-{name}-{data.name}"
    if workspace.scale != "tiny":
        return (DATA / corpus.name).absolute()
    if corpus.parallel:
        raise UserError(
            "found no --data; expected a folder of {train,valid,test}.{en,de}, such as Multi30k, for a translation "
            "experiment at --scale tiny"
        )
    return output / "data-demo"


def _prepared(workspace: Workspace, corpus: Corpus, folder: Path) -> Prepared:
    manifest = folder / MANIFEST
    # The program is run each time on raw text of the user: it checks whether that is still the same.
    is_raw = workspace.data is not None or corpus.options is not None
    if workspace.train and folder != workspace.data and (is_raw or not manifest.is_file()):
        program = [*_program(workspace, corpus), "--output", str(folder)]
        words = [sys.executable, str(ROOT / "scripts" / "run.py"), *program]
        if workspace.dry:
            print(shlex.join(["bash", str(ROOT / "scripts" / "start.sh"), *program]))
        elif status := subprocess.run(words, stdout=sys.stderr, check=False).returncode:
            raise UserError(f"{shlex.join(words)} failed (status {status}), see above; mend that and run it again")
    if workspace.dry:
        return Prepared(folder, {})
    if not manifest.is_file():
        raise UserError(f"{folder}: found no prepared corpus there; leave out --show to have it made")
    try:
        found = json.loads(manifest.read_text(encoding="utf-8"))
        kind, *files = found["bpe"].items()
        is_complete = kind[0] == "kind" and all(isinstance(file, str) for _, file in [kind, *files])
        is_complete &= {name for name, _ in files} >= set(FILES.get(kind[1], ()))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        is_complete = False
    if not is_complete:
        raise UserError(
            f"{manifest}: found no manifest of a prepared corpus; expected that of a prepare.sh; run it again"
        )
    return Prepared(folder, found)


def _program(workspace: Workspace, corpus: Corpus) -> list[str]:
    """The program that prepares a corpus, with its options but --output."""
    if corpus.options is None and workspace.data is None and workspace.scale == "tiny":
        corpus = DOCUMENTATION
    if corpus.options is not None:
        options = list(corpus.options)
    elif corpus.parallel:
        options = ["--merges", str(MERGES)] if workspace.scale == "tiny" else []
    elif workspace.scale == "tiny":
        options = ["--tokenizer", "sentencepiece", "--vocabulary", str(VOCABULARY)]
    else:
        options = ["--tokenizer", corpus.tokenizer]
    if workspace.data is not None and corpus.program != DOCUMENTATION.program:
        options += ["--from", str(workspace.data)]
    return [*corpus.program, *options]
