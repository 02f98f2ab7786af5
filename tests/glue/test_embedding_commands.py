"""The commands `word-similarity` and `neighbors`, called in this process on embeddings that are
known."""

import json

import pytest
import torch
from fairseq.data import Dictionary
from fairseq.data.indexed_dataset import MMapIndexedDatasetBuilder
from scipy.stats import spearmanr

from tests.commands import LANGUAGE_MODEL, read_result, refused, run, save_checkpoint, table

TEXT = (
    "the the the the the the sea sea sea sea lake lake lake Paris Paris river river pool x|y Rome"
)
WORDS = ["the", "sea", "lake", "Paris", "river", "pool", "x|y", "Rome"]
"""In the order of the dictionary, after its four special tokens: two frequent words, four medium,
two rare."""
VECTORS = [[9.0, 9], [0, 1], [1, 3], [5, 0], [1, 2], [0, 0], [-2, 0], [3, 1]]
SCORES = {
    "sea lake": 8, "sea river": 9, "lake river": 9.5, "Paris Rome": 7, "sea paris": 1,
    "Sea Pool": 6, "the car": 3,
}  # fmt: skip


def write_data(folder, texts):
    """Texts of words by split, binarized as fairseq-preprocess does; returns their dictionary."""
    folder.mkdir(exist_ok=True)
    dictionary = Dictionary()
    for word in " ".join(texts.values()).split():
        dictionary.add_symbol(word)
    dictionary.save(str(folder / "dict.txt"))
    for split, text in texts.items():
        builder = MMapIndexedDatasetBuilder(str(folder / f"{split}.bin"))
        builder.add_item(dictionary.encode_line(text, add_if_not_exist=False).long())
        builder.finalize(str(folder / f"{split}.idx"))
    return dictionary


@pytest.fixture
def data(tmp_path):
    assert write_data(tmp_path / "bin", {"train": TEXT}).symbols[4:] == WORDS
    return tmp_path / "bin"


def weight_of(vectors):
    """With special tokens that would be near to anything in the direction of (0, 1)."""
    return torch.tensor([[0.0, 1], [0, 0], [0, 1], [0, 1], *vectors])


@pytest.fixture
def checkpoint(tmp_path):
    return save_checkpoint(
        tmp_path / "mle" / "checkpoint_best.pt", weight_of(VECTORS), LANGUAGE_MODEL
    )


@pytest.fixture
def turned(tmp_path):
    """Another checkpoint, in which no row is zeros."""
    weight = torch.randn(len(WORDS) + 4, 3, generator=torch.Generator().manual_seed(3))
    return save_checkpoint(tmp_path / "agg" / "checkpoint_best.pt", weight, LANGUAGE_MODEL)


@pytest.fixture
def scored(tmp_path):
    """A data set of human scores, with ends of lines as in the original WordSim-353."""
    path = tmp_path / "scored.txt"
    path.write_bytes(
        "".join("\t".join([*pair.split(), str(s)]) + "\r\n" for pair, s in SCORES.items()).encode()
    )
    return path


def test_word_similarity_by_hand(data, checkpoint, turned, scored, tmp_path, capsys):
    """`Sea` and `paris` are found in lower case and not at all, `Pool` is zeros in one model, `car`
    is no word."""
    # Scores 8, 9, 9.5, 7 and cosines 3/√10, 2/√5, 7/√50, 3/√10: ranks 2, 3, 4, 1 and 2.5, 1, 4,
    # 2.5. Less their mean: (−½, ½, 1½, −1½) and (0, −1½, 1½, 0), so 1½ / √(5 · 4½) = 1/√10.
    target = tmp_path / "out.json"
    arguments = (
        "word-similarity", checkpoint, turned, "--data", data, "--datasets", scored, "--json",
        target,
    )  # fmt: skip
    printed = run(capsys, *arguments)
    header, body = table(printed)
    assert header == ["", "scored"]
    assert [row[0] for row in body] == ["mle", "agg", "pairs of mle", "pairs of agg"]
    assert [row[1] for row in body if row[0] != "agg"] == ["31.62", "4/7", "5/7"]
    assert "matrix:decoder.output_projection.weight(tied)|datasets:scored|" in printed
    assert "|bpe:words|" in printed
    result = read_result(target)
    assert result["mle"]["spearman"]["scored"] == pytest.approx(10**-0.5)
    assert result["mle"]["covered"]["scored"] == 4 and result["agg"]["covered"]["scored"] == 5


