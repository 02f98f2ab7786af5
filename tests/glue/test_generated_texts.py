"""The commands `generate-lm` and `text-metrics`, and the continuation of prefixes."""

import json
import shutil

import pytest
import torch

from agg_fairseq.checkpoints import Checkpoint
from agg_fairseq.data.binarized import load_dictionary, read_tokens
from agg_fairseq.fairseq_plugin.decoding import continuation
from agg_fairseq.fairseq_plugin.models.from_checkpoint import build_model
from tests.commands import cells, read_result, refused, run, save_model, table, write_texts
from tests.conftest import read_lines, write_lines
from tests.small_trainings import ADAPTIVE, build

PAD, BOS = 1, 0


@pytest.mark.grid(1)
@pytest.mark.parametrize(
    "options", ["", "--decoder-learned-pos", ADAPTIVE], ids=["", "learned", "adaptive"]
)
def test_greedy_continuation_equals_a_full_forward_per_step(lm_data, options):
    model = build(lm_data, options).model.eval()
    tokens = torch.randint(4, 60, (4, 5))
    found = continuation(model, tokens, 9, forbidden=(PAD, BOS))
    for _ in range(9):
        logits = model.get_normalized_probs(model(tokens), log_probs=True).detach()[:, -1]
        logits[:, [PAD, BOS]] = -torch.inf
        tokens = torch.cat([tokens, logits.argmax(1, keepdim=True)], 1)
    assert found.equal(tokens[:, 5:]) and len(found.unique()) > 1


class Bigrams(torch.nn.Module):
    """A model that knows the log P after each token, and is its own decoder, without features; its
    logits are half of that."""

    decoder = property(lambda self: self)

    def __init__(self, log_probs):
        super().__init__()
        self.log_probs = log_probs

    def forward(self, tokens, incremental_state):
        return self.log_probs[tokens] / 2, None

    def get_normalized_probs(self, output, log_probs):
        return 2 * output[0]


def test_draws_follow_the_renormalized_probabilities():
    """Of 0.4, 0.3, 0.2, 0.1 after any token: the 3 likeliest by 4/9, 3/9, 2/9; none of probability
    0."""
    model = Bigrams(torch.tensor([2.0, 4.0, 1.0, 3.0, 0.0]).log().repeat(5, 1))
    prefixes, draws = torch.zeros(2000, 1, dtype=torch.int64), torch.rand(2000, 5)

    def shares(topk):
        found = continuation(model, prefixes, 5, draws=draws, topk=topk)
        return torch.bincount(found.flatten(), minlength=5) / found.numel()

    three = torch.tensor([2 / 9, 4 / 9, 0, 3 / 9, 0])
    torch.testing.assert_close(shares(3), three, atol=0.02, rtol=0)  # 4 deviations
    assert shares(5)[4] == 0 and shares(1)[1] == 1
    assert (continuation(model, prefixes, 5) == 1).all()
    assert (continuation(model, prefixes, 5, forbidden=(1,)) == 3).all()


@pytest.fixture
def generate(lm_data, tmp_path):
    def generated(checkpoint, *options, prefixes=None):
        output = tmp_path / "new" / "t.jsonl"
        start = ("--prefixes", prefixes) if prefixes else ("--prefix-length 5",)
        arguments = ("--data", lm_data, "--output", output, *start, "--length 9")
        printed = run("generate-lm", checkpoint, *arguments, *options)
        return list(map(json.loads, read_lines(output))), printed

    return generated


@pytest.fixture(scope="module")
def stream(lm_data):
    dictionary = load_dictionary(lm_data)
    tokens = next(read_tokens(lm_data / "test", dictionary))
    return [dictionary[token] for token in tokens]


def test_blocks_are_the_stream_of_the_split(generate, stream, checkpoint, tmp_path):
    texts, printed = generate(checkpoint, "--json", tmp_path / "j")
    number, words = len(stream) // 14, []
    for text in texts:
        parts = [text[name].split(" ") for name in ("prefix", "continuation", "reference")]
        assert list(map(len, parts)) == [5, 9, 9] and len(text) == 3
        words += parts[0] + parts[2]
    assert words == stream[: number * 14]
    signature = f"split:test|texts:{number}|prefix:5|length:9|decoding:greedy|seed:1|version:"
    assert f"\n{signature}" in printed
    (row,) = read_result(tmp_path / "j").rows.values()
    assert (row["texts"], row["generated_tokens"]) == (number, number * 9)
    assert row["unused_tokens"] == len(stream) - number * 14


@pytest.mark.parametrize("options", ["", "--topk 8"], ids=["greedy", "sampled"])
def test_the_first_texts_are_those_of_all_whatever_the_batch(generate, checkpoint, options):
    whole, _ = generate(checkpoint, options)
    found, _ = generate(checkpoint, options, "--batch-size 2 --max-texts 3")
    assert found == whole[:3]


def test_bos_before_the_prefix_where_the_model_had_it(generate, lm_data, stream, tmp_path):
    options = "--add-bos-token --decoder-learned-pos --max-target-positions 32"
    path = save_model(tmp_path / "bos.pt", lm_data, options, updates=3)
    text = generate(path)[0][0]
    assert text["prefix"].split(" ") == stream[:5], "the bos is none of the text's tokens"
    model, task = build_model(Checkpoint(path), lm_data)
    dictionary, found = task.source_dictionary, []
    prefix = torch.tensor([[BOS, *map(dictionary.index, stream[:5])]])
    for start in (0, 1):
        tokens = continuation(model, prefix[:, start:], 9, forbidden=(PAD, BOS))[0]
        found.append(" ".join(map(dictionary.__getitem__, tokens)))
    assert text["continuation"] == found[0] != found[1]


