"""Words as tokens: by hand, against the libraries' own output in running text, and every error."""

import io
import json
import os
import sys

import pytest
from fairseq.data import Dictionary
from fairseq.data.encoders.gpt2_bpe_utils import get_encoder
from hypothesis import given, settings
from hypothesis import strategies as st

from agg_fairseq.data.subwords import FILES, Tokenizer, check_words
from agg_fairseq.errors import UserError


def splitter(kind, dictionary, **files):
    return Tokenizer(kind, **files).splitter(dictionary)


WORDS = ["low", "lower", "slow", "o", "☃", "naïve", "don't", "x-ray", "3,000", "日本語", "🙂"]
CODES = ["l o", "lo w</w>", "lo w", "e r</w>", "low er</w>", "s low"]
GPT2_PIECES = [*"Ġlowers", "Ġl", "ow", "Ġlow", "er", "Ġlower"]
GPT2_MERGES = ["Ġ l", "o w", "Ġl ow", "e r", "Ġlow er"]


def dictionary_of(*tokens):
    dictionary = Dictionary()
    for token in tokens:
        dictionary.add_symbol(token)
    return dictionary


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.fixture
def gpt2_files(tmp_path):
    """A vocabulary of a few letters, and five merges."""
    ids = {piece: 100 + index for index, piece in enumerate(GPT2_PIECES)}
    return {
        "gpt2_encoder_json": write(tmp_path / "encoder.json", json.dumps(ids)),
        "gpt2_vocab_bpe": write(tmp_path / "vocab.bpe", "\n".join(["#version: 0.2", *GPT2_MERGES, ""])),
    }


@pytest.fixture(scope="module")
def sentencepiece_model(tmp_path_factory):
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["low lower lowest slow slower so we were low"] * 20),
        model_writer=model,
        vocab_size=16,
        minloglevel=2,
    )
    path = tmp_path_factory.mktemp("sentencepiece") / "subwords.model"
    path.write_bytes(model.getvalue())
    return str(path)


@pytest.fixture(scope="module")
def codes(tmp_path_factory):
    """The same merges as both libraries write them."""
    folder = tmp_path_factory.mktemp("codes")
    return {
        "subword_nmt": write(folder / "subword_nmt", "".join(f"{line}\n" for line in ["#version: 0.2", *CODES])),
        "fastbpe": write(folder / "fastbpe", "".join(f"{line} {9 - i}\n" for i, line in enumerate(CODES))),
    }


def test_words():
    words = splitter("words", dictionary_of("low", "Slow"))
    assert words("lower") == ["lower"]
    assert [words.indices(word) for word in ("low", "Slow", "slow", "<unk>")] == [[4], [5], [], []]
    assert words.readable("15496") == "15496"
    pieces = splitter("words", dictionary_of("list", "▁list", "ed", "Ġsea"))
    assert [pieces(word) for word in ("list", "▁list", "ed", "sea")] == [["▁list"], ["▁list"], ["ed"], ["Ġsea"]]


@pytest.mark.parametrize("token", ["<s>", "<pad>", "</s>", "<unk>"])
def test_special_tokens_are_no_words(token):
    assert splitter("words", dictionary_of("low")).indices(token) == []


def test_gpt2_by_hand(gpt2_files):
    """`Ġlower`: Ġl, ow, Ġlow, er, Ġlower. `Ġslow`: only o and w are merged. Places: after four special tokens."""
    strings = splitter("gpt2", dictionary_of(*GPT2_PIECES), **gpt2_files)
    assert strings("lower") == ["Ġlower"] and strings("slow") == ["Ġ", "s", "l", "ow"]
    assert strings.indices("lower") == [4 + 11]
    assert strings.readable("Ġlower") == "Ġlower"


def test_gpt2_by_ids(gpt2_files):
    """Here 100 is `Ġ`, and 111 `Ġlower`, since the vocabulary says so; fairseq adds words to fill the dictionary up."""
    dictionary = dictionary_of(*map(str, range(100, 111)), "madeupword0000")
    ids = splitter("gpt2", dictionary, **gpt2_files)
    assert ids("lower") == ["111"] and ids("slow") == ["100", "106", "101", "108"]
    assert ids.indices("lower") == [] and ids.indices("slow") == [4, 10, 5, 12]
    assert ids.readable("111") == "Ġlower" and ids.readable("</s>") == "</s>"


@pytest.mark.parametrize("ids", [False, True])
def test_gpt2_without_a_piece_for_a_byte(gpt2_files, ids):
    """The vocabulary has no x, nor the bytes of `ï`: the library would give the tokens of `low`, of `loer`."""
    tokens = map(str, range(100, 112)) if ids else GPT2_PIECES
    split = splitter("gpt2", dictionary_of(*tokens), **gpt2_files)
    for word in ("lowx", "xlow", "lo\u00efer"):
        assert split(word) == [] and split.indices(word) == []
    assert len(split.indices("lows")) == 2


