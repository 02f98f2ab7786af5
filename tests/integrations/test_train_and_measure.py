"""From a training with `GatedLoss` to `eval-lm`, for the heads of today's models; what is
refused."""

import math

import pytest
import torch

from agg_fairseq.checkpoints import open_models
from agg_fairseq.cli.main import main
from agg_fairseq.errors import UserError
from agg_fairseq.evaluation import PlainText, perplexity
from agg_fairseq.evaluation.inputs import load_vocabulary
from tests.conftest import write_lines, zipf_text
from tests.small_transformers import VOCABULARY, gpt2, llama_like, save_word_tokenizer

pytest.importorskip("transformers", reason="needs transformers 5: pip install '.[transformers]'")
pytest.importorskip("tokenizers", reason="needs tokenizers: pip install '.[eval]'")

from safetensors.torch import save_file

from agg_fairseq.integrations import add_log_unigram, load_pretrained
from agg_fairseq.integrations.transformers import GatedLoss
from tests.commands import read_result

WORDS, LENGTH = VOCABULARY - 4, 32  # the positions of the models
SCALED = {"logits_scaling": 0.5, "head_dim": "default", "tie_word_embeddings": False}
MODELS = {
    "gemma": lambda: llama_like("Gemma2", final_logit_softcapping=5.0),
    "granite": lambda: llama_like("Granite", **SCALED),
    "gpt2": gpt2,
    "gpt2-log-unigram": gpt2,
}


