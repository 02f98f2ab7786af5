import pytest
import torch
from fairseq.data import indexed_dataset

from agg_fairseq.data.alignments import load_parallel, read_links, sentences
from agg_fairseq.data.binarized import training_pair
from agg_fairseq.errors import UserError

EOS = 2
PAIRS = [([4, 5, 6], [7, 8]), ([5], [7]), ([4, 4], [8, 7, 9])]


def write_side(folder, pair, language, sentences, words=6):
    (folder / f"dict.{language}.txt").write_text("".join(f"w{index} 1\n" for index in range(words)))
    prefix = str(folder / f"train.{pair}.{language}")
    builder = indexed_dataset.make_builder(f"{prefix}.bin", impl="mmap", vocab_size=words + 4)
    for sentence in sentences:
        builder.add_item(torch.tensor([*sentence, EOS]))
    builder.finalize(f"{prefix}.idx")


def write_data(folder, pairs=PAIRS, languages=("en", "de")):
    """A binarized parallel training split: tokens 4 to 9, and eos."""
    for side, language in enumerate(languages):
        write_side(folder, "-".join(languages), language, [pair[side] for pair in pairs])
    return folder


def links_of(folder, text, languages=("en", "de")):
    (folder / "links").write_bytes(text)
    found = read_links(folder / "links", load_parallel(folder, languages))
    assert {column.dtype for column in vars(found).values()} == {torch.int64}
    columns = (found.source.tolist(), found.target.tolist(), found.count.tolist())
    return {(source, target): count for source, target, count in zip(*columns, strict=True)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Pair 1: 4-8, 6-7. Pair 2: 5-7. Pair 3: 4-8, and 4 (the second) with 8 and 9.
        (b"0-1 2-0\n0-0\n0-0 1-0 1-2\n", {(4, 8): 3, (6, 7): 1, (5, 7): 1, (4, 9): 1}),
        (b"\r\n0-0 \r\n\r\n", {(5, 7): 1}),
        (b"\n\n1-2", {(4, 9): 1}),
    ],
)
def test_read_links_by_hand(tmp_path, text, expected):
    assert links_of(write_data(tmp_path), text) == expected


def test_only_an_eos_at_the_end_is_left_out():
    side = [torch.tensor(tokens) for tokens in ([4, EOS, 5, EOS], [4, 5], [EOS])]
    assert list(sentences(side)) == [[4, EOS, 5], [4, 5], []]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"0-0\n0-0\n", "links: found too few lines; expected 3"),
        (b"\n\n\n0-0\n", "links: found more lines; expected 3"),
        (b"\n\n\n", "links: found no link"),
        # its eos
        (
            b"0-0\n0-1\n0-0\n",
            "line 2: found '0-1'; expected links as 0-0 1-2 between 1 source and 1 ",
        ),
        (b"0-0\n1p0\n\n", "links, line 2: found '1p0'; expected links"),
    ],
)
def test_links_of_other_sentences_are_refused(tmp_path, text, words):
    write_data(tmp_path)
    with pytest.raises(UserError, match=words):
        links_of(tmp_path, text)


def test_training_pair_by_the_names_of_files(tmp_path):
    write_data(tmp_path)
    assert training_pair(tmp_path) == training_pair(tmp_path, "en", "de") == ("en", "de")
    # a hyphen within a language
    for languages in (("de", "en"), ("en", "fr"), ("zh-Hans", "zh-Hant")):
        write_data(tmp_path, languages=languages)
    assert training_pair(tmp_path, target="fr") == ("en", "fr")
    assert training_pair(tmp_path, "de") == ("de", "en")
    assert training_pair(tmp_path, target="zh-Hant") == ("zh-Hans", "zh-Hant")
    assert links_of(tmp_path, b"\n0-0\n\n", ("zh-Hans", "zh-Hant")) == {(5, 7): 1}
    with pytest.raises(UserError, match="found en-de, en-fr; expected one train.en-Y.en.bin"):
        training_pair(tmp_path, "en")
    with pytest.raises(UserError, match="found de-en, en-de, en-fr, .*; expected one train.fr-Y"):
        training_pair(tmp_path, "fr")
