"""`agg-fairseq generate-lm`, called in this process, and the continuation of prefixes that it rests
on."""

import json
import shutil

import pytest
import torch
from fairseq.data import Dictionary

from agg_fairseq.checkpoints import Checkpoint
from agg_fairseq.cli.main import main
from agg_fairseq.data.subwords import TokenizerOptions
from agg_fairseq.fairseq_plugin.decoding import continuation
from agg_fairseq.fairseq_plugin.models.from_checkpoint import build_model
from tests.commands import read_result, refused, save_model
from tests.conftest import read_lines, write_lines
from tests.small_trainings import build

PAD, BOS, EOS = 1, 0, 2
LENGTHS = ("--prefix-length", "5", "--length", "9")


class Bigrams(torch.nn.Module):
    """A decoder that knows the distribution after each token: it gives logits or log-probabilities,
    and no features."""

    def __init__(self, logits, normalized):
        super().__init__()
        self.logits = logits.log_softmax(-1) if normalized else logits

    def forward(self, tokens, incremental_state):
        return self.logits[tokens].clone(), None


def full_logits(model, tokens):
    """(B, T, V) in one forward, without incremental state; pad and bos left out."""
    logits = model.get_normalized_probs(model(tokens), log_probs=True).detach().clone()
    logits[..., [PAD, BOS]] = -torch.inf
    return logits


ARCHITECTURES = {
    "sinusoidal": (),
    "learned positions": ("--decoder-learned-pos",),
    "adaptive softmax": "--criterion adaptive_loss --ddp-backend legacy_ddp "
    "--adaptive-softmax-cutoff 20,40".split(),
}


@pytest.mark.grid(1)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_greedy_equals_a_full_forward_per_step(lm_data, architecture):
    model = build(lm_data, "--criterion", "mle", *ARCHITECTURES[architecture])[2].eval()
    tokens = torch.randint(4, 60, (4, 5))
    found = continuation(model, tokens, 9, forbidden=(PAD, BOS))
    for _ in range(9):
        tokens = torch.cat([tokens, full_logits(model, tokens)[:, -1].argmax(1, keepdim=True)], 1)
    assert torch.equal(found, tokens[:, 5:])
    assert len(found.unique()) > 1


def test_sampled_tokens_are_among_the_likeliest(lm_data):
    """And the same for the same seed; torch's own numbers are left alone."""
    model, prefixes = build(lm_data, "--criterion", "mle")[2].eval(), torch.randint(4, 60, (16, 5))

    def sampled(seed, topk=3):
        generator = torch.Generator().manual_seed(seed)
        return continuation(
            model, prefixes, 9, topk=topk, generator=generator, forbidden=(PAD, BOS)
        )

    state, found = torch.get_rng_state(), sampled(1)
    # B x L x K
    likeliest = full_logits(model, torch.cat([prefixes, found], 1))[:, 4:-1].topk(3).indices
    ranks = (likeliest == found[..., None]).int()
    assert (ranks.sum(-1) == 1).all() and (ranks.sum((0, 1)) > 0).all(), (
        "all of the 3 likeliest, and no other"
    )
    assert torch.equal(sampled(1), found) and not torch.equal(sampled(2), found)
    assert torch.equal(sampled(1, topk=1), continuation(model, prefixes, 9, forbidden=(PAD, BOS)))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("normalized", [False, True], ids=["logits", "log-probabilities"])
def test_draws_follow_the_renormalized_probabilities(normalized):
    """Of 0.4, 0.3, 0.2, 0.1 after any token: the 3 likeliest by 4/9, 3/9, 2/9; and none of
    probability 0."""
    logits = torch.tensor([0.2, 0.4, 0.1, 0.3, 0.0]).log().repeat(5, 1)
    model = torch.nn.Module()
    model.decoder = Bigrams(logits, normalized)
    prefixes = torch.zeros(2000, 1, dtype=torch.int64)
    generator = torch.Generator().manual_seed(1)
    found = continuation(model, prefixes, 5, topk=3, generator=generator)
    shares = torch.bincount(found.flatten(), minlength=5) / found.numel()
    # 4 deviations
    torch.testing.assert_close(shares, torch.tensor([2 / 9, 4 / 9, 0, 3 / 9, 0]), atol=0.02, rtol=0)
    assert continuation(model, prefixes, 5, topk=5, generator=generator).max() == 3
    assert (continuation(model, prefixes, 5) == 1).all()
    assert (continuation(model, prefixes, 5, forbidden=(1,)) == 3).all()


@pytest.fixture
def checkpoint(lm_runs):
    return lm_runs / "mle" / "checkpoint_best.pt"


def generate(data, checkpoint, output, *arguments):
    status = main(
        ["generate-lm", str(checkpoint), "--data", str(data), "--output", str(output), *arguments]
    )
    return status, [
        json.loads(line) for line in open(output, encoding="utf-8")
    ] if output.exists() else None


@pytest.fixture(scope="module")
def stream(lm_data):
    known = {line.split()[0] for line in open(lm_data / "dict.txt")} | {"</s>"}
    lines = read_lines(lm_data.parent / "test")
    return [
        word if word in known else "<unk>" for line in lines for word in [*line.split(), "</s>"]
    ]