@pytest.mark.parametrize("kind", MODELS)
def test_trained_loaded_evaluated_and_looked_at(kind, tmp_path):
    """20 updates; transformers alone loads the same model, unless its class has no place for the
    log-unigram bias."""
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

    save_word_tokenizer(tmp_path, WORDS + 1)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(tmp_path / "tokenizer.json"), unk_token="<unk>"
    )
    text = tmp_path / "text"
    write_lines(text, zipf_text(100, words=WORDS))
    ids = torch.tensor(tokenizer(text.read_text())["input_ids"])

    model, has_bias = MODELS[kind](), kind.endswith("log-unigram")
    if has_bias:
        add_log_unigram(model, torch.bincount(ids, minlength=VOCABULARY))
    gated = GatedLoss(model, rare_fraction=0.3, window=5, tokenizer=tokenizer)
    optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], lr=0.01)
    blocks = ids[: len(ids) // LENGTH * LENGTH].view(-1, LENGTH)
    losses = []
    for update in range(20):
        rows = blocks[torch.arange(4 * update, 4 * update + 4) % len(blocks)]
        loss = model(input_ids=rows, labels=rows).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        gated.commit_update()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.1
    model.save_pretrained(tmp_path / kind)
    tokenizer.save_pretrained(tmp_path / kind)

    load = load_pretrained if has_bias else AutoModelForCausalLM.from_pretrained
    loaded = load(tmp_path / kind).eval()
    model.eval()
    assert loaded(input_ids=blocks[:2]).logits.equal(model(input_ids=blocks[:2]).logits)

    def measured(*arguments):
        assert main([*map(str, arguments), "--json", str(tmp_path / "found.json")]) == 0
        return read_result(tmp_path / "found.json")[kind]

    found = measured(
        "eval-lm", tmp_path / kind, "--text", text, "--train-text", text, "--calibrate", text
    )
    assert found["expected_over_observed"]["total"] == pytest.approx(1, abs=1e-5)
    assert found["calibrated_perplexity"]["total"] <= found["perplexity"]["total"]
    with torch.no_grad():
        parts = [part[None] for part in ids.split(LENGTH) if len(part) > 1]
        summed = sum(
            loaded(input_ids=part, labels=part).loss.item() * (part.numel() - 1) for part in parts
        )
    assert found["perplexity"]["total"] == pytest.approx(
        math.exp(summed / found["tokens"]), rel=1e-5
    )
    vocabulary = load_vocabulary(open_models([tmp_path / kind]), None, text)
    assert vocabulary.unused == list(range(WORDS + 1, VOCABULARY))
    assert vocabulary.counts[1] == text.read_text().split().count("w0")


def test_each_file_of_a_folder_is_measured_as_itself(tmp_path):
    """Matrix and perplexity of two models in one folder are those of the file that is named."""
    model = gpt2()
    model.save_pretrained(tmp_path / "both")
    with torch.no_grad():
        model.transformer.wte.weight.mul_(20)
    model.save_pretrained(tmp_path / "other")
    (tmp_path / "other" / "model.safetensors").rename(tmp_path / "both" / "other.safetensors")
    save_word_tokenizer(tmp_path / "both", VOCABULARY)
    write_lines(tmp_path / "text", zipf_text(100, words=WORDS))
    models = open_models(
        [tmp_path / "both", tmp_path / "both" / "other.safetensors"], ["first", "other"]
    )
    first, other = (models[name].output_embedding.weight for name in models)
    assert other.equal(20 * first) and other.equal(model.lm_head.weight)
    found = perplexity(models, PlainText(tmp_path / "text", tmp_path / "text"))
    assert found["other"]["perplexity"]["total"] > 2 * found["first"]["perplexity"]["total"]


OTHERS = {
    "output layer of another name": lambda: llama_like("GPTNeoX"),
    "the same, tied": lambda: llama_like("GPTNeoX", tie_word_embeddings=True),
    "buffers that are no parameters": lambda: llama_like(
        "FalconH1",
        mamba_d_ssm=32,
        mamba_n_heads=4,
        mamba_d_head=8,
        mamba_d_state=8,
        head_dim="default",
    ),
    "bfloat16": lambda: gpt2().bfloat16(),
}


def saved_with_text(model, folder):
    """A folder with the model, its tokenizer and a text."""
    model.eval().save_pretrained(folder)
    save_word_tokenizer(folder, VOCABULARY)
    write_lines(folder / "text", zipf_text(100, words=WORDS))
    return PlainText(folder / "text", folder / "text")


@pytest.mark.parametrize("kind", OTHERS)
def test_any_model_is_loaded_whole_and_measured(kind, tmp_path):
    """In float32 whatever it was saved in, with the output layer that it has."""
    model = OTHERS[kind]()
    text = saved_with_text(model, tmp_path)
    found = perplexity(open_models([tmp_path], ["m"]), text)
    assert "|dtype:float32|" in found.signature
    head = open_models([tmp_path], ["m"])["m"].output_embedding.weight
    assert head.equal(model.get_output_embeddings().weight.float())
    loaded, ids = load_pretrained(tmp_path), torch.arange(20)[None]
    assert loaded.eval()(input_ids=ids).logits.equal(model(input_ids=ids).logits)
    assert {one.dtype for one in loaded.parameters()} == {model.dtype}
    vocabulary = text.load_vocabulary(open_models([tmp_path]))
    tokens, model = text._tokens(vocabulary), model.float()
    with torch.no_grad():
        parts = [part[None] for part in tokens.split(LENGTH) if len(part) > 1]
        summed = sum(model(input_ids=one, labels=one).loss * (one.numel() - 1) for one in parts)
    total = math.exp(summed / found["m"]["tokens"])
    assert found["m"]["perplexity"]["total"] == pytest.approx(total, rel=1e-5)


def test_options_of_from_pretrained_and_what_is_refused(tmp_path, capsys):
    model = gpt2()
    text = saved_with_text(model, tmp_path)
    loaded, info = load_pretrained(
        tmp_path, use_cache=False, dtype="bfloat16", output_loading_info=True
    )
    assert not loaded.config.use_cache
    assert loaded.dtype == torch.bfloat16
    assert not info["missing_keys"]
    with pytest.raises(UserError, match="--train-text: found none"):
        perplexity(open_models([tmp_path]), PlainText(text.text))
    found = perplexity(
        open_models([tmp_path], ["m"]), PlainText(text.text), occurrences_in=text.text
    )
    assert set(found.rows) == {"m", "human"}, "a text to group by needs no training text"
    with torch.no_grad():
        model.transformer.h[0].attn.c_proj.bias.fill_(float("nan"))
    model.save_pretrained(tmp_path)
    arguments = map(str, ("eval-lm", tmp_path, "--text", text.text, "--train-text", text.text))
    assert main([*arguments, "--json", str(tmp_path / "o.json")]) == 2
    assert "found nan as " in capsys.readouterr().err and not (tmp_path / "o.json").exists()
    tensors = {name: one for name, one in model.state_dict().items() if "ln_f" not in name}
    del tensors["lm_head.weight"]
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(UserError, match="found no transformer.ln_f.bias; expected all parameters"):
        load_pretrained(tmp_path)
