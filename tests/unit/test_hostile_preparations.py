"""Damaged files of tokenizers, of corpora as they are published, and of what the scripts and the cache have written."""

import io
import json
from pathlib import Path
from types import SimpleNamespace

import pyarrow
import pytest
from hypothesis import given
from pyarrow import parquet

from agg_fairseq.data.subwords import Tokenizer
from agg_fairseq.errors import UserError
from agg_fairseq.evaluation import Cache
from agg_fairseq.result import Column, Result
from scripts.data.prepared_folder import is_complete, is_made
from scripts.data.text_files import _decoded, sgm_segments
from scripts.data.wikitext_source import EMPTY_LINE
from scripts.data.wikitext_source import _lines as parquet_lines
from scripts.experiments.corpora import _prepared
from scripts.experiments.training import check_settings, settings_of
from tests.hostile import FEW, MORE, damaged, refusal
from tests.unit.test_subwords import CODES, GPT2_MERGES, GPT2_PIECES, dictionary_of

WORDS = ["low", "lower", "slow", "slower", "x"]
IDS = {piece: 100 + number for number, piece in enumerate(GPT2_PIECES)}
ENCODER = json.dumps(IDS).encode()
MERGES = "\n".join(["#version: 0.2", *GPT2_MERGES, ""]).encode()


def merged(symbols, ranks):
    """Byte-pair encoding to the letter: the pair of the lowest rank is merged wherever it is, until none is left."""
    while pairs := [pair for pair in zip(symbols, symbols[1:], strict=False) if pair in ranks]:
        best, found, place = min(pairs, key=ranks.__getitem__), [], 0
        while place < len(symbols):
            whole = tuple(symbols[place : place + 2]) == best
            found.append(symbols[place] + symbols[place + 1] if whole else symbols[place])
            place += 1 + whole
        symbols = found
    return symbols


def ranks_of(lines):
    """Of a pair that is there twice, the first place counts."""
    ranks = {}
    for rank, line in enumerate(lines):
        ranks.setdefault(tuple(line.split(" ")), rank)
    return ranks


def split_by_gpt2(encoder, merges, folder):
    paths = {"gpt2_encoder_json": folder / "encoder.json", "gpt2_vocab_bpe": folder / "vocab.bpe"}
    for path, content in zip(paths.values(), (encoder, merges), strict=True):
        path.write_bytes(content)
    split = Tokenizer("gpt2", **paths).splitter(dictionary_of(*map(str, IDS.values())))
    return [split(word) for word in WORDS]


def check_gpt2(encoder, merges, found):
    """The ids of the pieces; or none, if they do not spell the word."""
    ids = json.loads(encoder.decode())
    lines = [line for line in merges.decode().replace("\r\n", "\n").split("\n") if not line.startswith("#version")]
    ranks = {tuple(line.split(" ")): rank for rank, line in enumerate(line for line in lines if line)}
    for word, tokens in zip(WORDS, found, strict=True):
        pieces = merged([symbol for symbol in f"Ġ{word}"], ranks)
        assert tokens in ([], [str(ids.get(piece)) for piece in pieces]), (word, tokens, pieces)


def split_by_codes(kind, path):
    split = Tokenizer(kind, bpe_codes=path).splitter(dictionary_of("lo@@", "low@@", "w", "er"))
    return [split(word) for word in WORDS]


def check_subword_nmt(content, found):
    lines = [line.strip("\r\n ") for line in content.decode().split("\n")]
    lines = lines[:-1] if content.endswith(b"\n") else lines
    is_second, has_version = lines[0] == "#version: 0.2", lines[0] in ("#version: 0.1", "#version: 0.2")
    ranks = ranks_of(lines[has_version:])
    for word, tokens in zip(WORDS, found, strict=True):
        symbols = [*word[:-1], f"{word[-1]}</w>"] if is_second else [*word, "</w>"]
        pieces = [piece.removesuffix("</w>") for piece in merged(symbols, ranks)]
        assert tokens == [*(f"{piece}@@" for piece in pieces if piece)][:-1] + [pieces[-1] or pieces[-2]]


def check_spelled(found):
    """What has no ranks that could be read again: the pieces spell the word."""
    for word, tokens in zip(WORDS, found, strict=True):
        assert "".join(token.removesuffix("@@") for token in tokens).replace("▁", "") == word


