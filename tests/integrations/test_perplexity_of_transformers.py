"""`eval-lm` on models of Hugging Face transformers; `test_train_and_measure.py` compares the loss."""

import json

import pytest

from agg_fairseq.checkpoints import open_models
from agg_fairseq.cli.main import main
from agg_fairseq.errors import UserError
from agg_fairseq.evaluation import perplexity
from tests.conftest import zipf_text
from tests.small_transformers import VOCABULARY, gpt2, save_word_tokenizer

tokenizers = pytest.importorskip("tokenizers")


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "test.txt"
    path.write_text("\n".join(zipf_text(40, words=VOCABULARY - 1)) + "\n")
    return path


def saved(folder, rows=VOCABULARY):
    """A folder of `save_pretrained` with a tokenizer of whole words."""
    gpt2().save_pretrained(folder)
    save_word_tokenizer(folder, rows)
    return folder


def test_the_command(text, tmp_path, capsys):
    folder, found = saved(tmp_path / "gpt2"), tmp_path / "o.json"
    assert main(["eval-lm", "--text", str(text), "--path", str(folder), "--json", str(found)]) == 0
    printed = capsys.readouterr().out
    assert "| gpt2 " in printed and "|tokens-per-sample:32|" in printed  # the positions of the model
    assert json.loads(found.read_text())["checkpoints"][0]["embedding"] == "transformer.wte.weight(tied)"


def test_refused(text, lm_runs, lm_data, tmp_path):
    good, of_fairseq = open_models([saved(tmp_path / "good")]), open_models([lm_runs / "mle"])
    beyond = open_models([saved(tmp_path / "other", rows=VOCABULARY + 5)])
    broken = open_models([saved(tmp_path / "broken")])
    (tmp_path / "broken" / "config.json").unlink()
    (tmp_path / "empty.txt").write_text("w1\n")
    for models, options, message in (
        (good, {"data": lm_data}, "found a model of transformers; give the text to score by --text FILE"),
        (of_fairseq, {"text": text}, "--text: found it with a checkpoint of fairseq-train"),
        (of_fairseq, {}, "found no DATA"),
        (good, {"text": text, "tokens_per_sample": 33}, "expected 2 to 32 .the model's positions., got 33"),
        (good, {"text": tmp_path / "empty.txt", "train_text": text}, "found fewer than 2 tokens"),
        (beyond, {"text": text}, "found 5 tokens beyond the 61 rows of the embedding"),
        (broken, {"text": text}, "transformers cannot load its model"),
    ):
        with pytest.raises(UserError, match=message):
            perplexity(models, **options)
