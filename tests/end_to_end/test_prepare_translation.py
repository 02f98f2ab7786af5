"""scripts/wmt14_en_de/prepare.sh on real sentences, on archives of WMT's layout, interrupted, and on wrong text."""

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys

import pytest
from fairseq.data import Dictionary, data_utils

from agg_fairseq.data.subwords import Tokenizer
from scripts.data.translation import tokenize
from tests.conftest import ROOT, run_command
from tests.wmt_archives import sentences as wmt_sentences
from tests.wmt_archives import write_archives

pytestmark = pytest.mark.slow  # command lines: processes of their own

SPLITS = {"train": 700, "valid": 60, "test": 80}
"""Sentences of Multi30k that each split here has."""
NAMES = [f"{split}.{language}" for split in SPLITS for language in ("en", "de")]
PREPARE = ["bash", ROOT / "scripts" / "wmt14_en_de" / "prepare.sh"]
MODULE = [sys.executable, "-m", "scripts.data.translation", "--workers", "2"]
"""What the script calls, without its look at the environment."""


def prepare(*arguments, check=True, cwd=ROOT):
    environment = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return run_command(*MODULE, *arguments, check=check, cwd=cwd, env=environment)


def error(*arguments, **options):
    """The one line that a command fails with."""
    result = prepare(*arguments, check=False, **options)
    lines = [line for line in result.stderr.splitlines() if "error" in line]
    assert result.returncode == 2 and len(lines) == 1 and "Traceback" not in result.stderr, result.stderr
    return lines[0]


