"""From training with `GatedLoss` to measures of what `save_pretrained` wrote: plain, capped and scaled logits."""

import json
import math

import pytest
import torch

from agg_fairseq.cli.main import main
from tests.conftest import zipf_text
from tests.small_transformers import VOCABULARY, gpt2, llama_like, save_word_tokenizer

pytest.importorskip("transformers", reason="needs transformers: pip install '.[transformers]'")
pytest.importorskip("tokenizers", reason="needs tokenizers: pip install '.[eval]'")

from transformers import AutoModelForCausalLM

from agg_fairseq.integrations.transformers import GatedLoss

MODELS = {
    "GPT-2": gpt2,
    "Gemma 2": lambda: llama_like("Gemma2", final_logit_softcapping=5.0),
    "Granite": lambda: llama_like("Granite", logits_scaling=4.0, tie_word_embeddings=False),
}
BEYOND, BLOCK = 3, 24
"""Rows beyond the tokenizer, and tokens of a block."""


@pytest.mark.parametrize("name", MODELS)
def test_a_model_from_training_to_its_measures(name, tmp_path, capsys):
    texts, blocks = {}, {}
    for split, lines in (("train", 400), ("test", 40)):
        words = zipf_text(lines, words=VOCABULARY - BEYOND - 1, seed=lines)
        texts[split] = tmp_path / f"{split}.txt"
        texts[split].write_text("\n".join(words) + "\n")
        tokens = torch.tensor([int(word[1:]) + 1 for word in " ".join(words).split()])
        blocks[split] = tokens[: len(tokens) // BLOCK * BLOCK].view(-1, BLOCK)

    model = MODELS[name]()
    gated = GatedLoss(model, agg_rare_fraction=0.2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for update in range(20):
        batch = blocks["train"][4 * update : 4 * update + 4]
        model(input_ids=batch, labels=batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        gated.end_update()
    gated.remove()
    folder = tmp_path / "model"
    model.save_pretrained(folder)
    save_word_tokenizer(folder, VOCABULARY - BEYOND)

    def measured(*arguments):
        assert main([*map(str, arguments), "--json", str(tmp_path / "found.json")]) == 0
        return json.loads((tmp_path / "found.json").read_text()), capsys.readouterr().out

    plain = AutoModelForCausalLM.from_pretrained(folder).eval()
    texts["blocks"] = tmp_path / "blocks.txt"  # whole blocks alone, so that all of them weigh the same
    texts["blocks"].write_text(" ".join(f"w{token - 1}" for token in blocks["test"].flatten().tolist()) + "\n")
    loss = plain(input_ids=blocks["test"], labels=blocks["test"]).loss.item()
    scored, _ = measured("eval-lm", "--text", texts["blocks"], "--path", folder, "--tokens-per-sample", BLOCK)
    perplexity = scored["checkpoints"][0]["perplexity"]["total"]
    assert perplexity == pytest.approx(math.exp(loss), rel=1e-5) and perplexity < 0.8 * VOCABULARY

    looked_at, printed = measured("tokens", folder, "--text", texts["train"])
    (found,) = looked_at["models"]
    assert found["unused"] == list(range(VOCABULARY - BEYOND, VOCABULARY)) and "| model |" in printed
    assert {token["id"]: token["count"] for token in found["tokens"]}[1] == texts["train"].read_text().split().count(
        "w0"
    )
