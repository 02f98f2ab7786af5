"""Parallel corpora: their stages as functions, with either library, by any number of processes; Moses; cleaning."""

import sys

import pytest
import sacremoses

from scripts.data.prepared_folder import stage
from scripts.data.text_files import ParallelText, Text
from scripts.data.translation import SENTENCES, Preparation, _has_published_sentences, is_clean, tokenize
from scripts.data.translation_source import Source, given


def prepared_text(source, output, workers):
    """The folder of sub-words."""
    preparation = Preparation(source, output, merges=300, workers=workers)
    for name, (_, make) in preparation.stages().items():
        if name != "data-bin":
            stage(output / name, preparation.settings(), make)
    return {path.name: path.read_text(encoding="utf-8") for path in (output / "text").iterdir()}


@pytest.fixture(scope="module")
def source(shared_data, tmp_path_factory):
    """2,500 pairs to train on, more than a process is handed at a time."""
    folder = tmp_path_factory.mktemp("source")
    for split, count in {"train": 2500, "valid": 30, "test": 30}.items():
        for language in ("en", "de"):
            lines = (shared_data / "multi30k" / f"{split}.{language}").read_text(encoding="utf-8").split("\n")[:count]
            (folder / f"{split}.{language}").write_text("\n".join(lines), encoding="utf-8")
    return given(folder)


@pytest.fixture(scope="module")
def by_fastbpe(source, tmp_path_factory):
    return prepared_text(source, tmp_path_factory.mktemp("fastbpe"), 1)


@pytest.mark.slow
def test_number_of_processes_makes_no_difference(source, by_fastbpe, tmp_path):
    assert prepared_text(source, tmp_path, 3) == by_fastbpe


def test_without_fastbpe(source, by_fastbpe, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fastBPE", None)
    assert prepared_text(source, tmp_path, 2) == by_fastbpe


def test_only_the_training_part_is_cleaned(by_fastbpe):
    """Both sides of it are as long; validation and test are as long as they were."""
    counts = {name: text.count("\n") for name, text in by_fastbpe.items() if name != "settings.json"}
    assert counts["train.en"] == counts["train.de"] < 2500
    assert [counts[f"{split}.{language}"] for split in ("valid", "test") for language in ("en", "de")] == [30] * 4


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("en", "Don't stop, Mr. Smith!", "Don &apos;t stop , Mr. Smith !"),
        ("de", "Das ist z.B. „gut“ – so-so.", "Das ist z.B. &quot; gut &quot; - so @-@ so ."),
        ("de", "Der Preis: 3.000,50 €", "Der Preis : 3.000,50 €"),
        ("en", "R&D [1] <b> a|b", "R &amp; D &#91; 1 &#93; &lt; b &gt; a &#124; b"),
        ("en", "a\u00adb c\u200bd\ufeff e\x07f", "a b c d e f"),
        ("en", "tab\tand\u00a0spaces\u3000 and\u2028lines\x85end\x1fs", "tab and spaces and lines end s"),
        ("en", "", ""),
        ("en", " \u00a0 ", ""),
    ],
)
def test_tokens_by_hand(language, text, expected):
    assert tokenize(language, [text]) == [expected]


@pytest.mark.parametrize("language", ["en", "de"])
def test_real_text_can_be_told_from_its_tokens(shared_data, language):
    """All but a few sentences of quotes and of punctuation after a space come back as they were."""
    lines = (shared_data / "multi30k" / f"test.{language}").read_text(encoding="utf-8").splitlines()
    tokens = tokenize(language, lines)
    assert all(line == " ".join(line.split()) for line in tokens)
    detokenize = sacremoses.MosesDetokenizer(language).detokenize
    back = [detokenize(line.split()) for line in tokens]
    assert sum(one == other for one, other in zip(back, map(str.strip, lines), strict=True)) > 0.99 * len(lines)


def test_order_and_number_of_lines():
    assert tokenize("de", ["eins.", "", "zwei."]) == ["eins .", "", "zwei ."]


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        (1, 1, True),
        (0, 1, False),
        (1, 0, False),
        (0, 0, False),
        (250, 250, True),
        (251, 250, False),
        (250, 251, False),
        (2, 3, True),
        (3, 2, True),
        (2, 4, False),
        (4, 2, False),
        (100, 150, True),
        (100, 151, False),
        (167, 250, True),
        (166, 250, False),
    ],
)
def test_lengths(source, target, expected):
    """From 1 to 250 tokens, and at most one and a half times those of the other side, both ends included."""
    assert is_clean(" ".join("a" * source), " ".join("b" * target)) is expected


def test_spaces_are_no_tokens():
    assert not is_clean("  ", "a") and is_clean(" a  b ", "a b c")


@pytest.mark.parametrize("missing", [0, 1])
def test_text_with_all_sentences_of_wmt(tmp_path, missing):
    """Each text of the splits is compared with the number that is published of it, here those of a small text."""
    found = {"train": [3, 1], "valid": [2]}
    texts = {}
    for split, counts in found.items():
        texts[split] = []
        for number, lines in enumerate(counts):
            path = tmp_path / f"{split}{number}"
            path.write_text("a sentence\n" * lines)
            published = lines + missing * (split == "valid")
            texts[split].append(ParallelText(Text(path), Text(path), published))
    (tmp_path / "plain").mkdir()
    source = Source("wmt14_en_de", True, {}, [], lambda: texts)
    Preparation(source, tmp_path, merges=1, workers=1).stages()["plain"][1](tmp_path / "plain")
    assert (tmp_path / "plain" / "train.en").read_text() == "a sentence\n" * 4
    assert _has_published_sentences(tmp_path / "plain" / SENTENCES) == (not missing)
    assert not _has_published_sentences(tmp_path / SENTENCES)  # a folder of version 0.1.0 has no such file
