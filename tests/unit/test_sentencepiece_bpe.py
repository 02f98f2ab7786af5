import pytest

from agg_fairseq.errors import UserError
from scripts.data import sentencepiece_bpe
from tests.wikitext_sample import sample_text

LINES = sample_text(0).splitlines()


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    folder = tmp_path_factory.mktemp("größe")
    sentencepiece_bpe.learn(LINES, 150, 1, folder)
    return folder


def test_pieces_spell_the_text_with_every_character_of_it(learned):
    """The brackets of <unk> too, which sentencepiece would skip while it learns."""
    import sentencepiece

    encoded = list(sentencepiece_bpe.encode(learned, LINES))
    assert ["".join(line.split()).replace("▁", " ").strip() for line in encoded] == [line.strip() for line in LINES]
    model = sentencepiece.SentencePieceProcessor(model_proto=(learned / sentencepiece_bpe.MODEL).read_bytes())
    pieces = {token for line in encoded for token in line.split()}
    assert len(pieces) <= 150 and all(model.piece_to_id(piece) != model.unk_id() for piece in pieces)


def test_empty_lines_and_plain_spaces_are_kept(learned):
    lines = list(sentencepiece_bpe.encode(learned, ["", " ", "a\u00a0role\u3000@-@"]))
    assert lines[:2] == ["", ""] and lines[2].split(" ") == lines[2].split()


def test_a_vocabulary_that_does_not_fit_is_one_line(tmp_path):
    for vocabulary in (1, 20, 100_000):
        with pytest.raises(UserError, match=rf"--vocabulary: found {vocabulary:,}; expected a size that fits") as error:
            sentencepiece_bpe.learn(LINES, vocabulary, 1, tmp_path)
        assert "\n" not in str(error.value) and not list(tmp_path.iterdir())


def test_long_lines_are_learned_from(tmp_path):
    sentencepiece_bpe.learn(["abcdef " * 3000, "x y"], 20, 1, tmp_path)
    assert list(sentencepiece_bpe.encode(tmp_path, ["abcdef"])) == ["▁abcdef"]