def test_blocks_are_the_stream_of_the_split(lm_data, stream, checkpoint, tmp_path, capsys):
    status, texts = generate(
        lm_data, checkpoint, tmp_path / "new" / "t.jsonl", *LENGTHS, "--json", str(tmp_path / "j")
    )
    number = len(stream) // 14
    assert status == 0 and len(texts) == number
    assert all(list(text) == ["prefix", "continuation", "reference"] for text in texts)
    assert {tuple(len(value.split(" ")) for value in text.values()) for text in texts} == {
        (5, 9, 9)
    }
    words = " ".join(f"{text['prefix']} {text['reference']}" for text in texts).split(" ")
    assert words == stream[: number * 14]
    signature = f"split:test|texts:{number}|prefix:5|length:9|decoding:greedy|seed:1|version:"
    assert f"\n{signature}" in capsys.readouterr().out
    (row,) = read_result(tmp_path / "j").rows.values()
    counts = (row["texts"], row["generated_tokens"], row["unused_tokens"])
    assert counts == (number, number * 9, len(stream) - number * 14)


def test_the_first_texts_are_those_of_all_whatever_the_batch(lm_data, checkpoint, tmp_path):
    for options in ((), ("--topk", "8")):
        _, whole = generate(lm_data, checkpoint, tmp_path / "t.jsonl", *LENGTHS, *options)
        for more in (("--batch-size", "1"), ("--batch-size", "4", "--max-texts", "3")):
            _, found = generate(
                lm_data, checkpoint, tmp_path / "f.jsonl", *LENGTHS, *options, *more
            )
            assert found == whole[: len(found)]
            assert len(found) == (3 if "--max-texts" in more else len(whole))


def test_bos_before_the_prefix_where_the_model_had_it(lm_data, stream, tmp_path):
    options = ("--add-bos-token", "--decoder-learned-pos", "--max-target-positions", "32")
    path = save_model(tmp_path / "bos.pt", lm_data, *options, updates=3)
    _, texts = generate(lm_data, path, tmp_path / "t.jsonl", *LENGTHS)
    words = texts[0]["prefix"].split(" ")
    assert words == stream[:5], "the bos is none of the text's tokens"
    model, task = build_model(Checkpoint(path), lm_data)
    dictionary = task.source_dictionary
    prefix = torch.tensor([[BOS, *map(dictionary.index, words)]])
    found = continuation(model, prefix, 9, forbidden=(PAD, BOS))[0]
    assert texts[0]["continuation"] == " ".join(dictionary[token] for token in found.tolist())
    assert not torch.equal(found, continuation(model, prefix[:, 1:], 9, forbidden=(PAD, BOS))[0])


def test_prefixes_of_a_file(lm_data, checkpoint, tmp_path, capsys):
    """Lines that say what prefixes of the split are, ends of lines included, are continued as
    these are, and other lines by themselves, whatever their lengths; they have no references."""
    options = (*LENGTHS, "--topk", "8")
    _, texts = generate(lm_data, checkpoint, tmp_path / "split.jsonl", *options)
    lines = [text["prefix"] for text in texts]
    assert any(" </s> " in line for line in lines)
    file = write_lines(tmp_path / "lines", [*lines, "w1", "w3  never-seen w4 w5 w6 w7 w8"])
    given = ("--prefixes", str(file), "--json", str(tmp_path / "j"))
    _, found = generate(lm_data, checkpoint, tmp_path / "f.jsonl", *options, *given)
    assert found[: len(texts)] == [{**text, "reference": ""} for text in texts]
    assert [text["prefix"] for text in found[-2:]] == ["w1", "w3 <unk> w4 w5 w6 w7 w8"]
    assert all(len(text["continuation"].split(" ")) == 9 for text in found)
    settings = read_result(tmp_path / "j").settings
    unknown = sum(text["prefix"].split(" ").count("<unk>") for text in found)
    assert (settings["prefixes"], settings["bpe"], settings["<unk>"]) == ("lines", "words", unknown)
    assert "split" not in settings and "prefix" not in settings
    file.write_text("w1 w2\n\n \n")
    _, found = generate(lm_data, checkpoint, tmp_path / "f.jsonl", *options, *given)
    assert [text["prefix"] for text in found] == ["w1 w2"], "without blank lines at the end"
    start = ("generate-lm", checkpoint, "--data", lm_data, "-o", tmp_path / "f.jsonl")
    for text, words in (("w1\n\nw2\n", "line 2: found no token"), ("\n", "line 1: found no token")):
        file.write_text(text)
        assert words in refused(capsys, *start, "--prefixes", file)


def test_prefixes_in_the_pieces_of_the_data(tmp_path):
    """A line is split as the text of the data was, not as a word after a space."""
    model = tmp_path / "encoder.json"
    model.write_text(json.dumps({"l": 7, "ow": 8, "\u0120l": 9, "\u0120": 5}))
    (tmp_path / "vocab.bpe").write_text("#version: 0.2\no w\n\u0120 l\n", encoding="utf-8")
    dictionary = Dictionary()
    for token in ("7", "8", "9"):
        dictionary.add_symbol(token)
    options = TokenizerOptions("gpt2", model, tmp_path / "vocab.bpe")
    file = write_lines(tmp_path / "lines", ["low low </s> low"])
    (rows,) = options.encode_lines(file, dictionary)
    assert [dictionary[row] for row in rows] == ["7", "8", "9", "8", "</s>", "7", "8"]


def test_generate_lm_refuses(lm_data, checkpoint, tmp_path, capsys):
    larger = shutil.copytree(lm_data, tmp_path / "larger")
    with open(larger / "dict.txt", "a") as file:
        file.write("another 1\n")
    for data, options, words in (
        (lm_data, ("--split", "dev"), "found no split 'dev'"),
        (lm_data, ("--length", "5000"), "expected at least 5005; lower --prefix-length"),
        (larger, (), "pass the model's own data"),
        (lm_data, ("--f2-decoding", "sample-class"), "found an ordinary softmax in"),
    ):
        start = (checkpoint, "--data", data, "--output", tmp_path / "t.jsonl", *LENGTHS)
        assert words in refused(capsys, "generate-lm", *start, *options)
    assert not (tmp_path / "t.jsonl").exists()