def digests(folder):
    """What is in a prepared folder, by file, but for settings and logs."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in ("settings.json", "preprocess.log", ".lock", "manifest.json")
    }


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
    """What the script makes of them, from another folder and with relative paths."""
    result = run_command(
        *PREPARE, "--from", corpus.name, "--output=out put/ü", "--merges", 500, "--workers", 2, cwd=corpus.parent
    )
    output = corpus.parent / "out put" / "ü"
    assert result.stdout.startswith("wmt14: out put/ü: ") and "train 6" in result.stdout
    return output


def sentences(prepared, split, language):
    """The sentences of data-bin, as fairseq gives them to a model, as text."""
    dictionary = Dictionary.load(str(prepared / "data-bin" / f"dict.{language}.txt"))
    data = data_utils.load_indexed_dataset(str(prepared / "data-bin" / f"{split}.en-de.{language}"), dictionary)
    return [dictionary.string(data[index], bpe_symbol="subword_nmt") for index in range(len(data))]


def test_reference_is_of_the_sentences_of_data_bin(corpus, prepared):
    """Same number, same order; nothing was cleaned away, and nothing is unknown but what training has not."""
    for split in ("valid", "test"):
        for language in ("en", "de"):
            plain = (corpus / f"{split}.{language}").read_text(encoding="utf-8")
            reference = (prepared / "reference" / f"{split}.{language}").read_text(encoding="utf-8")
            assert reference == "".join(f"{line.strip()}\n" for line in plain.splitlines())
            binarized = sentences(prepared, split, language)
            tokens = tokenize(language, plain.splitlines())
            assert len(binarized) == SPLITS[split]
            known = [pair for pair in zip(binarized, tokens, strict=True) if "<unk>" not in pair[0]]
            assert all(one == other for one, other in known) and len(known) > 0.9 * len(tokens)


def test_training_part_is_cleaned(corpus, prepared):
    """As a filter of both sides that keeps the order: the pair of `Ja.` is gone."""
    english, german = (sentences(prepared, "train", language) for language in ("en", "de"))
    assert len(english) == len(german) < SPLITS["train"] and "Ja ." not in german
    tokens = [
        tokenize(language, (corpus / f"train.{language}").read_text(encoding="utf-8").splitlines())
        for language in ("en", "de")
    ]
    kept = iter(zip(*tokens, strict=True))
    assert all(pair in kept for pair in zip(english, german, strict=True))


def test_manifest(prepared):
    manifest = json.loads((prepared / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["corpus"] == "- größe & x" and manifest["tokenizer"] == "moses"
    dictionary = Dictionary.load(str(prepared / "data-bin" / "dict.de.txt"))
    assert manifest["dictionary"] == len(dictionary)
    train = manifest["pairs"]["train"]
    assert train == {"found": 700, "kept": manifest["files"]["text/train.de"]["lines"]} and train["kept"] < 700
    assert manifest["pairs"]["test"] == {"found": 80, "kept": 80}
    for name, found in manifest["files"].items():
        content = (prepared / name).read_bytes()
        assert found == {"lines": content.count(b"\n"), "sha256": hashlib.sha256(content).hexdigest()}
    bpe = manifest["bpe"]
    split = Tokenizer(bpe["kind"], bpe_codes=prepared / bpe["bpe_codes"]).splitter(dictionary)
    assert split("Mann") == ["Mann"]


def test_one_dictionary_for_both_languages(prepared):
    english, german = ((prepared / "data-bin" / f"dict.{language}.txt").read_bytes() for language in ("en", "de"))
    assert english == german


def test_bleu_of_the_test_set(prepared, tmp_path):
    """fairseq-generate would print the tokens of data-bin: put in its log as a translation, they score next to 100."""
    log = tmp_path / "log"
    lines = sentences(prepared, "test", "de")
    log.write_text(
        "".join(
            f"T-{index}\t{line}\nH-{index}\t-0.5\t{line}\nD-{index}\t-0.5\t{line}\n" for index, line in enumerate(lines)
        )
    )
    reference = prepared / "reference" / "test.de"
    run_command("agg-fairseq", "bleu", log, "--reference", reference, "--moses", "de", "--json", tmp_path / "scores")
    found = json.loads((tmp_path / "scores").read_text())["files"][0]
    assert found["bleu"]["score"] == pytest.approx(100) and found["sacrebleu"]["score"] > 98


def test_again(corpus, prepared):
    """What is complete is left as it is, also where what it was made of on the way is gone."""
    shutil.rmtree(prepared / "tokenized")
    before = {path: path.stat().st_mtime_ns for path in prepared.rglob("*")}
    again = prepare("--from", corpus, "--output", prepared, "--merges", 500)
    assert again.stdout == f"wmt14: {prepared} is complete\n"
    assert {path: path.stat().st_mtime_ns for path in prepared.rglob("*")} == before
    assert "other settings ({'merges': 500})" in error("--from", corpus, "--output", prepared, "--merges", 501)


def test_interrupted_and_run_again(corpus, prepared, tmp_path):
    """Killed in the middle of a stage: that is not taken for done, and the next run ends with the same files."""
    options = ["--from", corpus, "--output", tmp_path / "out", "--merges", "500"]
    with subprocess.Popen(
        [*MODULE, *options], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE, text=True
    ) as process:
        while "tokenized" not in process.stderr.readline():
            pass
        process.send_signal(signal.SIGKILL)
    assert (tmp_path / "out" / "plain").exists() and not (tmp_path / "out" / "tokenized").exists()
    (tmp_path / "out" / ".tokenized.partial").mkdir(exist_ok=True)
    (tmp_path / "out" / ".tokenized.partial" / "train.en").write_text("half")
    plain = (tmp_path / "out" / "plain").stat().st_mtime_ns
    prepare(*options)
    assert (tmp_path / "out" / "plain").stat().st_mtime_ns == plain
    found = digests(tmp_path / "out")
    assert {name: found[name] for name in digests(prepared)} == digests(prepared)


def test_full_disk(corpus, tmp_path):
    """Where no file may be larger than 16 kB: one line, and no more than the stages before it."""
    command = 'ulimit -f 16; exec "$@"'
    options = ["--from", corpus, "--output", tmp_path / "out"]
    result = run_command("bash", "-c", command, "bash", *MODULE, *options, check=False, env={"PYTHONPATH": str(ROOT)})
    error = f"wmt14: error: {tmp_path}/out/.plain.partial/train.en: File too large; mend that and run it again"
    assert result.returncode == 2 and result.stderr.splitlines()[-1] == error
    assert [path.name for path in (tmp_path / "out").iterdir() if not path.name.startswith(".")] == []


def test_dry_run_writes_nothing(corpus, tmp_path):
    result = prepare("--from", corpus, "--dry-run", cwd=tmp_path)
    assert f"read {corpus / 'train.en'}" in result.stdout and "40,000 merges" in result.stdout
    result = prepare("--dry-run", cwd=tmp_path)
    assert (
        "download data/downloads/training-parallel-europarl-v7.tgz (658 MB) from https://www.statmt.org"
        in result.stdout
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("train.de", "eins\nzwei\n", r"found 700 lines, and 2 in .*train.de; expected as many"),
        ("valid.en", "", r"found 0 lines, and 60 in"),
        ("test.de", b"Gr\xfc\xdfe\n", r"test.de, line 1: found bytes that are not UTF-8"),
        ("test.de", None, r"--from: found no test.de in"),
    ],
)
def test_wrong_text(corpus, tmp_path, name, content, said):
    """Told before anything is made of it, and mended by another text."""
    mine = tmp_path / "mine"
    shutil.copytree(corpus, mine)
    (mine / name).unlink()
    if content is not None:
        (mine / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    assert re.search(said, error("--from", mine, "--output", tmp_path / "out"))
    assert not (tmp_path / "out" / "plain").exists()


@pytest.mark.parametrize("option", ["--merges", "--workers"])
@pytest.mark.parametrize("value", ["0", "-1", "x"])
def test_wrong_numbers(tmp_path, option, value):
    assert f"argument {option}: invalid whole number from 1" in error(f"{option}={value}", cwd=tmp_path)


def test_archives_of_wmt(tmp_path):
    """All five, whose warnings say that they are not the real ones; the members' sentences come in WMT's order."""
    archives = write_archives(tmp_path / "archives")
    result = prepare("--from", archives, "--output", tmp_path / "out")
    warnings = [line for line in result.stderr.splitlines() if "warning" in line]
    assert sum("found the SHA-256" in line for line in warnings) == 3
    assert sum("test-full.tgz is not WMT's: found the MD5" in line for line in warnings) == 1
    assert sum("dev.tgz is not WMT's: found the MD5" in line for line in warnings) == 1
    assert sum("found 2 sentences; WMT14 has 3,003" in line for line in warnings) == 2
    assert sum("found 1 sentences; WMT14 has 3,000" in line for line in warnings) == 1
    for counts in (
        "2 sentences; WMT14 has 1,920,209",
        "1 sentences; WMT14 has 2,399,123",
        "1 sentences; WMT14 has 201,288",
    ):
        assert sum(counts in line for line in warnings) == 1
    assert len(warnings) == 11
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["corpus"] == "wmt14_en_de" and manifest["official"] is False
    for name in NAMES:
        lines = (tmp_path / "out" / "plain" / name).read_text(encoding="utf-8").splitlines()
        assert lines == wmt_sentences(*name.split("."))


def test_help():
    result = prepare("--help")
    for word in ("--from", "--output", "--downloads", "--merges", "--workers", "--dry-run", "40000", "40,624"):
        assert word in result.stdout
