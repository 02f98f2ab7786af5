"""The corpora that models are trained on, as folders that the programs of `scripts.data` prepare."""

from __future__ import annotations

import contextlib
import importlib
import shlex
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agg_fairseq.data.subwords import TokenizerOptions
from agg_fairseq.errors import UserError
from agg_fairseq.files import read_json_object

from ..command import ROOT
from ..data.files import digest
from ..data.prepared_folder import MANIFEST
from ..data.wikitext_source import tokens_file
from .experiment import SCALES, Corpus, Model, Workspace, check_path

WIKITEXT103 = ("scripts.data.wikitext", "wikitext103")
WIKITEXT103_GPT2 = Corpus("wikitext103-gpt2", WIKITEXT103, "gpt2", entries=44_256, gigabytes=2)
WIKITEXT103_PIECES = Corpus("wikitext103-sentencepiece", WIKITEXT103, "sentencepiece", entries=30_000, gigabytes=2)
WIKITEXT103_WORDS = Corpus("wikitext103-words", WIKITEXT103, "words", entries=267_744, gigabytes=2)
WIKITEXT2_WORDS = Corpus(
    "wikitext2-words", ("scripts.data.wikitext", "wikitext2"), "words", entries=33_280, tokens=2_088_628, gigabytes=0.04
)
WMT14 = Corpus("wmt14_en_de", ("scripts.data.translation",), "moses", parallel=True, entries=40_624, gigabytes=7)
WMT14_AGG = replace(WMT14, name="wmt14_en_de-agg", program=(*WMT14.program, "--validation", "train"))
"""With the validation split of Yu et al. (2022), which is a part of the training pairs."""
DOCUMENTATION = Corpus("demo", ("scripts.data.python_documentation",), "sentencepiece", options=())
"""The text of `tiny`, if there is no --data, and of the demo."""
VOCABULARY, MERGES = 8000, 6000  # at tiny, the number of sub-words of a corpus, and of merges of a parallel one


def translation_model(
    paper: str, corpus: Corpus, config: str, size: str = "base", *, sizes: str | None = None, **options: Any
) -> Model:
    """A model of WMT14 in one of a paper's sizes. Big ones are trained at the published scale alone."""
    name, scales = f"{paper}-{size}-{config}", SCALES if size == "base" else ("paper",)
    return Model(name, f"wmt14_en_de/{config}", corpus, size=f"{sizes or paper}-{size}", scales=scales, **options)


def wikitext_in_words(data: Path | None, vocabulary: int) -> Corpus:
    """A WikiText corpus in its most frequent words, for our own experiments, from its files or a prepared folder."""
    if data is None:
        raise UserError("found no --data; expected the folder of wiki.train.tokens")
    if (data / MANIFEST).is_file():
        return replace(WIKITEXT2_WORDS, options=())
    train = data / tokens_file("train")
    if not train.is_file():
        raise UserError(f"--data: found no {train.name} in '{data}'; expected the WikiText files")
    is_large = train.stat().st_size > 100_000_000  # WikiText-103's has 541 MB, WikiText-2's 11
    corpus = WIKITEXT103_WORDS if is_large else WIKITEXT2_WORDS
    return replace(corpus, options=("--tokenizer", "words", "--vocabulary", str(vocabulary)))


@dataclass(frozen=True)
class Prepared:
    """A prepared folder."""

    folder: Path
    manifest: dict[str, Any]

    @property
    def identity(self) -> str:
        """What identifies the text and its tokens, wherever the folder is: the SHA-256 of its manifest."""
        return digest(self.folder / MANIFEST)

    @property
    def binarized(self) -> Path:
        """What fairseq-train reads."""
        return self.folder / "data-bin"

    def tokenizer(self) -> TokenizerOptions:
        """How words of this corpus are split into tokens."""
        files = dict(self.manifest["bpe"])
        return TokenizerOptions(files.pop("kind"), **{name: self.folder / file for name, file in files.items()})


