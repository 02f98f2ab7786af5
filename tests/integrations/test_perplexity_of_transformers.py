"""What `eval-lm` refuses of Hugging Face transformers; `test_train_and_measure.py` compares the loss."""

import pytest

from agg_fairseq.checkpoints import open_models
from agg_fairseq.errors import UserError
from agg_fairseq.evaluation import BinarizedText, PlainText, perplexity
from tests.small_transformers import VOCABULARY, gpt2, save_word_tokenizer

tokenizers = pytest.importorskip("tokenizers")


def saved(folder, rows=VOCABULARY):
    """A folder of `save_pretrained` with a tokenizer of whole words."""
    gpt2().save_pretrained(folder)
    save_word_tokenizer(folder, rows)
    return folder


def test_perplexity_of_transformers_refuses(lm_runs, lm_data, tmp_path):
    good, of_fairseq = open_models([saved(tmp_path / "good")]), open_models([lm_runs / "mle"])
    beyond = open_models([saved(tmp_path / "other", rows=VOCABULARY + 5)])
    broken = open_models([saved(tmp_path / "broken")])
    (tmp_path / "broken" / "config.json").unlink()
    text, empty = tmp_path / "text", tmp_path / "empty"
    text.write_text("w1 w2 w3\n")
    empty.write_text("w1\n")
    for models, scored, message in (
        (good, BinarizedText(lm_data), "found a model of transformers; give the text to score by --text FILE"),
        (of_fairseq, PlainText(text), "found a checkpoint of fairseq-train; its tokens are counted in --data"),
        (good, PlainText(text, tokens_per_sample=33), "expected 2 to 32 .the model's positions., got 33"),
        (good, PlainText(empty, text), "found fewer than 2 tokens"),
        (beyond, PlainText(text), "found 5 tokens beyond the 61 rows; expected"),
        (broken, PlainText(text), "found no causal language model"),
    ):
        with pytest.raises(UserError, match=message):
            perplexity(models, scored)
