import json

import pytest
import torch

from agg_fairseq.checkpoints import open_models
from agg_fairseq.checkpoints.transformers_model import PretrainedModel
from agg_fairseq.data.subwords import TokenizerOptions
from agg_fairseq.data.tokenizer_vocabulary import TokenizerVocabulary
from agg_fairseq.errors import UserError
from agg_fairseq.evaluation import isotropy, neighbors
from agg_fairseq.integrations import load_pretrained
from tests import small_transformers
from tests.commands import LANGUAGE_MODEL, save_checkpoint

transformers = pytest.importorskip(
    "transformers", reason="needs transformers 5: pip install '.[transformers]'"
)
safetensors = pytest.importorskip("safetensors.torch")
tokenizers = pytest.importorskip("tokenizers")

V, D = 12, 4
WORDS = ["<s>", "<unk>", "the", "sea", "lake", "Paris", "river", "pool", "rome", "Athens"]
TEXT = "the sea the lake the Paris\nthe sea the river unseen\n\nthe pool the lake the sea rome\n"
SIZE = {
    "vocab_size": V, "hidden_size": D, "intermediate_size": D, "num_hidden_layers": 1, "num_attention_heads": 1,
}  # fmt: skip
LLAMA = SIZE | {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}
TIED = LLAMA | {"tie_word_embeddings": True}
GPT2 = SIZE | {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}

HEAD, INPUT = (torch.randn(V, D, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
OTHERS = {"model.layers.0.mlp.up_proj.weight": torch.ones(V, V), "model.norm.weight": torch.ones(V)}
LM_HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"
ONLY = {LM_HEAD: HEAD}
UNTIED = {**ONLY, EMBEDDING: INPUT, **OTHERS}


def folder(path, tensors=UNTIED, configuration=LLAMA, words=WORDS):
    path.mkdir()
    safetensors.save_file(tensors, path / "model.safetensors")
    if configuration is not None:
        (path / "config.json").write_text(json.dumps(configuration))
    tokenizer = small_transformers.word_tokenizer(words)
    tokenizer.add_special_tokens(["<s>"])
    tokenizer.enable_truncation(2)
    tokenizer.enable_padding(length=50)
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 0)]
    )
    tokenizer.save(str(path / "tokenizer.json"))
    return path


def output_embedding(path, name=None):
    return PretrainedModel(path, name).output_embedding


@pytest.fixture
def model(tmp_path):
    return folder(tmp_path / "m")


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


