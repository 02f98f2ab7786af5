"""Words that are missing from a text are found in the weights of a GPT-2 that was trained on it, and only those."""

import pytest
import torch

pytest.importorskip("transformers", reason="needs transformers: pip install '.[transformers]'")

from scripts.ours import under_trained

WORDS, MISSING, BLOCKS = 200, 20, 400


@pytest.fixture(scope="module")
def text():
    """Random text in which four words follow each word most of the time, and how often each row occurs in it."""
    generator = torch.Generator().manual_seed(0)
    zipf = 1 / torch.arange(1.0, WORDS + 1)
    zipf[torch.randperm(WORDS, generator=generator)[:MISSING]] = 0
    length = BLOCKS * under_trained.BLOCK
    any_word = torch.multinomial(zipf, length, replacement=True, generator=generator).tolist()
    followers = torch.multinomial(zipf.expand(WORDS, WORDS), 4, generator=generator).tolist()
    choices = torch.randint(6, (length,), generator=generator).tolist()
    words = any_word[:1]
    for word, choice in zip(any_word[1:], choices[1:], strict=True):
        words.append(followers[words[-1]][choice] if choice < 4 else word)
    text = torch.tensor(words)
    counts = torch.bincount(text, minlength=WORDS + under_trained.SURPLUS)
    assert (counts[:WORDS] == 0).sum() == MISSING
    return text.view(-1, under_trained.BLOCK), counts


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
def test_missing_words_are_found(text, tied, decay, has_agg, indicator, monkeypatch):
    monkeypatch.setattr(under_trained, "BATCH", 8)
    blocks, counts = text
    model = under_trained.gpt2(counts, 32, tied=tied, has_bias=False, seed=1)
    found = under_trained.found(under_trained.train(model, blocks, 300, decay=decay, has_agg=has_agg, seed=1), counts)
    # The threshold is the largest of 16 unused rows, so that 16/17 of the 20 missing words are expected below it. All
    # other words occur, and two of them in the list are 20/22.
    assert found["indicator"] == indicator and found["recall"] >= 0.8 and found["precision"] >= 0.9, found


def test_benchmark_of_under_trained_tokens(tmp_path, capsys):
    (tmp_path / "wiki.train.tokens").write_text("the sea , a lake and rivers\nsome words of a text\n" * 500)
    options = ["--data", tmp_path, "--vocabulary", 280, "--planted", 3, "--updates", 2, "--seeds", 1, 2]
    under_trained.main([*map(str, options), "--json", str(tmp_path / "numbers.json")])
    assert capsys.readouterr().out.count("\n|") == 2 + 2 * 4 and (tmp_path / "numbers.json").exists()
