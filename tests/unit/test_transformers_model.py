import contextlib
import json

import pytest
import torch

from agg_fairseq.checkpoints import Checkpoint, open_models
from agg_fairseq.checkpoints.transformers_model import PretrainedModel
from agg_fairseq.cli.main import main
from agg_fairseq.data.subwords import TokenizerOptions
from agg_fairseq.data.tokenizer_vocabulary import TokenizerVocabulary
from agg_fairseq.errors import UserError
from agg_fairseq.evaluation import isotropy, neighbors
from tests import small_transformers
from tests.commands import read_result
from tests.hostile import changes

pytest.importorskip("transformers", reason="needs transformers 5: pip install '.[transformers]'")
safetensors = pytest.importorskip(
    "safetensors.torch", reason="needs safetensors, which transformers brings"
)
tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers: pip install '.[eval]'")

V, D = 12, 4
WORDS = ["<s>", "<unk>", "the", "sea", "lake", "Paris", "river", "pool", "rome", "Athens"]
TEXT = "the sea the lake the Paris\nthe sea the river unseen\n\nthe pool the lake the sea rome\n"
SIZE = {
    "vocab_size": V,
    "hidden_size": D,
    "intermediate_size": D,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
}
LLAMA = {
    **SIZE,
    "model_type": "llama",
    "tie_word_embeddings": False,
    "architectures": ["LlamaForCausalLM"],
}
TIED = {**LLAMA, "tie_word_embeddings": True}
GPT2 = {**SIZE, "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}


HEAD, INPUT = (torch.randn(V, D, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
OTHERS = {"model.layers.0.mlp.up_proj.weight": torch.ones(V, V), "model.norm.weight": torch.ones(V)}
UNTIED = {"lm_head.weight": HEAD, "model.embed_tokens.weight": INPUT, **OTHERS}


def refusal(call):
    with pytest.raises(UserError) as caught:
        call()
    return str(caught.value)


def word_tokenizer(words):
    tokenizer = small_transformers.word_tokenizer(words)
    tokenizer.add_special_tokens(["<s>"])
    tokenizer.enable_truncation(2)
    tokenizer.enable_padding(length=50)
    return tokenizer


def folder(path, tensors=UNTIED, configuration=LLAMA, words=WORDS):
    path.mkdir()
    safetensors.save_file(tensors, path / "model.safetensors")
    if configuration is not None:
        (path / "config.json").write_text(json.dumps(configuration))
    word_tokenizer(words).save(str(path / "tokenizer.json"))
    return path


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


ONLY, EMBEDDING = {"lm_head.weight": HEAD}, "model.embed_tokens.weight"
CHOICES = {
    "untied": (UNTIED, LLAMA, "lm_head.weight"),
    "untied, but equal": ({**ONLY, EMBEDDING: HEAD.clone()}, LLAMA, "lm_head.weight"),
    "tied, under another "
    "prefix": ({"wte.weight": HEAD, "wpe.weight": INPUT[:5]}, GPT2, "wte.weight(tied)"),
    "tied": ({EMBEDDING: HEAD}, TIED, f"{EMBEDDING}(tied)"),
    "tied, both saved": ({**ONLY, EMBEDDING: HEAD.clone()}, TIED, "lm_head.weight(tied)"),
    "tied, saved as the output layer": (ONLY, TIED, "lm_head.weight(tied)"),
    "tied, but different, which transformers does not tie": (UNTIED, TIED, "lm_head.weight"),
    "part of another model": (
        {"language_model.lm_head.weight": HEAD, "language_model.layers.9.lm_head.weight": INPUT}, LLAMA,
        "language_model.lm_head.weight",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("tensors", "configuration", "description"), CHOICES.values(), ids=CHOICES)
def test_which_matrix_is_measured(tensors, configuration, description, tmp_path):
    found = PretrainedModel(folder(tmp_path / "m", tensors, configuration)).output_embedding
    assert found.description == description and torch.equal(found.weight, HEAD)


REFUSED = {
    "a base model": (
        UNTIED, {**LLAMA, "architectures": ["LlamaModel"]},
        "found no output layer in this LlamaModel",
    ),
    "without configuration": (
        UNTIED, None, "transformers knows no model of the config.json beside it",
    ),
    "quantized": (
        {"lm_head.weight": HEAD.to(torch.float8_e4m3fn)}, LLAMA, "numbers that are not quantized",
    ),
    "a diverged run": ({"lm_head.weight": HEAD / 0}, LLAMA, "an infinity or NaN in lm_head.weight"),
}  # fmt: skip


@pytest.mark.parametrize(("tensors", "configuration", "words"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_measured(tensors, configuration, words, tmp_path):
    path = folder(tmp_path / "m", tensors, configuration)
    said = refusal(lambda: PretrainedModel(path).output_embedding)
    assert words in said and str(path / "model.safetensors") in said


def test_a_matrix_chosen_by_its_name(tmp_path):
    path = folder(tmp_path / "m", configuration=None)
    found = PretrainedModel(path, "model.embed_tokens.weight").output_embedding
    assert found.description == "model.embed_tokens.weight(chosen)"
    assert torch.equal(found.weight, INPUT)
    for name, words in (
        ("lm_heat.weight", "such as lm_head"),
        ("model.norm.weight", "of shape (12,) as model.norm.weight"),
    ):
        assert words in refusal(lambda name=name: PretrainedModel(path, name).output_embedding)


def test_of_several_files_only_those_with_the_embeddings_are_opened(tmp_path):
    shards = {
        "1.safetensors": {"model.embed_tokens.weight": INPUT},
        "3.safetensors": {"lm_head.weight": HEAD},
    }
    for file, tensors in shards.items():
        safetensors.save_file(tensors, tmp_path / file)
    shards["2.safetensors"] = OTHERS  # which is not there
    index = {
        "metadata": {},
        "weight_map": {name: file for file, tensors in shards.items() for name in tensors},
    }
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    for named in (tmp_path, tmp_path / "model.safetensors.index.json"):
        assert torch.equal(PretrainedModel(named).output_embedding.weight, HEAD)
    (tmp_path / "3.safetensors").write_bytes((tmp_path / "3.safetensors").read_bytes()[:-1])
    said = refusal(lambda: PretrainedModel(tmp_path).output_embedding)
    assert said.startswith(str(tmp_path / "3.safetensors")) and "expected whole safetensors" in said


def test_isotropy_of_a_transformers_model(tmp_path, text, capsys):
    path = folder(tmp_path / "m")
    assert (
        main(["isotropy", str(path), "--train-text", str(text), "--json", str(tmp_path / "i.json")])
        == 0
    )
    printed = capsys.readouterr().out
    assert "matrix:lm_head.weight|rows:12," in printed
    assert "|groups:30%/50%/20%-of-types|counted-in:text.txt|" in printed
    result = read_result(tmp_path / "i.json")
    # of 12 rows without <s>, <unk> and two fillers; four of them occur once
    assert result.facts["groups"] == {"frequent": 2, "medium": 1, "rare": 4, "unseen": 1}
    (path / "config.json").unlink()
    assert main(["isotropy", str(path / "model.safetensors"), "--matrix", "lm_head.weight"]) == 0
    assert "groups:" not in capsys.readouterr().out


def test_counts_are_those_of_the_text(tmp_path, text):
    path = folder(tmp_path / "m")
    vocabulary = TokenizerVocabulary.load(path / "tokenizer.json", V).counted_in(text)
    expected = [TEXT.split().count(word) for word in WORDS]
    expected[1] = 1  # "unseen" is unknown
    assert vocabulary.counts.tolist() == [*expected, 0, 0]
    assert vocabulary.special_ids == [0, 1, 10, 11]
    assert vocabulary.tokens[8:] == ["rome", "Athens", "<row 10>", "<row 11>"]


def test_neighbors_of_a_transformers_model(tmp_path, text):
    path = folder(tmp_path / "m")
    result = neighbors(open_models([path]), None, words=["sea", "rome"], topk=3)
    near = [[token["index"] for token in row["neighbors"]] for row in result.rows.values()]
    directions = torch.nn.functional.normalize(HEAD.double())
    for row, shown in zip((3, 8), near, strict=True):
        cosines = directions @ directions[row]
        # the word itself, special tokens, and rows without a token
        cosines[[row, 0, 1, 10, 11]] = -9
        assert shown == cosines.topk(3).indices.tolist()
    assert result.facts["groups"] is None and result["sea", "m"]["tokens"][0]["count"] is None
    counted = neighbors(open_models([path]), None, words=["rome"], train_text=text)
    assert counted["rome†", "m"]["tokens"][0]["count"] == 1 and "|†:rare|" in counted.signature


def test_words_follow_another_word(tmp_path):
    """The three ways to write the space before a word give the token of the word in running
    text."""
    made = tokenizers.models.BPE({"Ġ": 0, "t": 1, "h": 2, "e": 3, "s": 4, "Ġs": 5, "▁": 6, "▁s": 7, "▁t": 8}, [
        ("Ġ", "s"), ("▁", "s"), ("▁", "t"),
    ])  # fmt: skip
    byte_level, metaspace, legacy = (tokenizers.Tokenizer(made) for _ in range(3))
    byte_level.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    metaspace.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    legacy.normalizer = tokenizers.normalizers.Sequence(
        [tokenizers.normalizers.Prepend("▁"), tokenizers.normalizers.Replace(" ", "▁")]
    )
    for tokenizer, expected in (
        (byte_level, ["Ġs", "e"]),
        (metaspace, ["▁s", "e"]),
        (legacy, ["▁s", "e"]),
    ):
        tokenizer.save(str(tmp_path / "tokenizer.json"))
        word_tokenizer = TokenizerVocabulary.load(tmp_path / "tokenizer.json", 9).word_tokenizer(
            TokenizerOptions()
        )
        assert word_tokenizer.split("se") == expected and len(word_tokenizer.indices("se")) == 2
        assert word_tokenizer.indices("sX") == []  # no token spells X


def test_other_vocabularies_and_options(tmp_path, text):
    """A table that needs no tokens takes any models; counts are those of one vocabulary."""
    first = folder(tmp_path / "first")
    folder(tmp_path / "second", words=[*WORDS[:-1], "Oslo"])
    checkpoint = {
        "model": {"decoder.output_projection.weight": HEAD},
        "cfg": {"task": {"_name": "language_modeling"}},
    }
    (tmp_path / "run").mkdir()
    torch.save(checkpoint, tmp_path / "run" / "checkpoint_last.pt")
    for other, words in (("second", "another vocabulary"), ("run", "of fairseq alone with --data")):
        models = open_models([first, tmp_path / other])
        assert isotropy(models).rows.keys() == {"first", other}
        assert words in refusal(lambda models=models: isotropy(models, train_text=text))
    only = open_models([first])
    gpt2 = TokenizerOptions("gpt2")
    assert "--bpe: found gpt2" in refusal(
        lambda: neighbors(only, None, words=["sea"], tokenizer=gpt2)
    )
    assert "found neither checkpoint_best.pt" in refusal(lambda: Checkpoint(first))
    assert "found '<s>', which the vocabulary" in refusal(
        lambda: neighbors(only, None, words=["<s>"])
    )


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json", "model.safetensors.index.json"])
def test_a_hand_made_file_is_read_or_refused(file, tmp_path, text):
    """Each part of it, at any depth, left out or of another type."""
    path = folder(tmp_path / "m")
    index = {"metadata": {}, "weight_map": dict.fromkeys(UNTIED, "model.safetensors")}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    for changed in changes(json.loads((path / file).read_text())):
        (path / file).write_text(json.dumps(changed))
        with contextlib.suppress(UserError):
            if file == "tokenizer.json":
                vocabulary = TokenizerVocabulary.load(path / file, V).counted_in(text)
                assert vocabulary.excluded.shape == (V,) and vocabulary.unused is not None
            else:
                model = PretrainedModel(path / "model.safetensors.index.json")
                assert model.output_embedding.weight.shape == (V, D)
