"""The commands that measure output embeddings: `isotropy`, `word-similarity`, `neighbors`, `align`
and `align-sim`."""

import re
import shutil

import pytest
import torch
from scipy.stats import spearmanr

from agg_fairseq.checkpoints.fairseq_checkpoint import Checkpoint
from agg_fairseq.data.alignments import load_parallel, read_links
from agg_fairseq.data.binarized import load_dictionary
from agg_fairseq.data.subwords import TokenizerOptions
from agg_fairseq.data.vocabulary import BinarizedVocabulary
from agg_fairseq.metrics import Embeddings, align_sim, geometry, orthogonal_align_sim
from tests.commands import (
    LANGUAGE_MODEL,
    TRANSLATION,
    binarized,
    cells,
    read_result,
    refused,
    run,
    save_checkpoint,
    table,
)
from tests.conftest import read_lines, write_lines

MATRIX = "decoder.output_projection.weight"


def test_isotropy_is_that_of_the_matrix(lm_runs, lm_data, tmp_path):
    target = tmp_path / "i.json"
    printed = run("isotropy", lm_runs / "mle", "--data", lm_data, "--json", target)
    assert re.search(r"\| IsoScore rare +\| +[01]\.\d{3} \|\n", printed)
    assert f"matrix:{MATRIX}(tied)|" in printed and "specials-included" in printed
    result, w = read_result(target), Checkpoint(lm_runs / "mle").output_embedding.weight
    row, embeddings = result["mle"], Embeddings(w)
    for measure, value in geometry(w)._asdict().items():
        assert row[measure]["total"] == pytest.approx(value, rel=1e-9)
    assert row["isotropy_both_signs"] == pytest.approx(embeddings.isotropy_both_signs())
    values = row["singular_values"]
    assert values == pytest.approx(embeddings.singular_values().tolist(), rel=1e-9)
    assert row["singular_value"]["σ2"] == values[1]
    words = (~BinarizedVocabulary.load(lm_data).excluded).sum()
    assert sum(result.facts["groups"].values()) == words
    printed = run("isotropy", lm_runs / "mle", "--json", target)
    assert printed.count("— |") == 10  # three measures of three groups, and a cosine
    assert read_result(target).facts["groups"] is None


def test_what_is_no_embedding_is_refused(lm_runs, lm_data, tmp_path):
    """The input embedding of a model with adaptive softmax is none, unless they are shared."""
    path, state = tmp_path / "odd.pt", Checkpoint(lm_runs / "mle" / "checkpoint_last.pt").state
    options, parameters = state["cfg"]["model"], state["model"]
    parameters[MATRIX] = torch.zeros_like(parameters[MATRIX])
    torch.save(state, path)
    calibrate = ("calibrate", path, "--data", lm_data, "-o", tmp_path / "target")
    for command in (("isotropy", path), calibrate):
        assert f"found only zeros in {MATRIX}" in refused(*command)
    del parameters[MATRIX]
    options["share_decoder_input_output_embed"] = False
    torch.save(state, path)
    assert "found no output embedding" in refused("isotropy", path)
    options["share_decoder_input_output_embed"] = True
    torch.save(state, path)
    assert "decoder.embed_tokens.weight(tied)" in run("isotropy", path)


TEXT = (
    "the the the the the the sea sea sea sea lake lake lake Paris Paris river river pool x|y Rome"
)
WORDS = ["the", "sea", "lake", "Paris", "river", "Rome", "pool", "x|y"]
"""In the order of the dictionary, after its four special tokens: two frequent words, three medium,
three rare."""
VECTORS = [[9.0, 9], [0, 1], [1, 3], [5, 0], [1, 2], [3, 1], [0, 0], [-2, 0]]
SCORES = "sea lake 8|sea river 9|lake river 9.5|Paris Rome 7|sea paris 1|Sea Pool 6|the car 3"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    data = binarized(tmp_path_factory.mktemp("words"), [TEXT], "--padding-factor 1")
    assert load_dictionary(data).symbols[4:] == WORDS
    return data


def language_model(path, vectors):
    """A model whose special tokens are near to anything in the direction of (0, 1)."""
    weight = torch.tensor([[0.0, 1], [0, 0], [0, 1], [0, 1], *vectors])
    return save_checkpoint(path, weight, LANGUAGE_MODEL)


@pytest.fixture
def checkpoint(tmp_path):
    return language_model(tmp_path / "mle" / "checkpoint_best.pt", VECTORS)


