"""`eval-lm` and the tokenizers of Hugging Face transformers; `test_train_and_measure.py` compares the loss."""

import json

import pytest
import torch

from agg_fairseq.checkpoints import open_models
from agg_fairseq.cli.main import main
from agg_fairseq.errors import UserError
from agg_fairseq.evaluation import perplexity
from tests.conftest import zipf_text
from tests.small_transformers import VOCABULARY, gpt2, save_word_tokenizer

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


@pytest.mark.slow
def test_the_tokens_are_those_of_gpt2(tmp_path, shared_data):
    """GPT-2's own tokenizer: ids and counts are those that fairseq's encoder finds in running text."""
    from fairseq.data.encoders.gpt2_bpe_utils import get_encoder
    from tokenizers import ByteLevelBPETokenizer

    from agg_fairseq.data.subwords import Tokenizer
    from agg_fairseq.data.tokenizer_vocabulary import TokenizerVocabulary

    files = [str(shared_data / "gpt2-bpe" / name) for name in ("encoder.json", "vocab.bpe")]
    ByteLevelBPETokenizer(*files).save(str(tmp_path / "tokenizer.json"))
    lines = (shared_data / "wikitext-2" / "wiki.valid.tokens").read_text(encoding="utf-8").splitlines(keepends=True)
    text = "".join(lines[:40])
    (tmp_path / "text").write_text(text, encoding="utf-8")
    vocabulary = TokenizerVocabulary.load(tmp_path / "tokenizer.json", 50_257, tmp_path / "text")
    encoder = get_encoder(*files)
    assert torch.equal(vocabulary.counts, torch.tensor(encoder.encode(text)).bincount(minlength=50_257))
    splitter = vocabulary.splitter(Tokenizer())
    for word in ("river", "homepage", "naïve", "日本語", "x-ray", "Werewolf"):
        assert splitter.indices(word) == encoder.encode(f" {word}")