def test_gpt2_against_fairseq(shared_data):
    """fairseq's own encoder, on real words: ids and strings."""
    encoder_json, vocab_bpe = (str(shared_data / "gpt2-bpe" / name) for name in ("encoder.json", "vocab.bpe"))
    files = {"gpt2_encoder_json": encoder_json, "gpt2_vocab_bpe": vocab_bpe}
    encoder = get_encoder(encoder_json, vocab_bpe)
    strings = splitter("gpt2", dictionary_of(*encoder.encoder), **files)
    ids = splitter("gpt2", dictionary_of(*map(str, encoder.decoder)), **files)
    real = (shared_data / "wikitext-2" / "wiki.valid.tokens").read_text(encoding="utf-8").split()[:5000]
    for word in {*WORDS, *real}:
        expected = encoder.encode(f" {word}")
        assert ids(word) == list(map(str, expected))
        assert strings(word) == [encoder.decoder[index] for index in expected]
        assert list(map(ids.readable, ids(word))) == strings(word)
    assert strings("homepage") == ["Ġhomepage"]


def test_gpt2_of_another_dictionary(gpt2_files):
    """Numbers, and letters that are pieces as well, make no dictionary of GPT-2."""
    words = ["the", "of", "and", "to", "100", "l", "o", "w", "e", "r", "s"]
    with pytest.raises(UserError, match=r"found few of the pieces .* neither as ids \(15496\) nor as strings"):
        splitter("gpt2", dictionary_of(*words), **gpt2_files)
    with pytest.raises(UserError, match="found few of the pieces"):
        splitter("gpt2", Dictionary(), **gpt2_files)


def test_sentencepiece(sentencepiece_model):
    """As in running text, where the pieces of `low` come before those of the word."""
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_file=sentencepiece_model)
    before = processor.encode("low", out_type=str)
    pieces = [processor.id_to_piece(index) for index in range(processor.get_piece_size())]
    split = splitter("sentencepiece", dictionary_of(*pieces), sentencepiece_model=sentencepiece_model)
    for word in WORDS:
        assert [*before, *split(word)] == processor.encode(f"low {word}", out_type=str)
    assert split("low")[0].startswith("▁") and len(split.indices("low")) == len(split("low"))
    assert split.indices("☃") == []


@pytest.mark.parametrize("kind", ["fastbpe", "subword_nmt"])
def test_codes_by_hand(codes, kind):
    """`slow`: lo is merged first, then low at the end of a word, for which `s low` was not learned; so s@@ and low."""
    if kind == "fastbpe":
        pytest.importorskip("fastBPE")
    split = splitter(kind, dictionary_of("low", "lower", "s@@"), bpe_codes=codes[kind])
    expected = {"low": ["low"], "slow": ["s@@", "low"], "lower": ["lower"], "los": ["lo@@", "s"], "s": ["s"]}
    assert {word: split(word) for word in expected} == expected
    assert split.indices("slow") == [6, 4] and split.indices("los") == []


def test_codes_against_the_libraries(codes):
    """In running text, between two other words."""
    fastBPE = pytest.importorskip("fastBPE").fastBPE
    from subword_nmt.apply_bpe import BPE

    fast = fastBPE(codes["fastbpe"])
    with open(codes["subword_nmt"], encoding="utf-8") as file:
        encode = {"subword_nmt": BPE(file).process_line, "fastbpe": lambda text: fast.apply([text])[0]}
    for kind, of_library in encode.items():
        split = splitter(kind, dictionary_of("s@@"), bpe_codes=codes[kind])
        for word in WORDS:
            assert split(word) == of_library(f"s {word} o").split(" ")[1:-1]


def test_codes_of_both_libraries_split_alike(codes):
    pytest.importorskip("fastBPE")
    splitters = [splitter(kind, dictionary_of("s@@"), bpe_codes=path) for kind, path in codes.items()]

    @settings(max_examples=200, deadline=None)
    @given(st.text("lowers☃", min_size=1, max_size=9))
    def alike(word):
        one, other = (split(word) for split in splitters)
        assert one == other and "".join(one).replace("@@", "") == word

    alike()


@pytest.mark.parametrize("kind", [kind for kind in FILES if kind != "words"])
def test_files_that_are_missing(kind):
    option = f"--{FILES[kind][0].replace('_', '-')}"
    with pytest.raises(UserError, match=f"--bpe {kind}: found no {option}; name the file"):
        splitter(kind, Dictionary())
    with pytest.raises(UserError, match=f"{option}: found no file nowhere"):
        splitter(kind, Dictionary(), **dict.fromkeys(FILES[kind], "nowhere"))


def test_files_of_another_kind():
    with pytest.raises(UserError, match="--bpe-codes: found it with --bpe words; expected --bpe fastbpe or --bpe sub"):
        splitter("words", Dictionary(), bpe_codes="codes")
    with pytest.raises(UserError, match="--gpt2-vocab-bpe: found it with --bpe sentencepiece; expected --bpe gpt2"):
        splitter("sentencepiece", Dictionary(), sentencepiece_model="x", gpt2_vocab_bpe="y")