def prepare(workspace: Workspace, corpus: Corpus) -> Prepared:
    """The prepared corpus of a workspace; it is made if it is missing."""
    if workspace.scale == "tiny" and corpus == WMT14_AGG:
        corpus = WMT14  # one text for all translation tables, with the validation split that it has
    folder = _folder(workspace, corpus)
    check_path(folder)
    if folder not in workspace.prepared:
        workspace.prepared[folder] = _prepared(workspace, corpus, folder)
    prepared: Prepared = workspace.prepared[folder]
    if not workspace.dry:
        _check(workspace, corpus, prepared)
    return prepared


def _check(workspace: Workspace, corpus: Corpus, prepared: Prepared) -> None:
    """Checks that a folder, which the user may have named, has text of the right kind."""
    actual = {"languages": 1 if (prepared.binarized / "dict.txt").is_file() else 2}
    expected = {"languages": 1 + corpus.parallel}
    if workspace.scale != "tiny":  # there, any text of so many languages will do
        facts = prepared.manifest
        actual |= {"tokenizer": facts.get("tokenizer"), "validation": facts.get("validation", "given")}
        expected |= {"tokenizer": corpus.tokenizer, "validation": "train" if corpus == WMT14_AGG else "given"}
    if actual != expected:
        raise UserError(f"--data: found {actual} in {prepared.folder}; expected {expected}, or the raw corpus")


def _folder(workspace: Workspace, corpus: Corpus) -> Path:
    data, output = workspace.data, workspace.output
    if corpus.tokens_of is not None:
        return output / corpus.name
    if data is not None and (data / MANIFEST).is_file():
        return data
    if corpus.options is not None:
        return output
    if data is not None:
        # At tiny, all text of one language is cut into the same tokens, so that all tables share it.
        name = corpus.name if corpus.parallel or workspace.scale != "tiny" else "text"
        return output / f"data-{name}-{data.name}"
    if workspace.scale != "tiny":
        return Path("data", corpus.name).absolute()  # where the programs put it
    if corpus.parallel:
        raise UserError("found no --data; expected a folder of {train,valid,test}.{en,de}, such as Multi30k")
    return output / "data-demo"


def _prepared(workspace: Workspace, corpus: Corpus, folder: Path) -> Prepared:
    manifest = folder / MANIFEST
    # The program is run each time on raw text of the user: it checks whether that is still the same.
    is_raw = workspace.data is not None or corpus.options is not None
    if workspace.train and folder != workspace.data and (is_raw or not manifest.is_file()):
        module, *arguments = [*_program(workspace, corpus), "--output", str(folder)]
        if workspace.dry:
            print(shlex.join(["env", f"PYTHONPATH={ROOT}", sys.executable, "-m", module, *arguments]))
        else:
            with contextlib.redirect_stdout(sys.stderr):
                importlib.import_module(module).main(arguments)
    if workspace.dry:
        return Prepared(folder, {})
    if not manifest.is_file():
        raise UserError(f"{folder}: found no prepared corpus there; leave out --show to have it made")
    contents = read_json_object(manifest, "the manifest of a prepared corpus; run its prepare.sh again")
    if not isinstance(contents.get("bpe"), dict):
        raise UserError(f"{manifest}: found no tokenizer in it; expected that of a prepare.sh; run it again")
    return Prepared(folder, contents)


def _program(workspace: Workspace, corpus: Corpus) -> list[str]:
    if corpus.options is None and workspace.data is None and workspace.scale == "tiny":
        corpus = DOCUMENTATION
    if corpus.options is not None:
        of = [] if corpus.tokens_of is None else ["--of", str(_folder(workspace, corpus.tokens_of))]
        options = [*of, *corpus.options]
    elif corpus.parallel:
        options = ["--vocabulary", str(MERGES)] if workspace.scale == "tiny" else []
    elif workspace.scale == "tiny":
        options = ["--tokenizer", "sentencepiece", "--vocabulary", str(VOCABULARY)]
    else:
        options = ["--tokenizer", corpus.tokenizer]
    if workspace.data is not None and corpus.program != DOCUMENTATION.program and corpus.tokens_of is None:
        options += ["--from", str(workspace.data)]
    return [*corpus.program, *options]
