"""`agg-fairseq tokens` and its picture: the indicator, what the vocabularies know, and the mistakes."""

import json

import numpy as np
import pytest
import torch

from agg_fairseq.checkpoints.opening import open_models
from agg_fairseq.data.tokenizer_vocabulary import TokenizerVocabulary
from agg_fairseq.evaluation import under_trained
from agg_fairseq.evaluation.inputs import load_embedding_vocabulary
from agg_fairseq.metrics import unused_distance
from agg_fairseq.plots import under_trained as histogram
from tests.commands import refused, run, save_model

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
    tensors = {"lm_head.weight": weight}
    if not tied:
        tensors["model.embed_tokens.weight"] = weight.clone().index_fill_(0, torch.tensor(UNUSED), 0.001)
    safetensors.save_file(tensors, path / "model.safetensors")
    options = {"vocab_size": ROWS, "tie_word_embeddings": tied, "architectures": ["LlamaForCausalLM"]}
    (path / "config.json").write_text(json.dumps(options))
    words = tokenizers.models.WordLevel({token: row for row, token in enumerate(TOKENS)}, "<unk>")
    tokenizer = tokenizers.Tokenizer(words)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(["<s>"])
    tokenizer.save(str(path / "tokenizer.json"))
    return path


@pytest.fixture
def models(tmp_path):
    (tmp_path / "text").write_text(TEXT)
    return [folder(tmp_path / "tied", tied=True), folder(tmp_path / "separate", tied=False)]


def test_the_distance_by_hand():
    weight = torch.randn(30, 5, generator=torch.Generator().manual_seed(1)) + 2
    w = weight.double().numpy()
    first = np.linalg.svd(w - w.mean(0))[2][0]
    rest = w - np.outer(w @ first, first)
    found = unused_distance(weight, [3, 7, 20])
    for row in range(len(w)):
        mean = rest[[one for one in (3, 7, 20) if one != row]].mean(0)
        cosine = rest[row] @ mean / np.linalg.norm(rest[row]) / np.linalg.norm(mean)
        assert found[row].item() == pytest.approx(1 - cosine, abs=1e-6)
    assert unused_distance(weight, [4]).isnan().nonzero().tolist() == [[4]]  # compared with no other


def test_models_of_transformers(models, tmp_path, capsys):
    text = ["--text", tmp_path / "text", "--groups", "frequency"]
    printed = run(capsys, "tokens", *models, *text, "--worst", 3, "--json", tmp_path / "found.json")
    assert "| tied     |  distance |            5 |" in printed and "low norm alone has many false alarms" in printed
    assert printed.count("\n| tied ") == printed.count("\n| separate ") == 1 + 3
    tied, separate = json.loads((tmp_path / "found.json").read_text())["models"]
    assert (tied["indicator"], separate["indicator"]) == ("distance", "norm")
    for model in (tied, separate):
        assert model["unused"] == UNUSED and model["below"] == 0 and len(model["tokens"]) == ROWS
        worst, others = model["tokens"][:5], {token["id"]: token for token in model["tokens"][5:]}
        assert sorted(token["id"] for token in worst) == UNUSED and all(token["below"] for token in worst)
        values = [token[model["indicator"]] for token in model["tokens"]]
        assert values == sorted(values) and values[4] == model["threshold"]
        assert {"token": "the", "count": 3, "group": "frequent", "unused": False}.items() <= others[1].items()
        assert others[7]["readable"] == r"' cie\x7fl'" and others[0]["group"] is None
    everything = run(capsys, "tokens", models[0], "--threshold", 2)
    assert f"{ROWS - 5} |             {ROWS - 5} |            100.00 |" in everything


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
    result = under_trained(open_models([checkpoint]), lm_data)
    (model,) = result.details["models"]
    vocabulary = load_embedding_vocabulary(open_models([checkpoint]), lm_data)
    known = [vocabulary.tokens[row] for row in model["unused"]]
    assert "<s>" in known and not {"</s>", "<pad>"} & set(known) and not vocabulary.counts[model["unused"]].any()
    separate = save_model(tmp_path / "separate.pt", lm_data, base=["--arch", "lstm_lm"]) if False else None
    assert separate is None
    assert "found no token that is known to be unused" in refused(capsys, "tokens", checkpoint, "--data", tmp_path)


def test_mistakes(models, tmp_path, capsys):
    tied, separate = models
    bare = tied / "model.safetensors"
    (tied / "tokenizer.json").rename(tmp_path / "tokenizer.json")
    (tied / "config.json").unlink()
    assert "give --unused IDS" in refused(capsys, "tokens", bare)
    assert f"found {ROWS}; expected rows from 0 to {ROWS - 1}" in refused(capsys, "tokens", bare, "--unused", ROWS)
    assert "| 10 | '<row 10>' |" in run(capsys, "tokens", bare, "--unused", 3, 5, 6, "--worst", 2)
    safetensors.save_file({"lm_head.weight": torch.ones(4, 2)}, separate / "model.safetensors")
    assert "refused" in refused(capsys, "tokens", separate)


def test_the_picture(models, tmp_path):
    figure = histogram(open_models(models), text=tmp_path / "text")
    for axis, title in zip(figure.axes, ("tied: distance", "separate: norm"), strict=True):
        assert axis.get_title() == title
        curves = {line.get_label().strip(): line.get_ydata() for line in axis.lines}
        assert sum(curves["known to be unused"]) == pytest.approx(100) and "threshold" in curves
        assert sum(curves["frequent"]) == pytest.approx(100)
    labels = {line.get_label().strip() for line in histogram(open_models(models)).axes[0].lines}
    assert labels == {"tokens", "known to be unused", "threshold"}
