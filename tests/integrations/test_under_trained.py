"""Words that are missing from a text are found in the weights of a GPT-2 that was trained on it, and only those."""

import pytest
import torch

pytest.importorskip("transformers", reason="needs transformers: pip install '.[transformers]'")

from transformers import GPT2Config, GPT2LMHeadModel

from agg_fairseq.checkpoints import open_models
from agg_fairseq.evaluation import under_trained
from agg_fairseq.integrations.transformers import GatedLoss

WORDS, MISSING, SURPLUS, BLOCK = 200, 20, 16, 64
"""Rows beyond the tokenizer are known to be unused."""


@pytest.fixture(scope="module")
def text():
    """Random text in which four words follow each word most of the time, and how often each row occurs in it."""
    generator = torch.Generator().manual_seed(0)
    zipf = 1 / torch.arange(1.0, WORDS + 1)
    zipf[torch.randperm(WORDS, generator=generator)[:MISSING]] = 0
    length = 400 * BLOCK
    any_word = torch.multinomial(zipf, length, replacement=True, generator=generator).tolist()
    followers = torch.multinomial(zipf.expand(WORDS, WORDS), 4, generator=generator).tolist()
    choices = torch.randint(6, (length,), generator=generator).tolist()
    words = any_word[:1]
    for word, choice in zip(any_word[1:], choices[1:], strict=True):
        words.append(followers[words[-1]][choice] if choice < 4 else word)
    text = torch.tensor(words)
    counts = torch.bincount(text, minlength=WORDS + SURPLUS)
    assert (counts[:WORDS] == 0).sum() == MISSING
    return text.view(-1, BLOCK), counts


def trained(blocks, tied, decay, has_agg, updates=300):
    torch.manual_seed(1)
    config = GPT2Config(
        vocab_size=WORDS + SURPLUS, n_layer=2, n_embd=32, n_head=4, n_positions=BLOCK, tie_word_embeddings=tied,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    model = GPT2LMHeadModel(config)
    gated = GatedLoss(model, agg_rare_fraction=0.2) if has_agg else None
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003, betas=(0.9, 0.98), weight_decay=decay)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min(1, (n + 1) / 100) * (1 - n / updates))
    generator = torch.Generator().manual_seed(1)
    for _ in range(updates):
        batch = blocks[torch.randint(len(blocks), (8,), generator=generator)]
        model(batch, labels=batch).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        if has_agg:
            gated.commit_update()
    if has_agg:
        gated.remove()
    return model


@pytest.mark.grid(2)
@pytest.mark.parametrize(
    ("tied", "decay", "has_agg", "indicator"),
    [
        (True, 0.0, False, "distance"),
        (True, 0.1, False, "distance"),
        (False, 0.0, False, "norm"),
        (False, 0.1, False, "norm"),
        (True, 0.1, True, "norm"),
    ],
)
def test_missing_words_are_found(text, tied, decay, has_agg, indicator, tmp_path):
    blocks, counts = text
    trained(blocks, tied, decay, has_agg).save_pretrained(tmp_path)
    (row,) = under_trained(open_models([tmp_path]), unused=range(WORDS, WORDS + SURPLUS)).rows.values()
    listed = counts[[token["id"] for token in row["tokens"] if token["below"] and not token["unused"]]]
    # The threshold is the largest of 16 unused rows, so that 16/17 of the 20 missing words are expected below it. All
    # other words occur, and two of them in the list are 20/22.
    found = int((listed == 0).sum())
    assert row["indicator"] == indicator and found >= 0.8 * MISSING and found >= 0.9 * len(listed)
