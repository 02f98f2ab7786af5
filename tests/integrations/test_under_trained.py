"""examples/under_trained_tokens.py: tokens that are missing from a text are found in the weights,
and only those."""

import re
import runpy

import pytest
import torch

pytest.importorskip("transformers", reason="needs transformers: pip install '.[transformers]'")

from transformers import GPT2Config, GPT2LMHeadModel

from agg_fairseq.checkpoints import open_models
from agg_fairseq.data.binarized import load_dictionary
from agg_fairseq.data.tokenizer_vocabulary import TokenizerVocabulary
from agg_fairseq.data.vocabulary import BinarizedVocabulary
from agg_fairseq.integrations.transformers import GatedLoss
from tests.commands import LANGUAGE_MODEL, save_checkpoint
from tests.conftest import ROOT
from tests.small_transformers import save_word_tokenizer

EXAMPLE = runpy.run_path(str(ROOT / "examples" / "under_trained_tokens.py"))
WORDS, MISSING, SURPLUS, BLOCK = 200, 20, 16, 64
"""Rows beyond the tokenizer are known to be unused."""


@pytest.fixture(scope="module")
def text():
    """Random text in which four words follow each word most of the time, and how often each row
    occurs in it."""
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
    gated = GatedLoss(model, rare_fraction=0.2) if has_agg else None
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=0.003, betas=(0.9, 0.98), weight_decay=decay
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda n: min(1, (n + 1) / 100) * (1 - n / updates)
    )
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
    ((_, model),) = open_models([tmp_path]).items()
    found = EXAMPLE["indicator"](model, range(WORDS, WORDS + SURPLUS))
    listed = counts[(found.values <= found.threshold) & ~found.is_known]
    # The threshold is the largest of 16 unused rows, so that 16/17 of the 20 missing words are
    # expected below it. All other words occur, and two of them in the list are 20/22.
    missing = int((listed == 0).sum())
    assert found.name == indicator and missing >= 0.8 * MISSING and missing >= 0.9 * len(listed)


def test_unused_distance_by_hand():
    weight = torch.tensor([[3.0, 0.0], [0.0, 2.0], [4.0, 3.0], [-1.0, 0.0], [0.0, 0.0]])
    # To (3, 2), the sum of the first two: cosines 3/√13, 2/√13, 18/(5√13), −3/√13.
    unused_distance = EXAMPLE["unused_distance"]
    assert unused_distance(weight, [0])[1:].tolist() == pytest.approx([1, 0.2, 2, 0])
    found = unused_distance(weight, [0, 1])
    assert found.tolist() == pytest.approx([1, 1, 1 - 18 / 5 / 13**0.5, 1 + 3 / 13**0.5, 0])


def test_what_is_printed(tmp_path, lm_runs, lm_data, capsys):
    """Of a model of transformers, with what its tokenizer knows or without, and of a checkpoint of
    fairseq."""

    def printed(*arguments):
        EXAMPLE["main"](list(map(str, arguments)))
        return " ".join(capsys.readouterr().out.split())

    (tmp_path / "text").write_text("w1 w2 w1\n")
    trained(torch.zeros(1, 4, dtype=torch.long), False, 0.0, False, updates=1).save_pretrained(
        tmp_path
    )
    save_word_tokenizer(tmp_path, WORDS)
    said = printed(tmp_path, "--train-text", tmp_path / "text", "--top", WORDS)
    assert "200 tokens have a norm of at most" in said
    assert "(16 known unused)" in said
    assert said.endswith(" |")
    assert said.count("'w") == WORDS - 1 and re.search(r"'w1' \| [\d.]+ \| 2 \|", said)
    weights, matrix = tmp_path / "model.safetensors", "transformer.wte.weight"
    (tmp_path / "tokenizer.json").unlink()
    assert "(2 known unused)" in printed(weights, "--matrix", matrix, "--unused", 3, 5, 5)
    # which is like itself
    assert "have a norm of" in printed(weights, "--matrix", matrix, "--unused", 3)
    embeddings = torch.randn(
        len(load_dictionary(lm_data)), 8, generator=torch.Generator().manual_seed(1)
    )
    unused = BinarizedVocabulary.load(lm_data, None).unused
    embeddings[unused] = 1 + 0.01 * embeddings[unused]
    checkpoint = save_checkpoint(
        tmp_path / "fairseq" / "checkpoint_best.pt", embeddings, LANGUAGE_MODEL
    )
    assert f"have a distance of at most 0.000 ({len(unused)} known" in printed(
        checkpoint, "--data", lm_data
    )
    for arguments, message in (
        ([lm_runs / "agg", "--data", lm_data], "expected tied embeddings, trained without gates"),
        (
            [weights, "--matrix", matrix, "--train-text", tmp_path / "text"],
            "tokenizer.json: found no such file",
        ),
        (
            [weights, "--matrix", matrix, "--unused", 216],
            "--unused: found [216]; expected rows from 0 to 215 of",
        ),
        ([tmp_path / "no"], "found no such file"),
    ):
        with pytest.raises(SystemExit):
            printed(*arguments)
        assert message in capsys.readouterr().err


def test_bytes_that_are_no_text_are_unused(tmp_path):
    tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers: pip install '.[eval]'")
    tokenizer = tokenizers.ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(
        ["the sea the lake the sea\n" * 9], vocab_size=270, show_progress=False
    )
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    rows = tokenizer.get_vocab_size()
    vocabulary = TokenizerVocabulary.load(tmp_path / "tokenizer.json", rows + 1)
    assert len(vocabulary.unused) == 14 and vocabulary.unused[-1] == rows
    assert {"À", "Á", "õ", "ÿ"} < {vocabulary.tokens[row] for row in vocabulary.unused}
