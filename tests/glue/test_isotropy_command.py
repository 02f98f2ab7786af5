"""`agg-fairseq isotropy`, of language models and of a translation model."""

import re
from pathlib import Path

import pytest
import torch
from fairseq.data import Dictionary

from agg_fairseq.checkpoints.fairseq_checkpoint import Checkpoint
from agg_fairseq.data.vocabulary import BinarizedVocabulary
from agg_fairseq.evaluation.inputs import load_vocabulary
from agg_fairseq.metrics import Geometry, geometry, isotropy, singular_values
from tests.commands import read_result, refused, run


def test_numbers_are_those_of_the_matrix(lm_runs, lm_data, tmp_path, capsys):
    checkpoints = [lm_runs / name / "checkpoint_last.pt" for name in ("mle", "agg")]
    printed = run(
        capsys, "isotropy", *checkpoints, "--data", lm_data, "--json", tmp_path / "i.json"
    )
    assert re.search(r"\| IsoScore rare +\| +[01]\.\d{3} \| +[01]\.\d{3} \|\n", printed)
    assert "matrix:decoder.output_projection.weight(tied)|" in printed
    assert "specials-included" in printed
    result = read_result(tmp_path / "i.json")
    for path, row in zip(checkpoints, result.rows.values(), strict=True):
        w = Checkpoint(path).state["model"]["decoder.output_projection.weight"]
        assert row["isotropy_both_signs"] == pytest.approx(isotropy(w, both_signs=True))
        assert {measure: row[measure]["total"] for measure in Geometry._fields} == geometry(
            w
        )._asdict()
        assert row["singular_values"] == singular_values(w).tolist()
        assert row["singular_value"]["σ2"] == row["singular_values"][1]
    assert (
        sum(result.facts["groups"].values()) == (~BinarizedVocabulary.load(lm_data).excluded).sum()
    )


def test_groups_need_data(lm_runs, tmp_path, capsys):
    printed = run(
        capsys, "isotropy", lm_runs / "mle" / "checkpoint_last.pt", "--json", tmp_path / "i.json"
    )
    assert printed.count("— |") == 10  # three measures of three groups, and a cosine
    result = read_result(tmp_path / "i.json")
    assert result.facts["groups"] is None and result["mle"]["isotropy"]["rare"] is None
    assert result["mle"]["rare_frequent_cosine"] is None


def test_a_translation_model_is_grouped_by_the_target_side(
    translator, lm_runs, lm_data, mt_data, capsys
):
    """No English word is ever a target: they are unseen, and the German ones are frequent."""
    printed = run(capsys, "isotropy", translator, "--data", mt_data, "--groups", "frequency")
    assert "groups:1e-05/1e-06-of-tokens" in printed
    vocabulary = load_vocabulary({"mt": Checkpoint(translator)}, mt_data)
    assert vocabulary.joined and vocabulary.languages == ("en", "de")
    groups = vocabulary.groups("frequency")
    assert {vocabulary.dictionary[int(token)][0] for token in groups.members("frequent")} == {"t"}
    assert {vocabulary.dictionary[int(token)][0] for token in groups.members("unseen")} == {"w"}
    assert groups.sizes()["medium"] == groups.sizes()["rare"] == 0
    models = (lm_runs / "mle" / "checkpoint_last.pt", translator)
    assert "found no language pair; expected one train.X-Y.X.bin" in refused(
        capsys, "isotropy", *models, "--data", lm_data
    )
    expected = "(en-de); expected models of one task"
    assert expected in refused(capsys, "isotropy", *models, "--data", mt_data)
    both = ("--data", lm_data, "--train-text", "text")  # of which only one is counted
    assert "found a model of fairseq; expected models of fairseq alone with --data" in refused(
        capsys, "isotropy", models[0], *both
    )


def test_what_is_no_embedding(lm_runs, tmp_path, capsys):
    """The input embedding of a model with adaptive softmax is none, unless they are shared."""
    name = "decoder.output_projection.weight"
    for weight, words in (
        (None, "found no output embedding"),
        (torch.zeros(5), "torch.float32 of shape (5,)"),
        (torch.ones(3, 2, dtype=torch.complex64), "torch.complex64"),
        (torch.full((3, 2), 1e200, dtype=torch.float64), "an infinity or NaN"),
    ):
        state = Checkpoint(lm_runs / "mle" / "checkpoint_last.pt").state
        state["cfg"]["model"]["share_decoder_input_output_embed"] = False
        state["model"][name] = weight
        if weight is None:
            del state["model"][name]
        torch.save(state, tmp_path / "odd.pt")
        assert words in refused(capsys, "isotropy", tmp_path / "odd.pt")
    state["cfg"]["model"]["share_decoder_input_output_embed"] = True
    del state["model"][name]
    torch.save(state, tmp_path / "shared.pt")
    assert (
        Checkpoint(tmp_path / "shared.pt").output_embedding.description
        == "decoder.embed_tokens.weight(tied)"
    )


def test_fillers_of_a_dictionary_are_special_ids():
    """Four special tokens, two words, and two entries that make the length a multiple of 8; a seen
    one is a word."""
    dictionary = Dictionary()
    for word in ("sea", "madeupword0001"):
        dictionary.add_symbol(word)
    dictionary.finalize(nwords=-1, padding_factor=8)
    assert len(dictionary) == 8 and sorted(dictionary.symbols[4:6]) == ["madeupword0001", "sea"]
    counts = torch.tensor([0, 0, 5, 1, 9, 2, 0, 0])
    vocabulary = BinarizedVocabulary(dictionary, counts, None, joined=False, split=Path())
    assert vocabulary.special_ids == [0, 1, 2, 3, 6, 7]
