"""`agg-fairseq groups`: sizes and shares of the frequency groups, counted by hand in small
texts."""

import math
import shutil
from pathlib import Path

import pytest

from agg_fairseq.data.binarized import count_tokens, excluded_tokens, load_dictionary
from agg_fairseq.errors import UserError
from agg_fairseq.evaluation import group_shares
from agg_fairseq.metrics import frequency_groups
from tests.commands import cells, read_result, run
from tests.small_transformers import save_word_tokenizer


def test_of_binarized_text(lm_data):
    result = group_shares(lm_data, tokens_per_update=64, rare_fraction=0.25)
    dictionary = load_dictionary(lm_data)
    counts = {
        split: count_tokens(lm_data, dictionary, split) for split in ("train", "valid", "test")
    }
    train = counts["train"]
    groups = frequency_groups(train, excluded=excluded_tokens(dictionary))
    # without special tokens, and those that only fill the dictionary
    words = 4 + (train[4:] > 0).nonzero().squeeze(1)
    rarest = words[train[words] <= train[words].double().quantile(0.25)]  # with all ties
    members = {name: groups.members(name) for name in groups.names} | {"rarest 25%": rarest}
    for name, tokens in members.items():
        row = result[name]
        assert (row["types"], row["fewest"], row["most"]) == (
            len(tokens),
            train[tokens].min(),
            train[tokens].max(),
        )
        for split, one in counts.items():
            assert row["target_share"][split] == pytest.approx(
                one[tokens].sum().item() / one.sum().item()
            )
        per_update = 64 * train[tokens].double().mean().item() / train.sum().item()
        assert row["updates_per_occurrence"] == pytest.approx(1 / per_update)
    assert result["total"]["types"] == len(words) + int((train[:4] > 0).sum())
    assert result["total"]["target_share"]["train"] == pytest.approx(1)


def test_of_pairs_and_of_text_with_a_tokenizer(mt_data, tmp_path, capsys, monkeypatch):
    # of the target side
    assert group_shares(mt_data)["total"]["target_share"]["train"] == pytest.approx(1)
    pytest.importorskip("tokenizers")
    save_word_tokenizer(tmp_path, 6)
    (tmp_path / "train.txt").write_text("w0 w0 w0 w0 w1 w1 w1 w2 w2 w3\n")
    monkeypatch.chdir(tmp_path)
    options = ("train.txt", "--tokenizer", ".", "--json", "o.json")
    table = cells(run(capsys, "groups", *options))
    assert list(table["frequent"].values()) == ["1", "4", "4", "40.00"]
    assert list(table["rare"].values()) == ["1", "1", "1", "10.00"]
    assert list(table["unseen"].values()) == ["1", "0", "0", "0.00"]
    result = read_result(tmp_path / "o.json")
    assert result["total"]["types"] == 4
    assert result["rare"]["target_share"]["train.txt"] == pytest.approx(0.1)
    counted = group_shares("train.txt", tokenizer=".", tokens_per_update=1, beta2=0.7)
    assert (
        counted["forgotten with β₂ = 0.7"]["types"],
        counted["forgotten with β₂ = 0.95"]["types"],
    ) == (1, 0)
    # w0, 4 of 10 targets, comes back after 3.03 updates; the half-life is 2.31
    assert counted["forgotten with β₂ = 0.7"]["target_share"]["train.txt"] == pytest.approx(0.4)
    change = (math.log(2) / 0.3 * (1 - math.exp(-0.4))) ** 0.4 - 1
    assert counted["forgotten with β₂ = 0.7"]["change_by_beta2"] == pytest.approx(change, rel=1e-9)
    assert counted.facts["prediction"].startswith(
        "s = 40.0%: β₂ = 0.999 changes the perplexity by -10.3%, unreliable"
    )


def test_all_parts_of_the_training_split(lm_data, tmp_path):
    for name, source in (("train", "valid"), ("train1", "test")):
        for suffix in ("bin", "idx"):
            shutil.copy(Path(lm_data) / f"{source}.{suffix}", tmp_path / f"{name}.{suffix}")
    shutil.copy(Path(lm_data) / "dict.txt", tmp_path)
    dictionary = load_dictionary(lm_data)
    counts = count_tokens(lm_data, dictionary, "valid") + count_tokens(lm_data, dictionary, "test")
    assert group_shares(tmp_path)["total"]["most"] == counts.max()


def test_group_shares_refuses_options(lm_data):
    for options, message in (
        ({"data": lm_data, "beta2": 0.98}, "--beta2: found it without --tokens-per-update"),
        ({"data": lm_data / "dict.txt"}, "--tokenizer: found none for the text"),
    ):
        with pytest.raises(UserError, match=message):
            group_shares(**options)
