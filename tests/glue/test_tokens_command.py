"""`agg-fairseq tokens` and its picture: the indicator, what the vocabularies know, and the mistakes."""

import json
import shutil

import pytest
import torch

from agg_fairseq.checkpoints import open_models
from agg_fairseq.data.tokenizer_vocabulary import TokenizerVocabulary
from agg_fairseq.evaluation import under_trained
from agg_fairseq.evaluation.inputs import load_embedding_vocabulary
from tests.commands import changed, read_result, refused, run
from tests.small_transformers import word_tokenizer

safetensors = pytest.importorskip("safetensors.torch", reason="needs safetensors, which transformers brings")
tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers: pip install '.[eval]'")

TOKENS = ["<s>", "the", "sea", "<0xC0>", "lake", "<|reserved_special_token_7|>", "[unused3]", "▁cie\x7fl", "<unk>"]
ROWS = len(TOKENS) + 2
UNUSED = [3, 5, 6, 9, 10]
TEXT = "the sea the lake the sea\n"


def folder(path, *, tied):
    """A model of transformers whose unused rows are alike, and small where the embeddings are separate."""
    path.mkdir()
    weight = torch.randn(ROWS, 4, generator=torch.Generator().manual_seed(1))
    weight[UNUSED] = torch.tensor([2.0, -1.0, 0.5, 3.0]) + 0.01 * weight[UNUSED]
    tensors = {"model.embed_tokens.weight": weight}
    if not tied:
        tensors["lm_head.weight"] = weight.clone()
        weight[UNUSED] = 0.001
    safetensors.save_file(tensors, path / "model.safetensors")
    sizes = dict.fromkeys(("hidden_size", "intermediate_size"), 4) | {"num_hidden_layers": 1, "num_attention_heads": 1}
    options = {"vocab_size": ROWS, "tie_word_embeddings": tied, "model_type": "llama", **sizes}
    options["architectures"] = ["LlamaForCausalLM"]
    (path / "config.json").write_text(json.dumps(options))
    tokenizer = word_tokenizer(TOKENS)
    tokenizer.add_special_tokens(["<s>"])
    tokenizer.save(str(path / "tokenizer.json"))
    return path


@pytest.fixture
def models(tmp_path):
    (tmp_path / "text").write_text(TEXT)
    return [folder(tmp_path / "tied", tied=True), folder(tmp_path / "separate", tied=False)]


def words(capsys, *arguments):
    return " ".join(run(capsys, "tokens", *arguments).split())


def test_models_of_transformers(models, tmp_path, capsys):
    text = ["--train-text", tmp_path / "text", "--groups", "frequency"]
    printed = run(capsys, "tokens", *models, *text, "--json", tmp_path / "found.json")
    assert "| tied     |  distance |            5 |" in printed and "low norm alone has many false alarms" in printed
    assert printed.count("\n| tied ") == printed.count("\n| separate ") == 1 + ROWS - len(UNUSED)
    tied, separate = read_result(tmp_path / "found.json").rows.values()
    assert (tied["indicator"], separate["indicator"]) == ("distance", "norm")
    for model in (tied, separate):
        assert model["unused"] == UNUSED and model["below"] == 0 and len(model["tokens"]) == ROWS
        worst, others = model["tokens"][:5], {token["id"]: token for token in model["tokens"][5:]}
        assert sorted(token["id"] for token in worst) == UNUSED and all(token["below"] for token in worst)
        values = [token[model["indicator"]] for token in model["tokens"]]
        assert values == sorted(values) and values[4] == model["threshold"]
        assert {"token": "the", "count": 3, "group": "frequent", "unused": False}.items() <= others[1].items()
        assert others[7]["readable"] == r"'▁cie\x7fl'" and others[0]["group"] is None
    for options, row in (
        (("--unused", 3, 5), "| distance | 2 | 0.000 | 2% of the tokens |"),
        (("--unused", 1, 7, 8), "| norm | 3 |"),  # rows that are not alike
    ):
        assert row in words(capsys, models[0], *options)


def test_bytes_that_are_no_text_are_unused(tmp_path):
    tokenizer = tokenizers.ByteLevelBPETokenizer()
    tokenizer.train_from_iterator([TEXT * 9], vocab_size=270, show_progress=False)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    rows = tokenizer.get_vocab_size()
    vocabulary = TokenizerVocabulary.load(tmp_path / "tokenizer.json", rows + 1)
    assert len(vocabulary.unused) == 14 and vocabulary.unused[-1] == rows
    assert {"À", "Á", "õ", "ÿ"} < {vocabulary.tokens[row] for row in vocabulary.unused}


def test_a_checkpoint_of_fairseq(lm_runs, lm_data, tmp_path, capsys):
    checkpoint = lm_runs / "mle" / "checkpoint_last.pt"
    models = open_models([checkpoint])
    (model,) = under_trained(models, lm_data).rows.values()
    vocabulary = load_embedding_vocabulary(models, lm_data)
    unused = {vocabulary.tokens[row] for row in model["unused"]}
    assert {"<s>", "<pad>"} <= unused and "</s>" not in unused and not vocabulary.counts[model["unused"]].any()
    ids = {token["id"]: token for token in model["tokens"]}
    assert [ids[row]["count"] for row in range(len(ids))] == vocabulary.counts.tolist()
    without = changed(checkpoint, tmp_path / "o.pt", lambda state: state["model"].pop("decoder.embed_tokens.weight"))
    assert "found no input embedding" in refused(capsys, "tokens", without, "--data", lm_data)


def test_tokens_refuses(models, tmp_path, capsys):
    tied, separate = models
    shutil.copytree(tied, tmp_path / "bare", ignore=shutil.ignore_patterns("*.json"))
    shutil.copytree(separate, tmp_path / "smaller")
    tensors = {"lm_head.weight": torch.ones(4, 2), "model.embed_tokens.weight": torch.zeros(4, 2)}
    safetensors.save_file(tensors, tmp_path / "smaller" / "model.safetensors")
    for name, arguments, message in (
        ("tied", ["--unused", ROWS], f"--unused: found [{ROWS}]; expected rows from 0 to {ROWS - 1} of "),
        ("bare", [], "choose the matrix to measure by --matrix NAME"),
        ("smaller", [], "found 5 tokens beyond the 4 rows; expected"),
    ):
        assert message in refused(capsys, "tokens", tmp_path / name, *arguments)


def test_a_file_of_weights_alone(models, capsys):
    tied, _ = models
    (tied / "tokenizer.json").unlink()
    (tied / "config.json").unlink()
    matrix = ["--matrix", "model.embed_tokens.weight"]
    by_distance = words(capsys, tied / "model.safetensors", *matrix, "--unused", 3, 5, 6)
    assert "| distance | 3 |" in by_distance and "| 10 | <row 10> |" in by_distance and "| 9 | <row 9> |" in by_distance
    assert "| norm | 0 |" in words(capsys, tied / "model.safetensors", *matrix)