def sentencepiece_model():
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["low lower lowest slow slower so we were low"] * 20),
        model_writer=model,
        vocab_size=16,
        minloglevel=2,
    )
    return model.getvalue()


def split_by_sentencepiece(path):
    split = Tokenizer("sentencepiece", sentencepiece_model=path).splitter(
        dictionary_of(*"▁lowers", "▁low", "▁", "er", "low", "▁so", "▁we", "es")
    )
    return [split(word) for word in WORDS]


ROWS = ["", " = A title = \n", " a line\n", " caf\u00e9 \u2028 \n", ""] * 3


def written_parquet():
    file = io.BytesIO()
    parquet.write_table(pyarrow.table({"text": ROWS}), file, write_page_checksum=True)
    return file.getvalue()


def check_parquet(found):
    assert found == [row or EMPTY_LINE for row in ROWS]


SGML = b'<doc><seg id="1">a &amp; b</seg>\n<seg id="2">two\nlines &lt;</seg><SEG>c</SEG></doc>\n'


def segments(path):
    return sgm_segments(_decoded(path.read_bytes(), "a file"))


def check_sgml(content, found):
    """By a scan for the tags."""
    text, expected, place = content.decode(), [], 0
    small = text.lower()
    while (start := small.find("<seg", place)) >= 0:
        opened, after = small.find(">", start), small[start + 4 : start + 5]
        if after.isalnum() or after == "_" or opened < 0:
            place = start + 4
            if opened < 0:
                break
            continue
        closed = small.find("</seg>", opened)
        if closed < 0:
            break
        inner = text[opened + 1 : closed]
        for entity, character in (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&apos;", "'"), ("&amp;", "&")):
            inner = inner.replace(entity, character)
        expected.append(" ".join(inner.split()))
        place = closed + 6
    assert found == expected


SETTINGS = {"corpus": "some", "merges": 6, "lines": [1, 2]}
MANIFEST = json.dumps({"settings": SETTINGS, "bpe": {"kind": "words"}, "files": {}}).encode()
WORKSPACE = SimpleNamespace(scale="tiny", seed=1, dry=True, overrides=(), train=False, data=None)
MODEL = SimpleNamespace(config="wikitext103/agg-mle", overrides=("a=1",), scaled={}, corpus=None)


def complete(path):
    (path.parent / "manifest.json").write_bytes(path.read_bytes())
    return is_complete(path.parent, SETTINGS)


def made(path):
    (path.parent / "settings.json").write_bytes(path.read_bytes())
    return is_made(path.parent, SETTINGS)


def trained(path):
    """A folder with a model of the same settings."""
    (path.parent / "settings.json").write_bytes(path.read_bytes())
    (path.parent / "checkpoint_last.pt").touch()
    return check_settings(SimpleNamespace(**vars(WORKSPACE), folder=lambda model: path.parent), MODEL)


def prepared(path):
    (path.parent / "manifest.json").write_bytes(path.read_bytes())
    workspace = SimpleNamespace(**{**vars(WORKSPACE), "dry": False})
    return _prepared(workspace, SimpleNamespace(options=None), path.parent).manifest


def measure(output: Path = Path()) -> Result:
    return Result([Column("a", "nats", 2)], {"x": [1.5], "y": [None]}, "s:1", {"numbers": [1, 2.5, "t", None]})


def kept_result(path):
    cache = Cache(path.parent / "kept")
    if not cache.folder.is_dir():
        cache.result(measure)
    (entry,) = cache.folder.iterdir()
    entry.write_bytes(path.read_bytes())
    return cache.result(measure).to_dict()


def kept_file(name):
    """A file of texts, or its key, damaged; and the texts that are read from it then."""

    def write(number: int, output: Path) -> None:
        output.parent.mkdir(exist_ok=True)
        output.write_text(f"of {number}")

    def read(path):
        cache = Cache(path.parent / "kept")
        cache.file("texts", write, 3)
        (cache.folder / name).write_bytes(path.read_bytes())
        return cache.file("texts", write, 3).read_text()

    return read


def entry_of(read, path):
    """What the reader's cache writes of its own."""
    path.write_bytes(b"")
    read(path)
    return next(iter((path.parent / "kept").iterdir())).read_bytes()


class Case:
    """A file that is taken, its reader, and what has to hold of the bytes and of what was read of them."""

    def __init__(self, valid, read, check):
        self.valid, self.read, self.check = valid, read, check


def equals(expected):
    def check(content, found):
        assert found == expected

    return check


CASES = {
    "SGML": Case(SGML, segments, check_sgml),
    "manifest": Case(MANIFEST, complete, lambda content, _: equals(SETTINGS)(None, json.loads(content)["settings"])),
    "settings": Case(json.dumps(SETTINGS).encode(), made, lambda content, _: equals(SETTINGS)(0, json.loads(content))),
    "settings of a reproduction": Case(
        json.dumps(settings_of(WORKSPACE, MODEL)).encode(),
        trained,
        lambda content, _: equals(settings_of(WORKSPACE, MODEL))(0, json.loads(content)),
    ),
    "manifest of a reproduction": Case(
        MANIFEST, prepared, lambda content, found: equals(json.loads(content))(0, found)
    ),
    "kept result": Case(None, kept_result, equals(measure().to_dict())),
    "kept texts": Case(b"of 3", kept_file("texts"), equals("of 3")),
    "key of kept texts": Case(b'{"key": 3, "digest": "x"}', kept_file("texts.key.json"), equals("of 3")),
}
"""Cheap to read: a few with the quick tests too."""
SLOW_CASES = {
    "GPT-2's ids": Case(
        ENCODER,
        lambda path: split_by_gpt2(path.read_bytes(), MERGES, path.parent),
        lambda content, found: check_gpt2(content, MERGES, found),
    ),
    "GPT-2's merges": Case(
        MERGES,
        lambda path: split_by_gpt2(ENCODER, path.read_bytes(), path.parent),
        lambda content, found: check_gpt2(ENCODER, content, found),
    ),
    "codes of subword-nmt": Case(
        "".join(f"{line}\n" for line in ["#version: 0.2", *CODES]).encode(),
        lambda path: split_by_codes("subword_nmt", path),
        check_subword_nmt,
    ),
    "codes of fastBPE": Case(
        "".join(f"{line} {9 - number}\n" for number, line in enumerate(CODES)).encode(),
        lambda path: split_by_codes("fastbpe", path),
        lambda _, found: check_spelled(found),
    ),
    "sentencepiece": Case(sentencepiece_model, split_by_sentencepiece, lambda _, found: check_spelled(found)),
    "parquet": Case(written_parquet, lambda path: list(parquet_lines(path)), lambda _, found: check_parquet(found)),
}


def check_damaged_files(case, amount, folder):
    """Asserts for the file of a case, whole and damaged: it is read right, or `refusal` finds one line."""
    path = folder / "file"
    valid = entry_of(case.read, path) if case.valid is None else case.valid() if callable(case.valid) else case.valid

    def check(content):
        path.write_bytes(content)
        said, found = refusal(case.read, path)
        if said is None:
            case.check(content, found)

    check(valid)
    amount(given(damaged(valid))(check))()


@pytest.mark.parametrize("name", CASES)
def test_a_damaged_file_is_read_right_or_refused_in_one_line(name, tmp_path):
    check_damaged_files(CASES[name], FEW, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*CASES, *SLOW_CASES])