def test_prefixes_of_a_file(generate, checkpoint, tmp_path):
    """Lines that say what prefixes of the split are, ends of lines included, are continued as
    these are, and other lines by themselves, whatever their lengths; they have no references."""
    texts, _ = generate(checkpoint, "--topk 8")
    lines = [text["prefix"] for text in texts]
    assert " </s> " in "".join(lines)
    file = write_lines(tmp_path / "lines", [*lines, "w1", "w3  never-seen w4 w5 w6 w7 w8", "", " "])
    found, _ = generate(checkpoint, "--topk 8 --json", tmp_path / "j", prefixes=file)
    *as_before, first, second = found
    assert as_before == [{**text, "reference": ""} for text in texts]
    assert (first["prefix"], second["prefix"]) == ("w1", "w3 <unk> w4 w5 w6 w7 w8")
    assert len(first["continuation"].split(" ")) == len(second["continuation"].split(" ")) == 9
    settings = read_result(tmp_path / "j").settings
    expected = {"prefixes": "lines", "bpe": "words", "<unk>": " ".join(lines).count("<unk>") + 1}
    assert settings.items() >= expected.items() and not {"split", "prefix"} & settings.keys()


def test_generate_lm_refuses(lm_data, checkpoint, tmp_path):
    larger = shutil.copytree(lm_data, tmp_path / "larger")
    with open(larger / "dict.txt", "a") as file:
        file.write("another 1\n")
    first, second = (
        write_lines(tmp_path / "1", ["", "w1"]),
        write_lines(tmp_path / "2", ["w1", "", "w2"]),
    )
    for data, *options, words in (
        (lm_data, "--prefix-length 5 --length 5000", "expected at least 5005"),
        (larger, "--prefix-length 5", "pass the model's own data"),
        (lm_data, "--f2-decoding sample-class", "found an ordinary softmax in"),
        (lm_data, "--prefixes", first, "line 1: found no token"),
        (lm_data, "--prefixes", second, "line 2: found no token"),
    ):
        start = (checkpoint, "--data", data, "--output", tmp_path / "t.jsonl", "--length 9")
        assert words in refused("generate-lm", *start, *options)
    assert not (tmp_path / "t.jsonl").exists()


def test_columns_of_text_metrics(tmp_path):
    """References: a 4, b 3, c 1. Continuations: a 5, b 4, c 3; one of the three ends in `a b c`
    twice."""
    texts = (["a b", "a a", "b c a b c a b c"], ["a b c", "a b", "a a b"])
    printed = run("text-metrics", write_texts(tmp_path / "model.jsonl", *texts))
    header, (model, human) = table(printed)
    columns = "KLD MSJ-1 MSJ-2 MSJ-3 SB-1 SB-2 SB-3 Dist-1 Dist-2 Dist-3 Rep (%) Uniq"
    assert " ".join(header).strip() == columns
    # KLD: 1/2 ln(6/5) + 3/8 ln(9/8) + 1/8 ln(1/2) = 0.0487. MS-Jaccard-1: (4 + 3 + 1) / (5 + 4 + 3)
    assert model[:3] == ["model", "0.05", "66.7"] and model[-2:] == ["33.33", "3"]
    assert human[:3] == ["human", "—", "—"] and human[-2] == "0.00"
    assert human[5] == "64.7" and human[8] == "88.9"
    assert "\ntexts:3|tokens:8|" in printed and "|ms-jaccard:counts-per-text,unpadded|" in printed


def test_shares_of_frequency_groups(lm_data, tmp_path):
    words = [line.split()[0] for line in read_lines(lm_data / "dict.txt")]
    rarest = next(word for word in reversed(words) if not word.startswith("madeupword"))
    texts = ([f"w0 w0 w0 {rarest}"] * 2, ["w0 <unk>", f"{rarest} </s>"])
    printed = run("text-metrics", write_texts(tmp_path / "m.jsonl", *texts), "--data", lm_data)
    table = cells(printed)
    for row, frequent, very_rare in (("m", "75.0", "25.0"), ("human", "25.0", "25.0")):
        assert table[row]["frequent (%)"] == frequent
        assert table[row]["very rare (%)"] == very_rare
    assert "|groups:40%/30%/20%/10%-of-mass|" in printed


def test_what_is_not_defined_is_empty(lm_data, tmp_path):
    for continuations, references, empty in (
        (["w0", "w1"], ["", ""], {"KLD", "MSJ-1"}),
        (["w0"], ["w0 w1"], {"SB-1"}),
        (["", ""], ["w0", "w1"], {"KLD", "frequent (%)"}),
    ):
        path = write_texts(tmp_path / "m.jsonl", continuations, references)
        printed = cells(run("text-metrics", path, "--data", lm_data))
        assert ("human" in printed) == any(references)
        for column in ("KLD", "MSJ-1", "SB-1", "frequent (%)", "Dist-1", "Rep (%)", "Uniq"):
            assert (printed["m"][column] == "—") == (column in empty), column


def test_text_metrics_refuses_files(lm_data, tmp_path):
    bad = write_lines(tmp_path / "bad.jsonl", ['{"prefix": "", "continuation": ""}'])
    first = write_texts(tmp_path / "first.jsonl", ["w0 never"], ["w0"])
    second = write_texts(tmp_path / "second.jsonl", ["w0 never"], ["w1"])
    for *arguments, words in (
        (bad, "bad.jsonl, line 1: found '{"),
        (first, second, f"{second}: found other references than in {first}"),
        (first, "--data", lm_data, "found 1 of 2 tokens of first, such as 'never', not in dict"),
    ):
        assert words in refused("text-metrics", *arguments)
