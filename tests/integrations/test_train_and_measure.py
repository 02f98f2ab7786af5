"""Folders that GatedHead trained and `save_pretrained` wrote, in `load_pretrained` and `eval-lm`, for
the heads of today's models; what is refused."""

import math
from dataclasses import replace

import pytest
import torch
import transformers
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

from agg_fairseq.checkpoints import open_models
from agg_fairseq.cli.main import main
from agg_fairseq.errors import UserError
from agg_fairseq.evaluation import PlainText, perplexity
from agg_fairseq.integrations import add_log_unigram, load_pretrained
from tests.commands import read_result
from tests.conftest import write_lines, zipf_text
from tests.small_transformers import VOCABULARY, gated_head, gpt2, llama_like, save_word_tokenizer

WORDS, LENGTH = VOCABULARY - 4, 32  # the positions of the models


def log_unigram():
    model = gpt2()
    add_log_unigram(model, torch.arange(VOCABULARY))
    return model


MODELS = {
    "gemma": lambda: llama_like("Gemma2", final_logit_softcapping=5.0),
    "granite": lambda: llama_like(
        "Granite", logits_scaling=0.5, head_dim="default", tie_word_embeddings=False
    ),
    "log-unigram": log_unigram,
    "output layer of another name": lambda: llama_like("GPTNeoX"),
    "buffers that are no parameters": lambda: llama_like(
        "FalconH1", mamba_d_ssm=32, mamba_n_heads=4, mamba_d_head=8, mamba_d_state=8,
        head_dim="default",
    ),
    "bfloat16": lambda: gpt2().bfloat16(),
}  # fmt: skip


@pytest.fixture
def text(tmp_path):
    """Of words that the tokenizer knows; the vocabulary has rows beyond them."""
    return write_lines(tmp_path / "text", zipf_text(100, words=WORDS))


@pytest.mark.parametrize("kind", MODELS)
def test_trained_saved_loaded_and_measured(kind, tmp_path, text):
    """transformers alone loads the same model, unless its class has no place for the log-unigram
    bias. It is measured in float32 whatever it was saved in."""
    model, folder = MODELS[kind](), tmp_path / "model"
    gated_head(model, window=5)
    ids = torch.arange(40).view(2, 20)
    model(input_ids=ids, labels=ids).loss.backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    model.eval().save_pretrained(folder)
    save_word_tokenizer(folder, WORDS + 1)

    loaders = [load_pretrained]
    if kind != "log-unigram":
        loaders.append(AutoModelForCausalLM.from_pretrained)
    for load in loaders:
        loaded = load(folder).eval()
        assert loaded.dtype == model.dtype
        assert loaded(input_ids=ids).logits.equal(model(input_ids=ids).logits)
    models, inputs = open_models([folder], ["m"]), PlainText(text, text)
    weight = model.get_output_embeddings().weight.float()
    assert models["m"].output_embedding.weight.equal(weight)

    found = perplexity(models, inputs, calibrate=inputs)
    vocabulary = inputs.load_vocabularies(models)["m"]
    assert "|dtype:float32|" in found.signature
    assert vocabulary.unused == list(range(WORDS + 1, VOCABULARY))
    row, model = found["m"], model.float()
    assert row["calibrated_perplexity"]["total"] <= row["perplexity"]["total"]
    # with a first token, every token of the text is a target
    config, tokens = model.config, inputs._tokens(vocabulary)
    begun = perplexity(models, replace(inputs, bos=True))["m"]
    assert begun["tokens"] == len(tokens)
    for start, measured in (([], row), ([config.bos_token_id], begun)):
        summed, start = 0.0, torch.tensor(start, dtype=torch.int64)
        for part in tokens.split(LENGTH - len(start)):
            part = torch.cat([start, part])
            if len(part) > 1:
                with torch.no_grad():
                    loss = model(input_ids=part[None], labels=part[None]).loss
                summed += loss.item() * (len(part) - 1)
        expected = math.exp(summed / measured["tokens"])
        assert measured["perplexity"]["total"] == pytest.approx(expected, rel=1e-5)
    config.bos_token_id = None
    config.save_pretrained(folder)
    with pytest.raises(UserError, match="--bos: found no bos_token_id in the config.json of"):
        perplexity(open_models([folder]), replace(inputs, bos=True))


def test_each_file_of_a_folder_is_measured_as_itself(tmp_path, text):
    """Matrix and perplexity of two models in one folder are those of the file that is named."""
    model = gpt2()
    model.save_pretrained(tmp_path)
    other = (tmp_path / "model.safetensors").rename(tmp_path / "other.safetensors")
    with torch.no_grad():
        model.lm_head.weight.mul_(20)
    model.save_pretrained(tmp_path)
    save_word_tokenizer(tmp_path, VOCABULARY)
    models = open_models([tmp_path, other], ["first", "other"])
    for name, factor in (("first", 1), ("other", 20)):
        assert model.lm_head.weight.equal(factor * models[name].output_embedding.weight)
    found = perplexity(models, PlainText(text, text))
    assert found["first"]["perplexity"]["total"] > 2 * found["other"]["perplexity"]["total"]