@pytest.mark.parametrize(
    ("kind", "package", "remedy"),
    [
        ("gpt2", "tokenizers", r"pip install '\.\[eval\]'"),
        ("sentencepiece", "sentencepiece", r"pip install '\.\[eval\]'"),
        ("fastbpe", "fastBPE", "pip install fastBPE"),
        ("subword_nmt", "subword_nmt", r"pip install '\.\[eval\]'"),
    ],
)
def test_packages_that_are_missing(tmp_path, monkeypatch, kind, package, remedy):
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    path = write(tmp_path / "file", "")
    with pytest.raises(UserError, match=f"--bpe {kind}: the package {package} is missing; .*{remedy}"):
        splitter(kind, Dictionary(), **dict.fromkeys(FILES[kind], path))


@pytest.mark.parametrize("content", [b"", b"no such thing\n", b"\xff\xfe"])
@pytest.mark.parametrize("kind", [kind for kind in FILES if kind != "words"])
def test_files_that_cannot_be_read(tmp_path, kind, content):
    if kind == "fastbpe":
        pytest.importorskip("fastBPE")
    path = tmp_path / "bad"
    path.write_bytes(content)
    with pytest.raises(UserError, match=rf"{path}.* (expected|as )"):
        splitter(kind, Dictionary(), **dict.fromkeys(FILES[kind], str(path)))


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        ("fastbpe", "#version: 0.2\nl o\n", "line 1: found '#version: 0.2'; expected two pieces and a count"),
        ("fastbpe", "l o 5\n\nlo w 3\n", "line 2: found ''; expected two pieces and a count, as fastbpe"),
        ("fastbpe", "l  5\n", "line 1: found 'l  5'"),
        ("fastbpe", "l o w\n", "line 1: found 'l o w'"),
        ("subword_nmt", "#version: 0.2\nl o\nlo w 3\n", "line 3: found 'lo w 3'; expected two pieces, as subword_nmt"),
        ("subword_nmt", "#version: 0.3\nl o\n", "line 1: found '#version: 0.3'; expected"),
        ("subword_nmt", "#version: 0.2\n", "found no codes"),
    ],
)
def test_codes_of_another_form(tmp_path, kind, text, words):
    """The libraries would end the process, or split wrongly, over these."""
    if kind == "fastbpe":
        pytest.importorskip("fastBPE")
    with pytest.raises(UserError, match=words):
        splitter(kind, Dictionary(), bpe_codes=write(tmp_path / "codes", text))


LIKE_PIECES = {
    "sentencepiece": ["▁a", "▁b"],
    "gpt2": ["Ġa", "15496"],
    "subword_nmt or fastbpe": ["a@@", "b@@"],
}
AS_WORDS = ["@-@", "1984", "a▁b", "aĠ", "@@a", "x1", "1.5", "Ġgantija"]


@pytest.mark.parametrize("kind", LIKE_PIECES)
def test_pieces_are_no_words(kind):
    """Two of ten tokens are refused, two of eleven are not."""
    pieces, others = LIKE_PIECES[kind], [f"word{'a' * index}" for index in range(8)]
    with pytest.raises(UserError, match=f"--bpe words: found 2 of the dictionary's 10 .* choose --bpe {kind}, as"):
        check_words([*pieces, *others])
    check_words([*pieces, *others, "another"])


def test_words_that_have_something_of_pieces():
    check_words([*AS_WORDS, *(f"word{'a' * index}" for index in range(8))])
    check_words([])


@pytest.mark.parametrize("kind", ["fastbpe", "subword_nmt"])
def test_codes_of_another_dictionary(codes, kind):
    """One token in twenty ends in @@, or one in twenty-one."""
    if kind == "fastbpe":
        pytest.importorskip("fastBPE")
    words = ["s@@", *(f"word{'a' * index}" for index in range(19))]
    splitter(kind, dictionary_of(*words), bpe_codes=codes[kind])
    with pytest.raises(UserError, match=f"--bpe {kind}: found few tokens that end in @@"):
        splitter(kind, dictionary_of(*words, "another"), bpe_codes=codes[kind])


def test_sentencepiece_of_another_dictionary(sentencepiece_model):
    """Letters that are words and pieces as well make no dictionary of the model's."""
    words = dictionary_of("l", *(f"word{'a' * index}" for index in range(9)))
    with pytest.raises(UserError, match="--bpe sentencepiece: found few of the pieces of .*subwords.model in the dict"):
        splitter("sentencepiece", words, sentencepiece_model=sentencepiece_model)


@pytest.mark.parametrize("kind", [kind for kind in FILES if kind != "words"])
def test_names_of_files_that_are_not_utf8(tmp_path, kind):
    path = os.fsencode(tmp_path) + b"/\xff.model"
    with open(path, "wb"):
        pass
    with pytest.raises(UserError, match="udcff.model'; expected a name in UTF-8"):
        splitter(kind, Dictionary(), **dict.fromkeys(FILES[kind], os.fsdecode(path)))
