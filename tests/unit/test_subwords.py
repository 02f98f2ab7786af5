import io
import json

import pytest
from fairseq.data import Dictionary

from agg_fairseq.data.subwords import TokenizerOptions
from agg_fairseq.errors import UserError
from tests.conftest import write_lines

CODES = ["l o", "lo w</w>", "lo w", "e r</w>", "low er</w>", "s low"]


def word_tokenizer(kind, dictionary, **files):
    return TokenizerOptions(kind, **files).word_tokenizer(dictionary)


def build_dictionary(*tokens):
    dictionary = Dictionary()
    for token in tokens:
        dictionary.add_symbol(token)
    return dictionary


def test_words_are_tokens():
    words = word_tokenizer("words", build_dictionary("low", "Slow"))
    assert words.split("lower") == ["lower"] and words.readable("15496") == "15496"
    assert (words.indices("low"), words.indices("Slow")) == ([4], [5])
    for word in ("slow", "<unk>", "</s>"):
        assert words.indices(word) == []
    pieces = word_tokenizer("words", build_dictionary("list", "▁list", "ed", "Ġsea"))
    assert pieces.split("list ▁list ed sea") == ["▁list", "▁list", "ed", "Ġsea"]


def test_pieces_of_gpt2(tmp_path):
    """`Ġlower`: Ġl, ow, Ġlow, er, Ġlower. `Ġslow`: only o and w are merged. As strings, and as ids
    from 100 on."""
    pieces = [*"Ġlowers", "Ġl", "ow", "Ġlow", "er", "Ġlower"]
    numbers = dict(zip(pieces, range(100, 112), strict=True))
    merges = ["#version: 0.2", "Ġ l", "o w", "Ġl ow", "e r", "Ġlow er"]
    files = {
        "gpt2_encoder_json": write_lines(tmp_path / "encoder.json", [json.dumps(numbers)]),
        "gpt2_vocab_bpe": write_lines(tmp_path / "vocab.bpe", merges),
    }
    strings = word_tokenizer("gpt2", build_dictionary(*pieces), **files)
    assert strings.split("lower") == ["Ġlower"] and strings.split("slow") == ["Ġ", "s", "l", "ow"]
    assert strings.indices("lower") == [4 + 11] and strings.readable("Ġlower") == "Ġlower"
    tokens = [*map(str, range(100, 111)), "madeupword0000"]
    ids = word_tokenizer("gpt2", build_dictionary(*tokens), **files)
    assert ids.split("lower") == ["111"] and ids.split("slow") == ["100", "106", "101", "108"]
    assert ids.indices("lower") == [] and ids.indices("slow") == [4, 10, 5, 12]
    assert ids.readable("111") == "Ġlower" and ids.readable("</s>") == "</s>"
    options = TokenizerOptions("gpt2", **files, after_space=False)
    first = options.word_tokenizer(build_dictionary(*pieces))
    assert first.split("lower") == ["l", "ow", "er"]


def test_pieces_of_sentencepiece(tmp_path):
    """As in running text, where the pieces of `low` come before those of the word."""
    import sentencepiece

    path, model = tmp_path / "model", io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["low lower lowest slow slower so we were low"] * 20),
        model_writer=model, vocab_size=16, minloglevel=2,
    )  # fmt: skip
    path.write_bytes(model.getvalue())
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    pieces = [processor.id_to_piece(index) for index in range(processor.get_piece_size())]
    words = word_tokenizer("sentencepiece", build_dictionary(*pieces), sentencepiece_model=path)
    for word in ("low", "slower", "☃", "x-ray"):
        expected = processor.encode(f"low {word}", out_type=str)
        assert [*words.split("low"), *words.split(word)] == expected
    assert len(words.indices("low")) == len(words.split("low")) and words.indices("☃") == []


OF_SUBWORD_NMT = ["#version: 0.2", *CODES]
OF_FASTBPE = [f"{line} {9 - number}" for number, line in enumerate(CODES)]


@pytest.mark.parametrize(
    ("kind", "codes"),
    [("subword_nmt", OF_SUBWORD_NMT), ("fastbpe", OF_SUBWORD_NMT), ("fastbpe", OF_FASTBPE)],
)
def test_pieces_of_byte_pair_codes(kind, codes, tmp_path):
    """`slow`: lo is merged first, then low at the end of a word, for which `s low` was not learned;
    so s@@ and low."""
    if kind == "fastbpe":
        pytest.importorskip("fastBPE")
    path = write_lines(tmp_path / "codes", codes)
    words = word_tokenizer(kind, build_dictionary("low", "lower", "s@@"), bpe_codes=path)
    assert words.split("low slow lower los s") == "low s@@ low lower lo@@ s s".split()
    assert words.split("low\u00a0lower\tlow\u3000s") == ["low", "lower", "low", "s"]
    assert words.indices("slow") == [6, 4] and words.indices("los") == []


def test_codes_of_the_other_program(tmp_path):
    with pytest.raises(UserError, match="found the codes of fastBPE"):
        codes = write_lines(tmp_path / "codes", OF_FASTBPE)
        word_tokenizer("subword_nmt", Dictionary(), bpe_codes=codes)
