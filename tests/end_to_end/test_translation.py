"""scripts/wmt14_en_de/prepare.sh on sentences, on archives of WMT's layout, and on wrong
text."""

import json
import shutil

import pytest

from scripts.data.encode import encode
from tests.conftest import read_lines, sentence_pairs, write_lines
from tests.preparing import binarized, prepare, refused

SPLITS = {"train": 1200, "valid": 60, "test": 80}
"""Sentences that each split has; the first are more than a process is handed at a
time."""
NAMES = [f"{split}.{language}" for split in SPLITS for language in ("en", "de")]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Sentences, and a pair among them that is not clean."""
    folder = tmp_path_factory.mktemp("translation") / "some"
    folder.mkdir()
    for language, lines in zip(("en", "de"), sentence_pairs(sum(SPLITS.values())), strict=True):
        if language == "de":
            lines[10] = "Ja."
        for split, count in SPLITS.items():
            write_lines(folder / f"{split}.{language}", lines[:count])
            lines = lines[count:]
    return folder


@pytest.fixture(scope="module")
def prepared(corpus):
    """What the script makes of them, from another folder and with relative paths, by two
    processes."""
    options = ("--from", corpus.name, "--output=out", "--vocabulary", "300", "--workers", "2")
    printed = prepare("wmt14_en_de", *options, cwd=corpus.parent, whole=True).stderr
    kept = len(read_lines(corpus.parent / "out" / "text" / "train.de"))
    assert f"; {kept} of 1200 pairs kept" in printed and 1100 < kept < 1200
    return corpus.parent / "out"


def read_sentences(prepared, name):
    split, language = name.split(".")
    lines = binarized(prepared, f"{split}.en-de.{language}", f"dict.{language}.txt")
    return [" ".join(line).replace("@@ ", "") for line in lines]


@pytest.mark.slow
def test_sentences_of_data_bin(corpus, prepared):
    plain = {name: read_lines(corpus / name) for name in NAMES}
    pairs = zip(*(encode("moses", of, plain[f"train.{of}"]) for of in ("en", "de")), strict=True)
    for kept in zip(*(read_sentences(prepared, f"train.{of}") for of in ("en", "de")), strict=True):
        assert kept in pairs and kept[1] != "Ja ."  # goes on behind the last pair that was found
    for name in NAMES[2:]:
        split, language = name.split(".")
        reference = (prepared / "reference" / name).read_text(encoding="utf-8")
        assert reference == "".join(f"{line.strip()}\n" for line in plain[name])
        kind, known = "moses-as-it-is" if split == "test" else "moses", 0
        lines = encode(kind, language, plain[name])
        for found, expected in zip(read_sentences(prepared, name), lines, strict=True):
            if "<unk>" not in found:
                assert found == expected
                known += 1
        assert known > 0.9 * len(plain[name])
    english, german = (prepared / "data-bin" / f"dict.{one}.txt" for one in ("en", "de"))
    assert english.read_bytes() == german.read_bytes()
    manifest = json.loads((prepared / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["corpus"] == "some" and manifest["tokenizer"] == "moses"


@pytest.mark.slow
def test_validation_from_the_training_pairs(corpus, tmp_path):
    """Every 100th pair of train is valid, cleaned like the others, and the given validation split
    is not used."""
    options, out = ("--from", str(corpus), "--output=out", "--vocabulary=50"), tmp_path / "out"
    prepare("wmt14_en_de", *options, "--validation", "train", cwd=tmp_path)
    whole = read_lines(corpus / "train.en")
    assert read_lines(out / "plain" / "valid.en") == whole[99::100]
    del whole[99::100]
    assert read_lines(out / "plain" / "train.en") == whole
    assert not (out / "reference" / "valid.de").exists()


@pytest.mark.slow
def test_training_pairs_are_kept_by_their_lengths(tmp_path):
    """From 1 to 250 tokens and up to one and a half times those of the other side, both ends
    included; a letter is a token."""
    clean = [(1, 1), (250, 250), (2, 3), (100, 150), (167, 250), (3, 2), (150, 100), (250, 167)]
    unclean = [(0, 1), (250, 251), (2, 4), (100, 151), (166, 250), (1, 0), (4, 2), (250, 166)]
    (tmp_path / "source").mkdir()
    for name in NAMES:
        side = name.endswith("de")
        lines = [" ".join("ab"[side] * pair[side]) for pair in clean + unclean]
        write_lines(tmp_path / "source" / name, [*lines, "aa bb aa bb"])
    prepare("wmt14_en_de", "--from", "source", "--output", "out", "--vocabulary", "1", cwd=tmp_path)
    english, german = (read_lines(tmp_path / "out" / "text" / f"train.{of}") for of in ("en", "de"))
    for pair, one, other in zip(clean, english[:-1], german[:-1], strict=True):
        assert (len(one.split()), len(other.split())) == pair


@pytest.mark.slow
def test_preparation_with_sentencepiece(corpus, tmp_path):
    options = ("--tokenizer", "sentencepiece", "--vocabulary", "300")
    prepare("wmt14_en_de", "--from", str(corpus), "--output", "out", *options, cwd=tmp_path)
    french = shutil.copytree(corpus, tmp_path / "french")
    for path in french.glob("*.de"):
        path.rename(path.with_suffix(".fr"))
    options = ("--from", "french", "--output", "other", *options)
    said = prepare("wmt14_en_de", *options, "--target", "fr", cwd=tmp_path).stdout
    assert "--source-lang en --target-lang fr" in said
    german = tmp_path / "out" / "text" / "train.de"
    assert german.read_bytes() == (tmp_path / "other" / "text" / "train.fr").read_bytes()
    assert len(read_lines(german)) == SPLITS["train"]
    assert "found no train.it" in refused("wmt14_en_de", *options, "--source", "it", cwd=tmp_path)
    bpe = json.loads((tmp_path / "out" / "manifest.json").read_text(encoding="utf-8"))["bpe"]
    model = "tokenizer/sentencepiece.model"
    assert bpe == {"kind": "sentencepiece", "sentencepiece_model": model}


def test_wrong_text_and_options(corpus, tmp_path):
    (tmp_path / "empty").mkdir()
    short = dict.fromkeys(("train.en", "train.de"), b"a b\n" * 99)
    for files, options, said in (
        ({"train.de": b"eins\nzwei\n"}, (), "train: found 1200 and 2 sentences"),
        ({"test.de": b"Gr\xfc\xdfe\n"}, (), "test.de: unreadable"),
        (short, ("--validation", "train"), "valid: found 0 and 0 sentences"),
        ({}, ("--from", "empty"), "nor training-parallel-europarl-v7.tgz"),
    ):
        source = shutil.copytree(corpus, tmp_path / "source")
        for name, content in files.items():
            (source / name).write_bytes(content)
        given = ("--from", "source", "--output=out", *options)
        assert said in refused("wmt14_en_de", *given, cwd=tmp_path)
        shutil.rmtree(source)
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
