"""scripts/wmt14_en_de/prepare.sh on sentences, on archives of WMT's layout, and on wrong
text."""

import io
import json
import shutil
import tarfile
from itertools import zip_longest

import pytest

from scripts.data.encode import encode
from tests.conftest import read_lines, sentence_pairs, write_lines
from tests.preparing import binarized, prepare, refused

SPLITS = {"train": 1200, "valid": 60, "test": 80}
"""Sentences that each split has; the first are more than a process is handed at a
time."""
NAMES = [f"{split}.{language}" for split in SPLITS for language in ("en", "de")]
EUROPARL, COMMON_CRAWL, NEWS_COMMENTARY, DEV, TEST = (
    "training-parallel-europarl-v7.tgz", "training-parallel-commoncrawl.tgz", "training-parallel-nc-v9.tgz", "dev.tgz",
    "test-full.tgz",
)  # fmt: skip
SGM = '<doc><seg id="1">{0} &amp; {0}</seg>\n<seg id="2">{0}</seg></doc>\n'
MEMBERS = {
    EUROPARL: {
        "training/europarl-v7.cs-en.{0}": "wrong\n",
        "training/europarl-v7.de-en.{0}": "{0} word\n{0} words\n",
    },
    COMMON_CRAWL: {"commoncrawl.de-en.{0}": "{0} crawl\n"},
    NEWS_COMMENTARY: {"training/news-commentary-v9.de-en.{0}": "{0} news\n"},
    DEV: {"dev/newstest2012-{1}.{0}.sgm": SGM, "dev/newstest2013.{0}": "{0} dev\n"},
    TEST: {
        "test-full/newstest2014-csen-{1}.{0}.sgm": "wrong",
        "test-full/newstest2014-deen-{1}.{0}.sgm": SGM,
    },
}
"""The files of each; `{0}` is the language, and `{1}` whether it is the source or the reference."""
TEXTS = {
    "train": ["{0} word", "{0} words", "{0} crawl", "{0} news"],
    "valid": ["{0} & {0}", "{0}", "{0} dev"],
    "test": ["{0} & {0}", "{0}"],
}
"""The sentences of each split in them."""


@pytest.fixture
def archives(tmp_path):
    folder = tmp_path / "archives"
    folder.mkdir()
    for name, members in MEMBERS.items():
        with tarfile.open(folder / name, "w:gz") as file:
            for member, text in members.items():
                for language, side in (("en", "src"), ("de", "ref")):
                    content = text.format(language).encode()
                    info = tarfile.TarInfo(member.format(language, side))
                    info.size = len(content)
                    file.addfile(info, io.BytesIO(content))
    return folder


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


def sentences_of(prepared, name):
    split, language = name.split(".")
    lines = binarized(prepared, f"{split}.en-de.{language}", f"dict.{language}.txt")
    return [" ".join(line).replace("@@ ", "") for line in lines]