def test_more_damaged_files_are_read_right_or_refused_in_one_line(name, tmp_path):
    check_damaged_files({**CASES, **SLOW_CASES}[name], MORE, tmp_path)


@pytest.mark.parametrize("value", [{"a": 1}, -1, 1.5, "100", None, True, 2**40])
def test_an_id_of_gpt2_that_is_no_number_is_one_line(value, tmp_path):
    """The package `tokenizers` ends in a panic then, which is no exception of Python's."""
    with pytest.raises(UserError, match="unreadable .*expected GPT-2's encoder.json and vocab.bpe"):
        split_by_gpt2(json.dumps({**IDS, "Ġ": value}).encode(), MERGES, tmp_path)


def test_a_piece_of_sentencepiece_that_is_not_utf8_is_one_line(tmp_path):
    model = sentencepiece_model()
    (tmp_path / "model").write_bytes(model.replace("▁low".encode(), b"\xff\xfe\xfd" + b"low", 1))
    with pytest.raises(UserError, match="unreadable"):
        split_by_sentencepiece(tmp_path / "model")


def test_codes_end_their_lines_at_line_feeds_alone(tmp_path):
    """subword-nmt would take the rest of the line for another code, and end the whole process."""
    (tmp_path / "codes").write_bytes(b"l\ro w\nlo w</w>\n")
    assert split_by_codes("subword_nmt", tmp_path / "codes")[0] == ["l@@", "o@@", "w"]
