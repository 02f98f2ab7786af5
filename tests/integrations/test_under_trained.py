"""examples/under_trained_tokens.py: tokens that are missing from a text are found in the weights,
and only those."""

import re
import runpy

import pytest
import torch

from agg_fairseq.checkpoints import open_models
from tests.conftest import ROOT
from tests.small_transformers import gpt2, save_word_tokenizer

EXAMPLE = runpy.run_path(str(ROOT / "examples" / "under_trained_tokens.py"))
WORDS, MISSING, SURPLUS = 200, 20, 16
"""Rows; those beyond the tokenizer are known to be unused."""


@pytest.mark.parametrize(
    ("tied", "are_alike", "indicator"),
    [(True, True, "distance"), (True, False, "norm"), (False, False, "norm")],
)
def test_missing_words_are_found(tied, are_alike, indicator, tmp_path):
    """Their rows and the surplus ones lie as a training leaves them: side by side, or near 0."""
    model = gpt2(vocab_size=WORDS + SURPLUS, tie_word_embeddings=tied)
    rows = torch.randn(WORDS + SURPLUS, 16)
    rows[WORDS - MISSING :] *= 0.1
    rows[WORDS - MISSING :] += int(are_alike)
    model.transformer.wte.weight.data.copy_(rows)
    model.save_pretrained(tmp_path)
    [model] = open_models([tmp_path]).values()
    found = EXAMPLE["indicator"](model, range(WORDS, WORDS + SURPLUS))
    is_listed = (found.values <= found.threshold)[:WORDS]
    # the threshold is the largest of 16 unused rows, below which 16/17 of the others are expected
    assert found.name == indicator and is_listed.sum() >= 0.8 * MISSING
    assert not is_listed[: WORDS - MISSING].any()


def test_unused_distance_by_hand():
    weight = torch.tensor([[3.0, 0.0], [0.0, 2.0], [4.0, 3.0], [-1.0, 0.0], [0.0, 0.0]])
    # To (3, 2), the sum of the first two: cosines 3/√13, 2/√13, 18/(5√13), −3/√13.
    unused_distance = EXAMPLE["unused_distance"]
    assert unused_distance(weight, [0])[1:].tolist() == pytest.approx([1, 0.2, 2, 0])
    found = unused_distance(weight, [0, 1])
    assert found.tolist() == pytest.approx([1, 1, 1 - 18 / 5 / 13**0.5, 1 + 3 / 13**0.5, 0])


def printed(capsys, *arguments):
    EXAMPLE["main"](list(map(str, arguments)))
    return " ".join(capsys.readouterr().out.split())


def test_what_is_printed_of_transformers(tmp_path, capsys):
    """With what the tokenizer knows, or without."""
    text, matrix = tmp_path / "text", [tmp_path / "model.safetensors"]
    text.write_text("w1 w2 w1\n")
    model = gpt2(vocab_size=WORDS + SURPLUS, tie_word_embeddings=False)
    model.save_pretrained(tmp_path)
    save_word_tokenizer(tmp_path, WORDS)
    said = printed(capsys, tmp_path, "--train-text", text, "--top", WORDS)
    assert "200 tokens have a norm of at most" in said and "(16 known unused)" in said
    assert said.count("'w") == WORDS - 1 and re.search(r"'w1' \| [\d.]+ \| 2 \|", said)
    (tmp_path / "tokenizer.json").unlink()
    matrix += ["--matrix", "transformer.wte.weight"]
    assert "(2 known unused)" in printed(capsys, *matrix, "--unused", 3, 5, 5)
    # which is like itself
    assert "have a norm of" in printed(capsys, *matrix, "--unused", 3)
    for *arguments, message in (
        (*matrix, "--train-text", text, "tokenizer.json: found no such file"),
        (*matrix, "--unused", 216, "--unused: found [216]"),
    ):
        with pytest.raises(SystemExit):
            printed(capsys, *arguments)
        assert message in capsys.readouterr().err
