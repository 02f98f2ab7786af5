"""`eval-lm` for models of Hugging Face transformers: the loss is theirs, and the parts multiply to it."""

import json
import math

import pytest
import torch

from agg_fairseq.checkpoints import open_models
from agg_fairseq.cli.main import main
from agg_fairseq.errors import UserError
from agg_fairseq.evaluation import perplexity
from tests.conftest import zipf_text
from tests.small_transformers import VOCABULARY, gpt2, llama_like, save_word_tokenizer

tokenizers = pytest.importorskip("tokenizers")


@pytest.fixture
def texts(tmp_path):
    for name, lines, seed in (("train", 200, 0), ("valid", 40, 1), ("test", 40, 2)):
        (tmp_path / f"{name}.txt").write_text("\n".join(zipf_text(lines, words=VOCABULARY - 1, seed=seed)) + "\n")
    return {name: tmp_path / f"{name}.txt" for name in ("train", "valid", "test")}


def saved(folder, model, rows=VOCABULARY):
    """A folder of `save_pretrained` with a tokenizer of whole words."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.5)
    model.save_pretrained(folder)
    save_word_tokenizer(folder, rows)
    return folder


MODELS = {
    "tied": gpt2,
    "untied": lambda: llama_like("Llama", tie_word_embeddings=False),
    "capped": lambda: llama_like("Gemma2"),
}


@pytest.mark.parametrize("kind", MODELS)
def test_the_total_is_the_loss_of_transformers(kind, texts, tmp_path):
    model = MODELS[kind]()
    models = open_models([saved(tmp_path / "model", model)])
    options = {"text": texts["test"], "train_text": texts["train"], "device": "cpu"}
    result = perplexity(models, calibrate=texts["valid"], tokens_per_sample=24, **options)
    row, found = result["model"], result.details["checkpoints"][0]

    tokens = [int(word[1:]) + 1 for word in texts["test"].read_text().split()]
    model.eval()
    losses, number = 0.0, 0
    for start in range(0, len(tokens), 24):
        block = torch.tensor([tokens[start : start + 24]])
        if block.size(1) > 1:
            losses += model(input_ids=block, labels=block).loss.item() * (block.size(1) - 1)
            number += block.size(1) - 1
    assert row["PPL total"] == pytest.approx(math.exp(losses / number), rel=1e-5) and found["tokens"] == number
    for group in ("frequent", "medium", "rare", "total"):
        assert row[f"PPL {group}"] == pytest.approx(row[f"PPL group {group}"] * row[f"PPL within {group}"], rel=1e-9)
    assert found["expected_over_observed"]["total"] == pytest.approx(1, abs=1e-5)
    assert found["calibrated_perplexity"]["total"] < row["PPL total"]
    assert "split:test.txt|" in result.signature and "|counted-in:train.txt|" in result.signature


def test_the_command(texts, tmp_path, capsys):
    folder, found = saved(tmp_path / "gpt2", gpt2()), tmp_path / "o.json"
    assert main(["eval-lm", "--text", str(texts["test"]), "--path", str(folder), "--json", str(found)]) == 0
    printed = capsys.readouterr().out
    assert "| gpt2 " in printed and "|tokens-per-sample:32|" in printed  # the positions of the model
    assert json.loads(found.read_text())["checkpoints"][0]["embedding"] == "transformer.wte.weight(tied)"


def test_refused(texts, lm_runs, lm_data, tmp_path):
    good, of_fairseq = open_models([saved(tmp_path / "good", gpt2())]), open_models([lm_runs / "mle"])
    beyond = open_models([saved(tmp_path / "other", gpt2(), rows=VOCABULARY + 5)])
    broken = open_models([saved(tmp_path / "broken", gpt2())])
    (tmp_path / "broken" / "config.json").unlink()
    (tmp_path / "empty.txt").write_text("w1\n")
    text = {"text": texts["test"]}
    for models, options, message in (
        (good, {"data": lm_data}, "found a model of transformers; give the text to score by --text FILE"),
        (of_fairseq, text, "--text: found it with a checkpoint of fairseq-train"),
        (of_fairseq, {}, "found no DATA"),
        (good, text | {"tokens_per_sample": 33}, "expected 2 to 32 .the model's positions., got 33"),
        (good, {"text": tmp_path / "empty.txt", "train_text": texts["train"]}, "found fewer than 2 tokens"),
        (beyond, text, "found 5 tokens beyond the 61 rows of the embedding"),
        (broken, text, "transformers cannot load its model"),
    ):
        with pytest.raises(UserError, match=message):
            perplexity(models, **options)