def test_word_similarity_of_named_data_sets(
    data, checkpoint, scored, tmp_path, capsys, monkeypatch
):
    """Names, files, each once; two files of one name go by their paths; one row of pairs where it
    can be."""
    folder = tmp_path / "word-similarity"
    folder.mkdir()
    for name in ("RG65", "MEN"):
        (folder / f"{name}.txt").write_text("sea\tlake\t1\nsea\triver\t2\n")
    monkeypatch.setenv("AGG_DATA", str(tmp_path))
    start = ("word-similarity", checkpoint, "--data", data, "--datasets")
    header, body = table(run(capsys, *start, "MEN", "RG65", scored, "RG65"))
    assert header[1:] == ["MEN", "RG65", "scored"]
    assert body == [["mle", "-100.00", "-100.00", "31.62"], ["pairs", "2/2", "2/2", "4/7"]]
    assert table(run(capsys, *start, "RG65", "MEN"))[0] == ["", "RG65", "MEN"]
    namesake = tmp_path / "MEN.txt"
    namesake.write_text("sea\tcar\t1\n" * 1234)
    header, body = table(run(capsys, *start, "MEN", namesake))
    assert header[1:] == [str(folder / "MEN.txt"), str(namesake)]
    assert [row[2] for row in body] == ["—", "0/1,234"]


def test_word_similarity_of_words_in_pieces(tmp_path, capsys):
    """`sear` is sea@@ r, `lake` and `sea` are whole; the vectors are those of `sea@@ r` (½, 1),
    `lake` and `sea`."""
    dictionary = write_data(tmp_path, {"train": "sea@@ r lake sea"})
    vectors = {"sea@@": [0.0, 2], "r": [1, 0], "lake": [1, 0], "sea": [0, 1]}
    weight = weight_of([vectors[token] for token in dictionary.symbols[4:]])
    path = save_checkpoint(tmp_path / "m" / "c.pt", weight, LANGUAGE_MODEL)
    (tmp_path / "codes").write_text("#version: 0.2\ns e\nse a\nl a\nk e</w>\nla ke</w>\nse a</w>\n")
    (tmp_path / "pairs.txt").write_text(
        "sear\tlake\t1\nsear\tsea\t2\nlake\tsea\t0\nsearch\tsea\t9\n"
    )
    arguments = ("--data", tmp_path, "--bpe", "subword_nmt", "--bpe-codes", tmp_path / "codes")
    printed = run(capsys, "word-similarity", path, "--datasets", tmp_path / "pairs.txt", *arguments)
    assert table(printed)[1] == [["m", "100.00"], ["pairs", "3/4"]]
    assert "|bpe:subword_nmt|" in printed
    body = table(
        run(capsys, "neighbors", path, "--words", "sear", "lake", "--topk", "2", *arguments)
    )[1]
    assert body[0][0].replace("†", "") == "sear (mean of sea@@ r)"
    # 2/√5 and 1/√5
    assert [cell.replace("†", "") for cell in body[0][2:]] == ["sea (0.89)", "lake (0.45)"]
    assert body[1][0].replace("†", "") == "lake"


def test_word_similarity_as_published(tmp_path, capsys):
    """As `eval_emb.py` of Yu et al. (2022): words without a space before them, `<unk>` for missing
    tokens (here `L`), no second look in lower case, every pair. In our own protocol, only `low` has
    a token, `Ġlow`."""
    pieces = [*"Ġlowers", "L", "ow", "low", "er", "Ġl", "Ġlow"]
    ids = {piece: str(100 + index) for index, piece in enumerate(pieces)}
    (tmp_path / "encoder.json").write_text(
        json.dumps({piece: int(index) for piece, index in ids.items()})
    )
    (tmp_path / "vocab.bpe").write_text(
        "#version: 0.2\no w\nl ow\ne r\nĠ l\nĠl ow\n", encoding="utf-8"
    )
    options = (
        "--bpe",
        "gpt2",
        "--gpt2-encoder-json",
        tmp_path / "encoder.json",
        "--gpt2-vocab-bpe",
    )
    options += (tmp_path / "vocab.bpe",)
    dictionary = write_data(
        tmp_path, {"train": " ".join(ids[piece] for piece in ("low", "er", "ow", "l", "Ġlow"))}
    )
    weight = torch.randn(len(dictionary), 4, generator=torch.Generator().manual_seed(1))
    path = save_checkpoint(tmp_path / "m" / "c.pt", weight, LANGUAGE_MODEL)
    pairs = [
        ("low", "lower", 5.0),
        ("low", "Low", 1),
        ("Low", "l", 2),
        ("lower", "l", 4),
        ("low", "l", 3),
    ]
    (tmp_path / "pairs.txt").write_text(
        "".join(f"{one}\t{other}\t{score}\n" for one, other, score in pairs)
    )

    def vector(word):
        split = {"low": ["low"], "lower": ["low", "er"], "Low": ["L", "ow"], "l": ["l"]}[word]
        rows = [
            weight[dictionary.indices.get(ids[piece], dictionary.indices["<unk>"])]
            for piece in split
        ]
        return torch.stack(rows).double().mean(0)

    cosines = [
        torch.cosine_similarity(vector(one), vector(other), dim=0).item() for one, other, _ in pairs
    ]
    expected = 100 * spearmanr(cosines, [score for *_, score in pairs]).statistic
    start = (
        "word-similarity", path, "--data", tmp_path, "--datasets", tmp_path / "pairs.txt", *options,
    )  # fmt: skip
    printed = run(capsys, *start, "--as-published")
    assert table(printed)[1] == [["m", f"{expected:.2f}"], ["pairs", "5/5"]]
    assert "|split:without-space|case:as-written|missing-tokens:<unk>|" in printed
    assert table(run(capsys, *start))[1] == [["m", "—"], ["pairs", "0/5"]]


