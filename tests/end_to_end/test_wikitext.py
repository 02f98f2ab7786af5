"""Corpora for language models, from what people have of them to what fairseq-train reads."""

import json
import re
import shutil

import pytest

from tests.conftest import ROOT, run_command
from tests.preparing import binarized, prepare, refused
from tests.wikitext_sample import sample_texts, write_files, write_parquet, write_zip

TEXTS = sample_texts()
SPLITS = tuple(TEXTS)


def read_bpe(folder):
    return json.loads((folder / "manifest.json").read_text())["bpe"]


@pytest.mark.parametrize("write", [write_zip, write_parquet])
def test_every_form_gives_the_same_text(tmp_path, write):
    write(tmp_path / "given", TEXTS)
    first = prepare("wikitext2", "--from", "given", "--output=out", cwd=tmp_path)
    assert first.stderr.count("is not that of wikitext-2-v1") == 3
    assert "--only-source" in first.stdout
    for split, text in TEXTS.items():
        assert (tmp_path / "out" / "text" / split).read_bytes().decode() == text
        encoded = (tmp_path / "out" / "encoded" / split).read_text().split("\n")
        for line, expected in zip(encoded, text.split("\n"), strict=True):
            assert line == " ".join(expected.split())
    assert read_bpe(tmp_path / "out") == {"kind": "words"}


def test_what_is_not_the_corpus_is_named(tmp_path):
    raw = {split: text.replace("<unk>", "Senjō") for split, text in TEXTS.items()}
    write_files(tmp_path / "raw-folder", raw)
    archive = write_zip(tmp_path / "raw.zip", raw, "raw").read_bytes()
    (tmp_path / "damaged.zip").write_bytes(archive[:-30])
    for option, value, said in (
        ("--from", "raw-folder", "found no <unk>, as in the raw version"),
        ("--from", "raw.zip", "raw.zip: found no wiki.train.tokens and no train-*.parquet; expect"),
        ("--from", "damaged.zip", "damaged.zip: found no archive that can be unpacked"),
        ("--from", "my files, é", "my files, é'; expected letters, digits and /._+=- only"),
        ("--lines", "few", "--vocabulary, --lines: expected whole numbers"),
        ("--form", "x", "found --form; expected --from --lines --tokenizer"),
    ):
        error = refused("wikitext2", "--output=out", option, value, cwd=tmp_path)
        assert error.startswith("prepare: error: ") and said in error, error
        assert not (tmp_path / "out" / "text").exists()
        shutil.rmtree(tmp_path / "out", ignore_errors=True)


def test_the_text_is_known_by_its_content(tmp_path):
    """A copy of it elsewhere is the same, and another text in its place is not. A complete folder is
    left alone, also without what it does not need."""
    given = write_files(tmp_path / "given", TEXTS)
    write_files(tmp_path / "copy", TEXTS)
    prepare("wikitext2", "--from", "given", "--output=out", cwd=tmp_path)
    shutil.rmtree(tmp_path / "out" / "text")
    again = prepare("wikitext2", "--from", "copy", "--output=out", cwd=tmp_path)
    assert again.stderr.endswith("is complete\n")
    (given / "wiki.train.tokens").write_text(f"{TEXTS['train']} another end \n", encoding="utf-8")
    assert "other settings" in refused("wikitext2", "--from", "given", "--output=out", cwd=tmp_path)


def test_wikitext_2_is_the_published_one(shared_data, tmp_path):
    """Of the copy at hand, the articles of the training part are in another order. The other parts
    have 60 articles each, by the script of F²-Softmax's Table 5."""
    options = ("--from", str(shared_data / "wikitext-2"), "--output=out")
    told = prepare("wikitext2", *options, cwd=tmp_path).stderr
    assert told.count("warning") == 1
    assert "warning: wiki.train.tokens is not that of wikitext-2-v1\n" in told
    script = (ROOT / "scripts/wikitext103/f2-tables-1-2.sh").read_text()
    program = re.search("^headings='(.*)'$", script, re.MULTILINE)[1]
    for split in ("valid", "test"):
        assert run_command("awk", program, tmp_path / "out" / "text" / split).stdout == "60\n"


@pytest.mark.slow
def test_a_text_and_another_one_in_its_tokens(tmp_path):
    write_files(tmp_path / "given", TEXTS)
    options = ("--tokenizer=sentencepiece", "--vocabulary=150", "--output=old")
    first = prepare("wikitext2", "--from", "given", *options, cwd=tmp_path, whole=True)
    for split in SPLITS:
        lines = binarized(tmp_path / "old", split)
        text = (tmp_path / "old" / "encoded" / split).read_text()
        for line, expected in zip(lines, text.split("\n")[:-1], strict=True):
            assert line == expected.split()
        tokens = len(text.split()) + len(lines)
        assert f"{split}: {len(lines)} sents, {tokens} tokens" in first.stdout
    (tmp_path / "new").mkdir()
    for split in SPLITS:
        (tmp_path / "new" / split).write_text("role ☃\rplaying\n", encoding="utf-8")
    options = ("--from", "new", "--tokens-of", "old", "--output=same")
    prepare("text", *options, cwd=tmp_path, whole=True)
    for name in ("data-bin/dict.txt", "tokenizer/sentencepiece.model"):
        assert (tmp_path / "old" / name).read_bytes() == (tmp_path / "same" / name).read_bytes()
    (line,) = binarized(tmp_path / "same", "test")
    assert "<unk>" in line and "".join(line).replace("<unk>", "") == "▁role▁playing"
    assert "found no manifest.json there" in refused("text", "--tokens-of", "new", cwd=tmp_path)