@pytest.mark.slow
def test_sentences_of_data_bin(corpus, prepared):
    """Training pairs are filtered in their order: that of `Ja.` is gone. Of the others, the
    reference is whole."""
    plain = {name: read_lines(corpus / name) for name in NAMES}
    pairs = zip(*(encode("moses", of, plain[f"train.{of}"]) for of in ("en", "de")), strict=True)
    for kept in zip(*(sentences_of(prepared, f"train.{of}") for of in ("en", "de")), strict=True):
        assert kept in pairs and kept[1] != "Ja ."  # goes on behind the last pair that was found
    for name in NAMES[2:]:
        split, language = name.split(".")
        reference = (prepared / "reference" / name).read_text(encoding="utf-8")
        assert reference == "".join(f"{line.strip()}\n" for line in plain[name])
        kind, known = "moses-as-it-is" if split == "test" else "moses", 0
        lines = encode(kind, language, plain[name])
        for found, expected in zip(sentences_of(prepared, name), lines, strict=True):
            if "<unk>" not in found:
                assert found == expected
                known += 1
        assert known > 0.9 * len(plain[name])
    english, german = (prepared / "data-bin" / f"dict.{one}.txt" for one in ("en", "de"))
    assert english.read_bytes() == german.read_bytes()
    manifest = json.loads((prepared / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["corpus"] == "some" and manifest["tokenizer"] == "moses"


def test_validation_from_the_training_pairs(corpus, tmp_path):
    """Every 100th pair of train is valid, cleaned like the others, and the given validation split
    is not used."""
    options = ("--from", str(corpus), "--output=out", "--vocabulary=50")
    prepare("wmt14_en_de", *options, "--validation", "train", cwd=tmp_path)
    whole = read_lines(corpus / "train.en")
    plain = [read_lines(tmp_path / "out" / "plain" / f"{split}.en") for split in ("train", "valid")]
    assert plain[1] == whole[99::100]
    assert plain[0] == [line for number, line in enumerate(whole, 1) if number % 100]
    assert not (tmp_path / "out" / "reference" / "valid.de").exists()
    assert "other settings: tokenizer=moses validation=train" in refused(
        "wmt14_en_de", *options, cwd=tmp_path
    )


def test_pairs_are_kept_from_1_to_250_tokens_and_at_most_one_and_a_half_times_the_other_side(
    tmp_path,
):
    """Both ends included; a letter is a token."""
    clean = [(1, 1), (250, 250), (2, 3), (100, 150), (167, 250)]
    unclean = [(0, 1), (0, 0), (250, 251), (2, 4), (100, 151), (166, 250)]
    pairs = [pair[::step] for pair in (*clean, *unclean) for step in (1, -1)]
    (tmp_path / "source").mkdir()
    for name in NAMES:
        lines = [" ".join("ab"[name.endswith("de")] * pair[name.endswith("de")]) for pair in pairs]
        write_lines(tmp_path / "source" / name, [*lines, "aa bb aa bb"])
    prepare("wmt14_en_de", "--from", "source", "--output", "out", "--vocabulary", "1", cwd=tmp_path)
    kept = [read_lines(tmp_path / "out" / "text" / f"train.{one}")[:-1] for one in ("en", "de")]
    lengths = [tuple(len(line.split()) for line in pair) for pair in zip_longest(*kept)]
    assert lengths == [pair[::step] for pair in clean for step in (1, -1)]


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


def test_archives_of_wmt(archives, tmp_path):
    """Those of another digest are taken with a warning, if they are given."""
    options = ("--from", "archives", "--output", "out", "--vocabulary", "20")
    printed = prepare("wmt14_en_de", *options, cwd=tmp_path).stderr
    assert printed.count("is not WMT's") == 5
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["corpus"] == "wmt14_en_de"
    for name in NAMES:
        split, language = name.split(".")
        expected = [line.format(language) for line in TEXTS[split]]
        assert read_lines(tmp_path / "out" / "plain" / name) == expected


def test_wrong_text_and_options(corpus, archives, tmp_path):
    (archives / EUROPARL).unlink()
    short = dict.fromkeys(("train.en", "train.de"), b"a b\n" * 99)
    for files, options, said in (
        ({"train.de": b"eins\nzwei\n"}, (), "train: found 1200 and 2 sentences; expected as many"),
        ({"test.de": b"Gr\xfc\xdfe\n"}, (), "test.de: unreadable"),
        (short, ("--validation", "train"), "valid: found 0 and 0 sentences"),
        ({}, ("--from", "archives"), f"nor {EUROPARL}"),
    ):
        source = shutil.copytree(corpus, tmp_path / "source")
        for name, content in files.items():
            (source / name).write_bytes(content)
        given = ("--from", "source", "--output=out", *options)
        assert said in refused("wmt14_en_de", *given, cwd=tmp_path)
        shutil.rmtree(source)
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