def test_neighbors_by_hand(data, checkpoint, turned, tmp_path, capsys):
    """`lake` (1, 3) and `river` (1, 2): 7/√50; `sea` 3/√10 and 2/√5; `pool` is zeros, and `</s>`
    special."""
    start, target = ("neighbors", checkpoint, "--data", data, "--words"), tmp_path / "out.json"
    printed = run(
        capsys, start[0], turned, *start[1:], "lake", "Rome", "lake", "--topk", "3", "--json",
        target,
    )  # fmt: skip
    header, body = table(printed)
    assert header == ["", "checkpoint", "1", "2", "3"]
    assert [row[:2] for row in body] == [
        ["lake", "agg"],
        ["lake", "mle"],
        ["Rome†", "agg"],
        ["Rome†", "mle"],
    ]
    assert body[1][2:] == ["river (0.99)", "sea (0.95)", "the (0.89)"]
    assert body[3][2:] == ["Paris (0.95)", "the (0.89)", "river (0.71)"]
    assert "|groups:30%/50%/20%-of-types|†:rare|" in printed
    result = read_result(target)
    assert result.facts["groups"] == {"frequent": 2, "medium": 3, "rare": 3}
    lake, rome = result["lake", "mle"], result["Rome†", "agg"]
    itself = {"token": "lake", "readable": "lake", "index": 6, "count": 3, "group": "medium"}
    assert (lake["word"], lake["tokens"]) == ("lake", [itself]) and len(rome["neighbors"]) == 3
    first = {"token": "river", "readable": "river", "index": 8, "count": 2, "group": "medium"}
    assert lake["neighbors"][0] == {"cosine": pytest.approx(7 / 50**0.5), **first}
    # Eight words less itself and `pool`; the last is `x|y`, at −1, escaped in the table.
    printed = run(capsys, *start, "Paris", "--topk", "9")
    assert table(printed)[1][0][-4:] == ["x¦y† (-1.00)", "—", "—", "—"]
    assert "x\\|y† (-1.00)" in printed


def test_embedding_commands_refuse(data, checkpoint, scored, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("AGG_DATA", str(tmp_path))
    (tmp_path / "bad.txt").write_text("sea\tlake\t1\nsea\tlake\n")
    for command, *arguments, words in (
        ("word-similarity", "--name", "pairs", "--name: found 'pairs', a row of its own"),
        ("word-similarity", "--datasets", "MEN", "/word-similarity/MEN.txt: unreadable"),
        (
            "word-similarity",
            "--datasets",
            tmp_path / "bad.txt",
            "bad.txt, line 2: found 'sea\\tlake'; expected",
        ),
        ("neighbors", "--words", "Athens", "--words: found 'Athens', which the vocabulary"),
        ("neighbors", "--words", "sea", "pool", "found only zeros as an embedding of 'pool'"),
        ("neighbors", "--words", "sea", "<unk>", "--words: found '<unk>', which the vocabulary"),
    ):
        given = ("--words", "sea") if command == "neighbors" else ("--datasets", scored)
        assert words in refused(capsys, command, checkpoint, "--data", data, *given, *arguments)