@pytest.fixture
def turned(tmp_path):
    vectors = torch.randn(len(WORDS), 2, generator=torch.Generator().manual_seed(3))
    return language_model(tmp_path / "agg" / "checkpoint_best.pt", vectors.tolist())


def write_scores(path, scores):
    """With ends of lines as in the original WordSim-353."""
    path.write_bytes(scores.replace(" ", "\t").replace("|", "\r\n").encode())
    return path


@pytest.fixture
def scored(tmp_path):
    return write_scores(tmp_path / "scored.txt", SCORES)


def test_word_similarity_by_hand(data, checkpoint, turned, scored, tmp_path):
    """`Sea` and `paris` are found in lower case and not at all, `Pool` is zeros in one model, `car`
    is no word."""
    # Scores 8, 9, 9.5, 7 and cosines 3/√10, 2/√5, 7/√50, 3/√10: ranks 2, 3, 4, 1 and 2.5, 1, 4,
    # 2.5. Less their mean: (−½, ½, 1½, −1½) and (0, −1½, 1½, 0), so 1½ / √(5 · 4½) = 1/√10.
    printed = run("word-similarity", checkpoint, turned, "--data", data, "--datasets", scored)
    header, (mle, agg, *pairs) = table(printed)
    assert header == ["", "scored"] and mle == ["mle", "31.62"] and agg[0] == "agg"
    assert pairs == [["pairs of mle", "4/7"], ["pairs of agg", "5/7"]]
    assert f"matrix:{MATRIX}(tied)|datasets:scored|" in printed and "|bpe:words|" in printed


def test_word_similarity_as_published(data, checkpoint, scored, monkeypatch):
    """The protocol of `eval_emb.py` of Yu et al. (2022): words without a space before them, `<unk>`
    for missing words, here (0, 1), no second look in lower case, every pair."""
    split, spaces = TokenizerOptions.word_tokenizer, []

    def word_tokenizer(options, dictionary):
        spaces.append(options.after_space)
        return split(options, dictionary)

    monkeypatch.setattr(TokenizerOptions, "word_tokenizer", word_tokenizer)
    options = ("--data", data, "--datasets", scored, "--as-published")
    printed = run("word-similarity", checkpoint, *options)
    cosines = [3 / 10**0.5, 2 / 5**0.5, 7 / 50**0.5, 3 / 10**0.5, 1, 1, 1 / 2**0.5]
    expected = 100 * spearmanr(cosines, [8, 9, 9.5, 7, 1, 6, 3]).statistic
    assert table(printed)[1] == [["mle", f"{expected:.2f}"], ["pairs", "7/7"]]
    assert "|split:without-space|case:as-written|missing-tokens:<unk>|" in printed
    assert spaces == [False]


def test_neighbors_by_hand(data, checkpoint, turned, tmp_path):
    """`lake` (1, 3) and `river` (1, 2): 7/√50; `sea` 3/√10 and 2/√5; `pool` is zeros, and `</s>`
    special. The last of the six others is `x|y`, escaped in the table."""
    target = tmp_path / "out.json"
    options = ("--data", data, "--topk 7 --words lake Rome lake --json", target)
    header, body = table(run("neighbors", turned, checkpoint, *options))
    assert header == ["", "checkpoint", *"1234567"] and len(body) == 4
    assert body[0][:2] == ["lake", "agg"] and body[2][:2] == ["Rome†", "agg"]
    assert body[1][:5] == ["lake", "mle", "river (0.99)", "sea (0.95)", "the (0.89)"]
    assert body[3][:5] == ["Rome†", "mle", "Paris (0.95)", "the (0.89)", "river (0.71)"]
    assert body[3][-2:] == ["x¦y† (-0.95)", "—"]
    result = read_result(target)
    assert result.facts["groups"] == {"frequent": 2, "medium": 3, "rare": 3}
    first = {"token": "river", "readable": "river", "index": 8, "count": 2, "group": "medium"}
    cosine = {"cosine": pytest.approx(7 / 50**0.5)}
    assert result["lake", "mle"]["neighbors"][0] == cosine | first


def sentences(data, language):
    return [line.split() for line in read_lines(data.parent / f"train.{language}")]


@pytest.fixture(scope="module")
def links(mt_data, tmp_path_factory):
    """The right alignments: the target says the source backwards."""
    lines = []
    for words in sentences(mt_data, "en"):
        last = len(words) - 1
        lines.append(" ".join(f"{i}-{last - i}" for i in range(len(words))))
    return write_lines(tmp_path_factory.mktemp("links") / "en-de.align", lines)