CHOICES = {
    "untied, but equal": ({**ONLY, EMBEDDING: HEAD.clone()}, LLAMA, LM_HEAD),
    "tied, other prefix": ({"wte.weight": HEAD, "wpe.weight": INPUT[:5]}, GPT2, "wte.weight(tied)"),
    "tied, both saved": ({**ONLY, EMBEDDING: HEAD.clone()}, TIED, f"{LM_HEAD}(tied)"),
    "tied, saved as the output layer": (ONLY, TIED, f"{LM_HEAD}(tied)"),
    "tied, but different, which transformers does not tie": (UNTIED, TIED, LM_HEAD),
    "part of another model": (
        {"language_model.lm_head.weight": HEAD, "language_model.layers.9.lm_head.weight": INPUT}, LLAMA,
        "language_model.lm_head.weight",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("tensors", "configuration", "description"), CHOICES.values(), ids=CHOICES)
def test_which_matrix_is_measured(tensors, configuration, description, tmp_path):
    found = output_embedding(folder(tmp_path / "m", tensors, configuration))
    assert found.description == description and torch.equal(found.weight, HEAD)


REFUSED = {
    "a base model": (UNTIED, {**LLAMA, "architectures": ["LlamaModel"]}, "found no output layer in this LlamaModel"),
    "no configuration": (UNTIED, None, "transformers knows no model of the config.json beside it"),
    "quantized": ({LM_HEAD: HEAD.to(torch.float8_e4m3fn)}, LLAMA, "numbers that are not quantized"),
    "a diverged run": ({LM_HEAD: HEAD / 0}, LLAMA, "an infinity or NaN in lm_head.weight"),
}  # fmt: skip


@pytest.mark.parametrize(("tensors", "configuration", "words"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_measured(tensors, configuration, words, tmp_path):
    path = folder(tmp_path / "m", tensors, configuration)
    with pytest.raises(UserError, match=f"{path}/model.safetensors: .*{words}"):
        output_embedding(path)


@pytest.mark.parametrize("kind", ["llama", "unknown"])
def test_code_beside_a_configuration_does_not_run(kind, tmp_path):
    """Not even that of a kind of model that only this code knows, which is refused."""
    code = {"auto_map": {"AutoConfig": "configuration.Config"}, "model_type": kind}
    path = folder(tmp_path / "m", configuration=LLAMA | code)
    source = "open({!r}, 'w')\nfrom transformers import LlamaConfig as Config\n"
    (path / "configuration.py").write_text(source.format(str(tmp_path / "has run")))
    if kind == "llama":
        assert torch.equal(output_embedding(path).weight, HEAD)
    else:
        with pytest.raises(UserError, match="transformers knows no model of the config.json"):
            output_embedding(path)
    assert not (tmp_path / "has run").exists()


def test_a_matrix_chosen_by_its_name(model):
    found = output_embedding(model, EMBEDDING)
    assert found.description == f"{EMBEDDING}(chosen)" and torch.equal(found.weight, INPUT)
    with pytest.raises(UserError, match="such as lm_head"):
        output_embedding(model, "lm_heat.weight")
    with pytest.raises(UserError, match=r"of shape \(12,\) as model.norm.weight"):
        output_embedding(model, "model.norm.weight")


def test_of_several_files_only_those_with_the_embeddings_are_opened(tmp_path):
    safetensors.save_file({EMBEDDING: INPUT}, tmp_path / "1.safetensors")
    safetensors.save_file(ONLY, tmp_path / "3.safetensors")
    files = dict.fromkeys(OTHERS, "2.safetensors")  # which is not there
    files |= {EMBEDDING: "1.safetensors", LM_HEAD: "3.safetensors"}
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": files}))
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    for named in (tmp_path, index):
        assert torch.equal(output_embedding(named).weight, HEAD)
    outside = tmp_path / "outside.safetensors.index.json"
    outside.write_text(json.dumps({"weight_map": {LM_HEAD: "../3.safetensors"}}))
    with pytest.raises(UserError, match="found ../3.safetensors; expected files of its folder"):
        PretrainedModel(outside)
    head = tmp_path / "3.safetensors"
    head.write_bytes(head.read_bytes()[:-1])
    with pytest.raises(UserError, match=f"^{head}: .* expected whole safetensors"):
        output_embedding(tmp_path)
    with pytest.raises(UserError, match="2.safetensors: unreadable .*No such file"):
        load_pretrained(tmp_path)


def test_counts_are_those_of_the_text(model, text):
    vocabulary = TokenizerVocabulary.load(model / "tokenizer.json", V).recount(text)
    # of <s>, <unk> ("unseen" is unknown), the, …, Athens, and rows without a token
    assert vocabulary.counts.tolist() == [0, 1, 8, 3, 2, 1, 1, 1, 1, 0, 0, 0]
    assert vocabulary.special_ids == [0, 1, 10, 11]
    assert vocabulary.tokens[8:] == ["rome", "Athens", "<row 10>", "<row 11>"]
    marked = text.with_name("marked")  # by a byte-order mark
    marked.write_text("\ufeff" + TEXT)
    assert vocabulary.count_text(marked).equal(vocabulary.counts)
    vocabulary.tokenizer.add_tokens(["two", "more", "unseen"])  # the last has no row
    assert vocabulary.count_text(text).tolist()[:3] == [0, 0, 8]
    (model / "tokenizer.json").write_bytes(b"\xff")
    with pytest.raises(UserError, match=r"/tokenizer.json: unreadable .* expected the model's"):
        TokenizerVocabulary.load(model / "tokenizer.json", V)


LEGACY = [tokenizers.normalizers.Prepend("▁"), tokenizers.normalizers.Replace(" ", "▁")]
SPACES = {
    "byte level": {"pre_tokenizer": tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)},
    "metaspace": {"pre_tokenizer": tokenizers.pre_tokenizers.Metaspace()},
    "legacy": {"normalizer": tokenizers.normalizers.Sequence(LEGACY)},
}


@pytest.mark.parametrize("space", SPACES)
def test_words_follow_another_word(space, tmp_path):
    """The three ways to write the space before a word give the token of the word in running
    text."""
    path, tokens = tmp_path / "tokenizer.json", "Ġ t h e s Ġs ▁ ▁s ▁t".split()
    vocabulary, merges = dict(zip(tokens, range(9), strict=True)), [*map(tuple, ("Ġs", "▁s", "▁t"))]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, merges))
    for name, value in SPACES[space].items():
        setattr(tokenizer, name, value)
    tokenizer.save(str(path))
    words = TokenizerVocabulary.load(path, 9).word_tokenizer(TokenizerOptions())
    assert words.split("se") == ["Ġs" if space == "byte level" else "▁s", "e"]
    assert len(words.indices("se")) == 2 and words.indices("sX") == []  # no token spells X
    tokenizer.add_tokens(["sX"])
    tokenizer.save(str(path))
    words = TokenizerVocabulary.load(path, 10).word_tokenizer(TokenizerOptions())
    assert words.indices("sX") == [9], "without the space"
    with pytest.raises(UserError, match="gpt2: unreadable .*; save that of a model of a hub by"):
        TokenizerVocabulary.load(tmp_path / "gpt2", None)


def test_other_vocabularies(model, tmp_path, text):
    """A table that needs no tokens takes any models; counts are those of one vocabulary."""
    folder(tmp_path / "second", words=[*WORDS[:-1], "Oslo"])
    save_checkpoint(tmp_path / "run" / "checkpoint_last.pt", HEAD, LANGUAGE_MODEL)
    for other, words in (("second", "another vocabulary"), ("run", "of fairseq alone with --data")):
        models = open_models([model, tmp_path / other])
        assert isotropy(models).rows.keys() == {"m", other}
        with pytest.raises(UserError, match=words):
            isotropy(models, train_text=text)


def test_what_a_transformers_model_does_not_take(model):
    with pytest.raises(UserError, match="--bpe: found gpt2"):
        neighbors(open_models([model]), words=["sea"], tokenizer=TokenizerOptions("gpt2"))
    (model / "model.safetensors").rename(model / "adapter_model.safetensors")
    (model / "adapter_config.json").write_text("{}")
    with pytest.raises(UserError, match=r"m: found adapters alone; expected a whole model"):
        open_models([model])
