"""The commands `align` and `align-sim`."""

import shutil

import pytest
import torch

from agg_fairseq import __version__
from agg_fairseq.data.alignments import load_parallel, parse_links, read_links
from agg_fairseq.data.binarized import count_tokens, excluded_tokens, load_dictionary
from agg_fairseq.metrics import align_sim, orthogonal_align_sim, relative_frequency_groups
from tests.commands import LANGUAGE_MODEL, TRANSLATION, cells, refused, run, save_checkpoint
from tests.conftest import read_lines

GROUPS = ("frequent", "medium", "rare", "total")


def sentences(data, language):
    return [line.split() for line in read_lines(data.parent / f"train.{language}")]


@pytest.fixture(scope="module")
def links(mt_data, tmp_path_factory):
    """The right alignments: the target says the source backwards."""
    path = tmp_path_factory.mktemp("links") / "en-de.align"
    lengths = map(len, sentences(mt_data, "en"))
    path.write_text("".join(" ".join(f"{i}-{n - 1 - i}" for i in range(n)) + "\n" for n in lengths))
    return path


def model(folder, data, seed=0, task=TRANSLATION):
    weight = torch.randn(
        len(load_dictionary(data, "dict.de.txt")), 8, generator=torch.Generator().manual_seed(seed)
    )
    weight[1] = 0  # padding
    return save_checkpoint(folder / "checkpoint_best.pt", weight, task)


def test_align_sim_of_each_group(mt_data, links, tmp_path, capsys):
    """The mean over each group, of the words of the training text; those of the source alone are
    unseen."""
    paths = [model(tmp_path / name, mt_data, seed) for seed, name in enumerate(("mle", "agps"))]
    printed = run(capsys, "align-sim", *paths, "--data", mt_data, "--alignments", links)
    table = cells(printed)
    assert list(table) == ["mle", "agps", "orthogonal", "labeled tokens"]
    dictionary = load_dictionary(mt_data, "dict.de.txt")
    counts = count_tokens(mt_data, dictionary, "train.en-de.de")
    rare = (counts == 0).nonzero().squeeze(1).tolist()
    of_source = {
        dictionary.index(word) for sentence in sentences(mt_data, "en") for word in sentence
    }
    of_target = {
        dictionary.index(word) for sentence in sentences(mt_data, "de") for word in sentence
    }
    assert of_source < set(rare) and not of_source & of_target
    expected = [len(of_target), 0, 0, len(of_source), len(of_source) + len(of_target)]
    assert list(table["labeled tokens"].values()) == [str(number) for number in expected]
    counted = read_links(links, load_parallel(mt_data, ("en", "de")))
    values = [
        align_sim(torch.load(path)["model"]["decoder.embed_tokens.weight"], counted)
        for path in paths
    ]
    values.append(orthogonal_align_sim(counted, len(dictionary)))
    for row, of_row in zip(("mle", "agps", "orthogonal"), values, strict=True):
        members = (of_target, of_source, of_target | of_source)
        frequent, unseen, total = (f"{of_row[list(tokens)].mean():.4f}" for tokens in members)
        assert list(table[row].values()) == [frequent, "—", "—", unseen, total]
    total = sum(map(len, sentences(mt_data, "en")))
    assert printed.splitlines()[-1] == (
        "matrix:decoder.output_projection.weight(tied)|groups:1e-05/1e-06-of-tokens|frequencies:target-side|temperature:10|"
        f"links:{total}|pairs:{len(of_source)}|labels:symmetric|version:{__version__}"
    )


def test_align_sim_of_the_other_direction(mt_data, links, tmp_path, capsys):
    """The links are those of the files, en-de, the frequencies those of its target, English."""
    reverse = model(
        tmp_path / "m", mt_data, task={**TRANSLATION, "source_lang": "de", "target_lang": "en"}
    )
    found = cells(run(capsys, "align-sim", reverse, "--data", mt_data, "--alignments", links))
    weight = torch.load(reverse)["model"]["decoder.embed_tokens.weight"]
    values = align_sim(weight, read_links(links, load_parallel(mt_data, ("en", "de"))))
    dictionary = load_dictionary(mt_data, "dict.en.txt")
    counts = count_tokens(mt_data, dictionary, "train.en-de.en")
    groups = relative_frequency_groups(counts, excluded=excluded_tokens(dictionary))
    assert found["m"]["AlignSim frequent"] == f"{values[groups.members('frequent')].nanmean():.4f}"


def test_align_sim_refuses(mt_data, lm_data, links, tmp_path, capsys):
    separate = shutil.copytree(mt_data, tmp_path / "separate")
    with (separate / "dict.en.txt").open("a") as file:
        file.write("more 1\n")
    language = save_checkpoint(
        tmp_path / "lm" / "c.pt", torch.randn(len(load_dictionary(lm_data)), 4), LANGUAGE_MODEL
    )
    path = model(tmp_path / "m", mt_data)
    for checkpoint, data, options, words in (
        (
            path, mt_data, ("--name", "labeled tokens"),
            "--name: found 'labeled tokens', a row of its own",
        ),
        (
            path, separate, (),
            "found separate dictionaries; AlignSim expects that of fairseq-preprocess --joined",
        ),
        (language, lm_data, (), "found a language model; AlignSim expects"),
    ):  # fmt: skip
        assert words in refused(
            capsys, "align-sim", checkpoint, "--data", data, "--alignments", links, *options
        )


def test_align_with_eflomal(mt_data, tmp_path, capsys):
    """With eflomal itself; it draws, but 80 sentences of words said backwards leave it little
    doubt."""
    pytest.importorskip("eflomal")
    output = tmp_path / "new" / "en-de.align"
    printed = run(capsys, "align", mt_data, "--output", output)
    assert cells(printed) == {str(output): {"sentence pairs": "80"}}
    assert "|model:3|symmetrized:intersection|languages:en-de|sentence-pairs:80|" in printed
    lines = read_lines(output)
    pairs = list(zip(sentences(mt_data, "en"), sentences(mt_data, "de"), lines, strict=True))
    linked = [
        (source[s], target[t]) for source, target, line in pairs for s, t in parse_links(line)
    ]
    assert sum(w[1:] == t[1:] for w, t in linked) > 0.7 * len(linked) > 0
    assert len(linked) > 0.7 * sum(len(source) for source, _, _ in pairs)