def translation_model(folder, data, task=TRANSLATION):
    size = len(load_dictionary(data, "dict.de.txt"))
    weight = torch.randn(size, 8, generator=torch.Generator().manual_seed(0))
    weight[1] = 0  # padding
    return save_checkpoint(folder / "checkpoint_best.pt", weight, task)


def test_align_sim_of_each_group(mt_data, links, tmp_path):
    """The mean over each group of the target side; the words of the source alone are unseen. Links
    are those of the files, en-de, also for a model of the other direction."""
    path = translation_model(tmp_path / "mle", mt_data)
    dictionary = load_dictionary(mt_data, "dict.de.txt")
    source = [row for row, word in enumerate(dictionary.symbols) if word.startswith("w")]
    target = [row for row, word in enumerate(dictionary.symbols) if word.startswith("t")]
    options, total = ("--data", mt_data, "--alignments", links), target + source
    printed = run("align-sim", path, *options)
    _, (mle, orthogonal, labeled) = table(printed)
    assert labeled[1:] == [str(len(target)), "0", "0", str(len(source)), str(len(total))]
    counted = read_links(links, load_parallel(mt_data, ("en", "de")))
    mle_scores = align_sim(Checkpoint(path).output_embedding.weight, counted)
    orthogonal_scores = orthogonal_align_sim(counted, len(dictionary))
    for row, values in ((mle, mle_scores), (orthogonal, orthogonal_scores)):
        means = [f"{values[rows].mean():.4f}" for rows in (target, source, total)]
        assert row[1:] == [means[0], "—", "—", *means[1:]]
    facts = f"links:{counted.count.sum()}|pairs:{len(counted.count)}|labels:symmetric|version:"
    assert f"|frequencies:target-side|temperature:10|{facts}" in printed
    task = {**TRANSLATION, "source_lang": "de", "target_lang": "en"}
    reverse = translation_model(tmp_path / "reverse", mt_data, task)
    found = cells(run("align-sim", reverse, *options))
    assert found["reverse"]["AlignSim frequent"] == f"{mle_scores[source].mean():.4f}"
    printed = run("neighbors", path, "--data", mt_data, "--words w0 t0")
    assert "| w0‡ |" in printed and "| t0  |" in printed and "|†:rare|‡:unseen|" in printed


def test_commands_refuse(data, checkpoint, scored, mt_data, links, tmp_path):
    separate = shutil.copytree(mt_data, tmp_path / "separate")
    with (separate / "dict.en.txt").open("a") as file:
        file.write("more 1\n")
    similarity = ("word-similarity", checkpoint, "--data", data, "--datasets", scored)
    bad = write_scores(tmp_path / "bad.txt", "sea lake 1|sea lake")
    translation = translation_model(tmp_path / "labeled tokens", mt_data)
    align_sim = ("align-sim", translation, "--alignments", links, "--data")
    for *arguments, words in (
        (*similarity, "--name pairs", "--name: found 'pairs', a row of its own"),
        (*similarity, "--datasets", bad, "bad.txt, line 2: found 'sea\\tlake'"),
        (
            "neighbors",
            checkpoint,
            "--data",
            data,
            "--words sea pool",
            "only zeros as an embedding of 'pool'",
        ),
        (*align_sim, mt_data, "--name: found 'labeled tokens', a row of its own"),
        (
            *align_sim,
            separate,
            "--name m",
            "separate dictionaries; AlignSim expects that of fairseq-",
        ),
    ):
        assert words in refused(*arguments)


def test_align_with_eflomal(mt_data, tmp_path):
    """eflomal draws, but 80 sentences of words said backwards leave it little doubt."""
    pytest.importorskip("eflomal")
    output = tmp_path / "new" / "en-de.align"
    printed = run("align", mt_data, "--output", output)
    assert cells(printed) == {str(output): {"sentence pairs": "80"}}
    settings = "no-seed|model:3|symmetrized:intersection|languages:en-de|sentence-pairs:80|"
    assert f",{settings}" in printed
    right = linked = words = 0
    for source, line in zip(sentences(mt_data, "en"), read_lines(output), strict=True):
        words += len(source)
        for link in line.split():
            s, t = map(int, link.split("-"))
            linked += 1
            right += s + t == len(source) - 1
    assert right > 0.7 * linked and linked > 0.7 * words
