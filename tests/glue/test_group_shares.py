"""`agg-fairseq groups`: sizes and shares of the frequency groups, counted by hand in small texts."""

import json

import pytest
import torch

from agg_fairseq.cli.main import main
from agg_fairseq.data.binarized import count_tokens, load_dictionary
from agg_fairseq.errors import UserError
from agg_fairseq.evaluation import group_shares
from agg_fairseq.metrics import frequency_groups


def test_of_binarized_text(lm_data):
    result = group_shares(lm_data, tokens_per_update=64, rare_fraction=0.25)
    dictionary = load_dictionary(lm_data)
    counts = {split: count_tokens(lm_data, dictionary, split) for split in ("train", "valid", "test")}
    train = counts["train"]
    groups = frequency_groups(train, excluded=(dictionary.pad(), dictionary.bos()))
    words = 4 + (train[4:] > 0).nonzero().squeeze(1)  # without special tokens, and those that only fill the dictionary
    rarest = words[torch.argsort(train[words], descending=True, stable=True)][-int(len(words) / 4 + 0.5) :]
    members = {name: groups.members(name) for name in groups.names} | {"rarest 25%": rarest}
    for name, tokens in members.items():
        row = result[name]
        assert (row["types"], row["fewest"], row["most"]) == (len(tokens), train[tokens].min(), train[tokens].max())
        for split, one in counts.items():
            assert row[f"{split} (%)"] == pytest.approx(100 * one[tokens].sum().item() / one.sum().item())
        per_update = 64 * train[tokens].double().mean().item() / train.sum().item()
        assert row["updates per occurrence"] == pytest.approx(1 / per_update)
    assert result["total"]["types"] == len(dictionary) - 2 and result["total"]["train (%)"] == pytest.approx(100)


def test_of_pairs_and_of_text_with_a_tokenizer(mt_data, tmp_path, capsys):
    assert group_shares(mt_data)["total"]["train (%)"] == pytest.approx(100)  # of the target side
    tokenizers = pytest.importorskip("tokenizers")
    words = {"<unk>": 0, "a": 1, "b": 2, "c": 3, "d": 4, "e": 5}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "train.txt").write_text("a a a a b b b c c d\n")
    (tmp_path / "test.txt").write_text("a e e e\n")
    arguments = ["groups", "--text", "train.txt", "--tokenizer", ".", "--others", "test.txt", "--json", "o.json"]
    arguments = [str(tmp_path / one) if "." in one and "-" not in one else one for one in arguments]
    assert main(arguments) == 0
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in capsys.readouterr().out.splitlines()[:7]]
    table = {row[0]: dict(zip(lines[0], row, strict=True)) for row in lines[2:]}
    assert table["frequent"] | {"": ""} == {
        "": "", "types": "2", "fewest": "3", "most": "4", "train.txt (%)": "70.00", "test.txt (%)": "25.00",
    }  # fmt: skip
    assert table["rare"]["fewest"] == table["rare"]["most"] == "0" and table["rare"]["test.txt (%)"] == "75.00"
    assert json.loads((tmp_path / "o.json").read_text())["groups"]["total"] == 5


def test_refused(lm_data, tmp_path):
    with pytest.raises(UserError, match="expected either DATA"):
        group_shares()
    with pytest.raises(UserError, match="found it without --tokenizer"):
        group_shares(text=tmp_path)
    with pytest.raises(UserError, match="--tokens-per-update: expected at least 1"):
        group_shares(lm_data, tokens_per_update=0)
    with pytest.raises(UserError, match="--rare-fraction: expected a value in"):
        group_shares(lm_data, rare_fraction=1.0)