def test_vocabularies_with_added_tokens(tmp_path, text, capsys):
    """Per word and per byte, models with and without added tokens are compared; and listed tokens
    are a group, also special ones."""
    for name, size in (("base", VOCABULARY - 2), ("tuned", VOCABULARY)):
        gpt2(vocab_size=size).save_pretrained(tmp_path / name)
        save_word_tokenizer(tmp_path / name, size)
    models, inputs = open_models([tmp_path / "base", tmp_path / "tuned"]), PlainText(text, text)
    found, alone = perplexity(models, inputs), perplexity({"m": models["tuned"]}, inputs)
    assert [*found.rows] == ["base", "tuned"] and "|vocabularies:2|" in found.signature
    assert found.table().splitlines()[0].split(" | ")[1:] == ["PPL per word", "PPL per byte |"]
    assert found["tuned"]["perplexity_per"] == alone["m"]["perplexity_per"]
    content, per = text.read_text(), found["tuned"]["perplexity_per"]
    words, size = len(content.split()), len(content.encode())  # a word is a token here
    assert per["word"] == pytest.approx(found["tuned"]["perplexity"]["total"])
    assert size * math.log(per["byte"]) == pytest.approx(words * math.log(per["word"]))

    vocabulary = inputs.load_vocabularies({"m": models["tuned"]})["m"]
    rare, listed = vocabulary.groups("types").members("rare").tolist(), tmp_path / "listed"
    write_lines(listed, [vocabulary.tokens[row] for row in rare])
    by_list = perplexity({"m": models["tuned"]}, PlainText(text), tokens=listed)
    for measure in ("perplexity", "within_perplexity", "expected_over_observed"):
        assert by_list["m"][measure]["listed"] == pytest.approx(alone["m"][measure]["rare"])
    assert main(["eval-lm", str(tmp_path / "tuned"), f"--text={text}", f"--tokens={listed}"]) == 0
    shown = capsys.readouterr().out.partition("\n")[0]
    assert "PPL listed" in shown and "PPL within other" in shown and "E/O listed" in shown
    write_lines(listed, ["<unk>", f"w{VOCABULARY - 2}"])
    assert vocabulary.groups("types", tokens=listed).sizes()["listed"] == 2
    with pytest.raises(UserError, match="found 'w59', which is not in the vocabulary"):
        perplexity(models, PlainText(text), tokens=listed)
    write_lines(text, ["w1 of w2"])
    assert perplexity(models, inputs)["base"]["perplexity_per"] == {}, "an unknown token"


def test_models_that_see_later_tokens_are_refused(tmp_path, text):
    """And a text is cut at the positions that RoBERTa has, which begin after its padding's."""
    sizes = {
        "num_hidden_layers": 1, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 8,
    }  # fmt: skip
    save_word_tokenizer(tmp_path, VOCABULARY)
    for kind, length in ((transformers.BertLMHeadModel, 18), (transformers.RobertaForCausalLM, 16)):
        for is_decoder in (True, False):
            config = kind.config_class(
                vocab_size=VOCABULARY, max_position_embeddings=18, is_decoder=is_decoder, **sizes
            )
            kind(config).save_pretrained(tmp_path)
            given = open_models([tmp_path], ["m"]), PlainText(text, text)
            if is_decoder:
                signature = perplexity(*given).signature
                assert f"|tokens-per-sample:{length}|context:0|" in signature
                continue
            words = f"found a {kind.__name__}, whose logits depend on later"
            with pytest.raises(UserError, match=words):
                perplexity(*given)


def test_options_of_from_pretrained_and_what_is_refused(tmp_path, text, capsys):
    model = gpt2()
    model.save_pretrained(tmp_path)
    save_word_tokenizer(tmp_path, VOCABULARY)
    options = {"use_cache": False, "dtype": "bfloat16", "output_loading_info": True}
    loaded, info = load_pretrained(tmp_path, **options)
    assert not loaded.config.use_cache and loaded.dtype == torch.bfloat16
    assert not info["missing_keys"]
    models = open_models([tmp_path], ["m"])
    with pytest.raises(UserError, match="--train-text: found none"):
        perplexity(models, PlainText(text))
    found = perplexity(models, PlainText(text), occurrences_in=text)
    assert set(found.rows) == {"m", "human"}, "a text to group by needs no training text"
    start = ["eval-lm", str(tmp_path), f"--text={text}", f"--train-text={text}"]
    assert main([*start, f"--json={tmp_path}/found.json"]) == 0
    total = read_result(tmp_path / "found.json").rows[tmp_path.name]["perplexity"]["total"]
    assert total == pytest.approx(found["m"]["perplexity"]["total"])
    with torch.no_grad():
        model.transformer.h[0].attn.c_proj.bias.fill_(float("nan"))
    model.save_pretrained(tmp_path)
    assert main([*start, f"--json={tmp_path}/o.json"]) == 2
    assert "found nan as " in capsys.readouterr().err and not (tmp_path / "o.json").exists()
    tensors = model.state_dict()
    for name in ("transformer.ln_f.weight", "transformer.ln_f.bias", "lm_head.weight"):
        del tensors[name]
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(UserError, match="found no transformer.ln_f.bias"):
        load_pretrained(tmp_path)
