"""WikiText corpora from what people have of them to what fairseq-train reads."""

import contextlib
import json
import shutil

import pytest

from scripts.command import run
from scripts.data import gpt2_bpe, wikitext, wikitext_source
from scripts.data.files import digest
from scripts.data.prepared_folder import SPLITS
from scripts.data.wikitext import prepare
from scripts.data.wikitext_source import tokens_file
from tests.conftest import ROOT, run_command
from tests.hostile import on_a_full_disk
from tests.preparing import binarize_here, binarized
from tests.serving import serving
from tests.wikitext_sample import corpus_of, sample_texts, write_files, write_zip

TEXTS = sample_texts()


@pytest.fixture
def given(tmp_path):
    return write_files(tmp_path / "my files, é", TEXTS)


@pytest.fixture
def here(monkeypatch):
    monkeypatch.setattr(wikitext, "binarize", binarize_here)


def encoded(folder):
    texts = {split: (folder / "encoded" / split).read_text() for split in SPLITS}
    return {split: [line.split() for line in text.split("\n")[:-1]] for split, text in texts.items()}


@pytest.mark.slow
def test_the_script_from_its_first_line(given, tmp_path):
    """Paths are those of where the user is; what is done is not done again; the tokenizer's files are where it says."""
    options = ("--from", given.name, "--tokenizer=sentencepiece", "--vocabulary=150", "--output=-out ü", "--workers=2")
    first = run_command("bash", ROOT / "scripts" / "wikitext2" / "prepare.sh", *options, cwd=tmp_path)
    output = tmp_path / "-out ü"
    visible = {path.name for path in output.iterdir() if not path.name.startswith(".")}
    assert visible == {"data-bin", "encoded", "manifest.json", "settings.json", "text", "tokenizer"}
    manifest = json.loads((output / "manifest.json").read_text())
    assert manifest["bpe"] == {"kind": "sentencepiece", "sentencepiece_model": "tokenizer/sentencepiece.model"}
    assert manifest["corpus"] == "wikitext2" and manifest["tokenizer"] == "sentencepiece" and not manifest["official"]
    assert all(facts["sha256"] == digest(output / name) for name, facts in manifest["files"].items())
    lines = {split: binarized(output, split) for split in SPLITS}
    assert lines == encoded(output)
    assert manifest["tokens"] == {split: sum(len(line) + 1 for line in lines[split]) for split in SPLITS}
    assert first.stderr.count("warning: wiki.") == 3 and f"{manifest['dictionary']:,} entries" in first.stdout


def test_words_of_a_zip(here, tmp_path, capsys):
    """Every line is there, the empty ones too; a complete folder is left alone, also without what it does not need."""
    source, output = write_zip(tmp_path / "given", TEXTS), tmp_path / "out"
    prepare("wikitext2", output, tokenizer="words", source=source)
    train = {word for line in TEXTS["train"].split("\n") for word in line.split()}
    for split in SPLITS:
        expected = [line.split() for line in TEXTS[split].split("\n")[:-1]]
        assert binarized(output, split) == [[one if one in train else "<unk>" for one in line] for line in expected]
    for name in ("text", "encoded"):
        shutil.rmtree(output / name)
    prepare("wikitext2", output, tokenizer="words", source=source)
    assert capsys.readouterr().out.endswith("is complete\n") and not (output / "text").exists()
    prepare("wikitext2", tmp_path / "frequent", tokenizer="words", source=source, vocabulary=20)
    assert json.loads((tmp_path / "frequent" / "manifest.json").read_text())["dictionary"] == 4 + 20


def test_gpt2_of_a_downloaded_text(here, tmp_path, monkeypatch, shared_data):
    archive = write_zip(tmp_path / "a.zip", TEXTS)
    corpus = corpus_of(TEXTS, archive)
    monkeypatch.setitem(wikitext.CORPORA, "wikitext9", corpus)
    options = {"tokenizer": "gpt2", "downloads": tmp_path / "downloads"}
    for name in gpt2_bpe.FILES:
        (tmp_path / "downloads" / "gpt2_bpe").mkdir(parents=True, exist_ok=True)
        shutil.copy(shared_data / "gpt2-bpe" / name, tmp_path / "downloads" / "gpt2_bpe" / name)
    with serving() as server:
        monkeypatch.setattr(wikitext_source, "ZIPS", server.url(""))
        server.files["/wikitext-9-v1.zip"] = archive.read_bytes()
        prepare("wikitext9", tmp_path / "out", **options)
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["official"] and manifest["bpe"] == {
        "kind": "gpt2", "gpt2_encoder_json": "tokenizer/encoder.json", "gpt2_vocab_bpe": "tokenizer/vocab.bpe",
    }  # fmt: skip
    assert encoded(tmp_path / "out")["train"] == binarized(tmp_path / "out", "train")


def test_the_text_is_known_by_its_content(given, tmp_path, monkeypatch, capsys):
    """A copy of it elsewhere is the same, and another text in its place is not."""
    seen = []
    monkeypatch.setattr(wikitext, "prepare_folder", lambda program, folder, settings, *_: seen.append(settings))
    for source in (given, write_files(tmp_path / "copy", TEXTS), None):
        prepare("wikitext2", tmp_path / "out", tokenizer="words", source=source)
    (given / tokens_file("train")).write_text(f"{TEXTS['train']} another end \n", encoding="utf-8")
    prepare("wikitext2", tmp_path / "out", tokenizer="words", source=given)
    assert seen[0] == seen[1] != seen[3] and seen[2]["from"] is None


def test_errors_are_one_line(given, here, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for arguments, room, said in (
        (("--tokenizer", "gpt2", "--vocabulary", "9"), None, "found it with --tokenizer gpt2; expected --token"),
        (("--from", "/nowhere"), None, "--from: found neither a zip at /nowhere nor wiki"),
        (("--from", "my files, é"), 1000, "File too large; correct that and run it again"),
    ):
        with on_a_full_disk(room) if room else contextlib.nullcontext():
            assert run("wikitext", lambda arguments=arguments: wikitext.main(["wikitext2", *arguments])) == 2
        *warnings, error = capsys.readouterr().err.splitlines()
        assert error.startswith("wikitext: error: ") and said in error and bool(warnings) is bool(room)
    assert not (tmp_path / "data" / "wikitext2-words" / "text").exists()
