"""scripts/wmt14_en_de/prepare.sh on real sentences, on archives of WMT's layout, interrupted, and on wrong text."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys

import pytest
from fairseq.data import Dictionary

from agg_fairseq.cli.main import main as agg_fairseq
from scripts.command import run
from scripts.data import translation
from scripts.data.moses import tokenize
from tests.commands import read_result
from tests.conftest import ROOT, run_command
from tests.preparing import binarize_here, binarized, digests
from tests.wmt_archives import sentences as wmt_sentences
from tests.wmt_archives import write_archives

pytestmark = pytest.mark.slow

SPLITS = {"train": 1200, "valid": 60, "test": 80}
"""Sentences of Multi30k that each split here has; the first are more than a process is handed at a time."""
NAMES = [f"{split}.{language}" for split in SPLITS for language in ("en", "de")]
MERGES = 300


@pytest.fixture(scope="module")
def corpus(shared_data, tmp_path_factory):
    """Real sentences in a folder with a name that wants quoting, and one pair among them that is not clean."""
    folder = tmp_path_factory.mktemp("source") / "- größe & x"
    folder.mkdir()
    for name in NAMES:
        lines = (shared_data / "multi30k" / name).read_text(encoding="utf-8").split("\n")[: SPLITS[name.split(".")[0]]]
        if name == "train.de":
            lines[10] = "Ja."
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def prepared(corpus):
    """What the script makes of them, from another folder and with relative paths, by two processes."""
    script = ROOT / "scripts" / "wmt14_en_de" / "prepare.sh"
    options = ("--from", corpus.name, "--output=out put/ü", "--vocabulary", MERGES, "--workers", 2)
    result = run_command("bash", script, *options, cwd=corpus.parent)
    assert result.stdout.startswith("wmt14: out put/ü: ") and "train 1,1" in result.stdout
    return corpus.parent / "out put" / "ü"


@pytest.fixture
def here(monkeypatch):
    monkeypatch.setattr(translation, "binarize", binarize_here)


def prepare(*arguments):
    return run("wmt14", lambda: translation.main(["--workers", "1", *map(str, arguments)]))


def sentences(prepared, name):
    """The sentences of data-bin, as fairseq gives them to a model, as text."""
    split, language = name.split(".")
    lines = binarized(prepared, f"{split}.en-de.{language}", f"dict.{language}.txt")
    return [" ".join(line).replace("@@ ", "") for line in lines]


def test_sentences_of_data_bin(corpus, prepared):
    """Training pairs are filtered in their order: that of `Ja.` is gone. Of the others, the reference is whole."""
    plain = {name: (corpus / name).read_text(encoding="utf-8").splitlines() for name in NAMES}
    english, german = (sentences(prepared, f"train.{language}") for language in ("en", "de"))
    assert len(english) == len(german) < SPLITS["train"] and "Ja ." not in german
    tokens = iter(zip(*(tokenize(one, plain[f"train.{one}"]) for one in ("en", "de")), strict=True))
    assert all(any(pair == other for other in tokens) for pair in zip(english, german, strict=True))
    for name in NAMES[2:]:
        split, language = name.split(".")
        reference = (prepared / "reference" / name).read_text(encoding="utf-8")
        assert reference == "".join(f"{line.strip()}\n" for line in plain[name])
        pairs = list(zip(sentences(prepared, name), tokenize(language, plain[name], split != "test"), strict=True))
        known = [pair for pair in pairs if "<unk>" not in pair[0]]
        assert all(one == other for one, other in known) and len(known) > 0.9 * len(pairs)


def test_manifest_and_dictionary(prepared):
    manifest = json.loads((prepared / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["corpus"] == "- größe & x" and manifest["tokenizer"] == "moses" and not manifest["official"]
    english, german = ((prepared / "data-bin" / f"dict.{language}.txt").read_bytes() for language in ("en", "de"))
    dictionary = Dictionary.load(str(prepared / "data-bin" / "dict.de.txt"))
    assert english == german and manifest["dictionary"] == len(dictionary)
    kept = manifest["files"]["text/train.de"]["lines"]
    assert manifest["pairs"]["train"] == {"found": SPLITS["train"], "kept": kept} and kept < SPLITS["train"]
    assert manifest["pairs"]["test"] == {"found": 80, "kept": 80}
    assert (prepared / manifest["bpe"]["bpe_codes"]).is_file()


def test_bleu_of_the_test_set(prepared, tmp_path):
    """fairseq-generate would print the tokens of data-bin: put in its log as a translation, they score next to 100."""
    log = tmp_path / "log"
    lines = enumerate(sentences(prepared, "test.de"))
    log.write_text("".join(f"T-{n}\t{line}\nH-{n}\t-0.5\t{line}\nD-{n}\t-0.5\t{line}\n" for n, line in lines))
    reference = prepared / "reference" / "test.de"
    options = ("--reference", reference, "--moses", "de", "--json", tmp_path / "scores")
    assert not agg_fairseq(["bleu", *map(str, (log, *options))])
    row = read_result(tmp_path / "scores")["log"]
    assert row["bleu"] == pytest.approx(100) and row["sacrebleu"] > 98


def test_killed_and_run_again_by_another_number_of_processes(corpus, prepared, tmp_path, here):
    """What a killed run has half made is not taken for done; the files are the same in the end."""
    options = ["--from", corpus, "--output", tmp_path / "out", "--vocabulary", str(MERGES)]
    command = [sys.executable, "-m", "scripts.data.translation", *options, "--workers", "1"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        while "tokenized" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGKILL)
    assert (tmp_path / "out" / "plain").exists() and not (tmp_path / "out" / "tokenized").exists()
    assert prepare(*options) == 0
    parts = ("plain", "tokenized", "tokenizer", "text", "reference", "data-bin")
    assert digests(tmp_path / "out", *parts) == digests(prepared, *parts)


def test_validation_from_the_training_pairs(corpus, tmp_path, here, capsys):
    """Every 100th pair of train is valid, cleaned like the others, and the given validation split is not used."""
    options = ("--from", corpus, "--output", tmp_path / "out", "--vocabulary", 50)
    assert prepare(*options, "--validation", "train") == 0
    whole = (corpus / "train.en").read_text(encoding="utf-8").splitlines()
    plain = [(tmp_path / "out" / "plain" / f"{split}.en").read_text().splitlines() for split in ("train", "valid")]
    assert plain[1] == whole[99::100] and plain[0] == [line for number, line in enumerate(whole, 1) if number % 100]
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["validation"] == "train" and manifest["pairs"]["valid"]["found"] == 12
    assert not (tmp_path / "out" / "reference" / "valid.de").exists()
    assert prepare(*options) == 2 and "other settings ({'validation'" in capsys.readouterr().err


def test_preparation_with_sentencepiece(corpus, tmp_path, here):
    """On plain text, and all pairs are kept."""
    options = ("--tokenizer", "sentencepiece", "--vocabulary", 300)
    assert prepare("--from", corpus, "--output", tmp_path / "out", *options) == 0
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["bpe"] == {"kind": "sentencepiece", "sentencepiece_model": "tokenizer/sentencepiece.model"}
    assert manifest["pairs"]["train"] == {"found": SPLITS["train"], "kept": SPLITS["train"]}
    assert len(binarized(tmp_path / "out", "test.en-de.de", "dict.de.txt")) == SPLITS["test"]


@pytest.mark.parametrize(
    ("files", "options", "said"),
    [
        ({"train.de": b"eins\nzwei\n"}, (), "train.de: found another number of lines than in .*train.en; expected as"),
        ({"valid.en": b""}, (), "valid.de: found another number of lines"),
        ({"test.de": b"Gr\xfc\xdfe\n"}, (), "test.de: found bytes that are not UTF-8"),
        (
            dict.fromkeys(("train.en", "train.de"), b"a b\n" * 99), ("--validation", "train"),
            "--validation train: found 99 training pairs; expected at least 100",
        ),
    ],
)  # fmt: skip
def test_wrong_text_and_options(corpus, files, options, said, tmp_path, capsys):
    source, output = shutil.copytree(corpus, tmp_path / "source"), tmp_path / "out"
    for name, content in files.items():
        (source / name).unlink()
        (source / name).write_bytes(content)
    assert prepare("--from", source, "--output", output, *options) == 2
    (error,) = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    assert re.search(f"error: .*{said}", error) and not (output / "plain").exists()


def test_archives_of_wmt(tmp_path, here):
    archives = write_archives(tmp_path / "archives")
    assert prepare("--from", archives, "--output", tmp_path / "out", "--vocabulary", 20) == 0
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["corpus"] == "wmt14_en_de" and manifest["official"] is False
    for name in NAMES:
        lines = (tmp_path / "out" / "plain" / name).read_text(encoding="utf-8").splitlines()
        assert lines == wmt_sentences(*name.split("."))
