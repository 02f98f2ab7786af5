"""The encoders of the WikiText corpora: lines in, tokens out."""

import shutil

import pytest
from tokenizers import Tokenizer, decoders, models

from agg_fairseq.errors import UserError
from scripts.data import gpt2_bpe, sentencepiece_bpe
from scripts.data.download import sha256
from tests.serving import serving
from tests.wikitext_sample import sample_text

ODD = [
    "",
    " ",
    "  two  spaces ",
    "Senjō no 戦場のヴァルキュリア 3 : <unk>",
    "naïve\u00a0café \u3000 x",
    "🙂 \u200b ' 's don't 1,000",
]


@pytest.fixture(scope="module")
def real_lines(shared_data):
    """The first lines of real text, with their spaces."""
    with open(shared_data / "wikitext-2" / "wiki.valid.tokens", encoding="utf-8") as file:
        return [line.removesuffix("\n") for line, _ in zip(file, range(300), strict=False)]


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    folder = tmp_path_factory.mktemp("learned")
    sentencepiece_bpe.learn(sample_text(0).splitlines(), 150, 1, folder)
    return str(folder / sentencepiece_bpe.MODEL)


def test_gpt2_ids_are_those_of_fairseq(shared_data, real_lines):
    encoders = pytest.importorskip("fairseq.data.encoders.gpt2_bpe_utils")
    bpe = encoders.get_encoder(*(str(shared_data / "gpt2-bpe" / name) for name in ("encoder.json", "vocab.bpe")))
    lines = [*real_lines, *ODD]
    expected = [" ".join(map(str, bpe.encode(line.strip()))) for line in lines]
    assert gpt2_bpe.encode(str(shared_data / "gpt2-bpe"), lines) == expected


def test_gpt2_ids_spell_the_text(shared_data, real_lines):
    folder = shared_data / "gpt2-bpe"
    bpe = Tokenizer(models.BPE.from_file(str(folder / "encoder.json"), str(folder / "vocab.bpe")))
    bpe.decoder = decoders.ByteLevel()
    lines = [*real_lines, *ODD]
    ids = [[int(token) for token in line.split(" ") if token] for line in gpt2_bpe.encode(str(folder), lines)]
    assert [bpe.decode(line) for line in ids] == [line.strip() for line in lines]
    assert sum(map(len, ids)) > 10_000


def test_gpt2_by_hand(shared_data):
    """15496 is Hello, 995 Ġworld, 220 a space, 28 =, 796 Ġ=; the space before a line is not encoded."""
    lines = [" Hello world \n", " = = \n", " \n"]
    assert gpt2_bpe.encode(str(shared_data / "gpt2-bpe"), lines) == ["15496 995", "28 796", ""]


def test_gpt2_files_are_taken_from_a_folder(shared_data, tmp_path):
    gpt2_bpe.take(shared_data / "gpt2-bpe", tmp_path)
    assert {path.name: sha256(path) for path in tmp_path.iterdir()} == gpt2_bpe.FILES


def test_other_files_are_not_gpt2s(shared_data, tmp_path):
    given = tmp_path / "given"
    with pytest.raises(UserError, match="--bpe-dir: found no encoder.json in .*given"):
        gpt2_bpe.take(given, tmp_path)
    shutil.copytree(shared_data / "gpt2-bpe", given)
    (given / "vocab.bpe").chmod(0o644)
    (given / "vocab.bpe").write_text("#version: 0.2\nĠ t\n")
    with pytest.raises(
        UserError, match=f"given/vocab.bpe: found the SHA-256 .*; expected {gpt2_bpe.FILES['vocab.bpe']}, GPT-2's"
    ):
        gpt2_bpe.take(given, tmp_path)


def test_gpt2_files_are_downloaded_and_kept(shared_data, tmp_path, monkeypatch):
    (tmp_path / "tokenizer").mkdir()
    with serving() as server:
        for name in gpt2_bpe.FILES:
            server.files[f"/second/{name}"] = (shared_data / "gpt2-bpe" / name).read_bytes()
        monkeypatch.setattr(gpt2_bpe, "MIRRORS", (server.url("/first"), server.url("/second")))
        for _ in range(2):
            gpt2_bpe.download(tmp_path / "downloads", tmp_path / "tokenizer")
        assert [path for path, *_ in server.requests] == [
            f"/{mirror}/{name}" for name in gpt2_bpe.FILES for mirror in ("first", "second")
        ]
    assert {path.name: sha256(path) for path in (tmp_path / "tokenizer").iterdir()} == gpt2_bpe.FILES


def test_sentencepiece_spells_the_text(learned):
    lines = sample_text(0).splitlines()
    encoded = sentencepiece_bpe.encode(learned, lines)
    assert ["".join(line.split()).replace("▁", " ").strip() for line in encoded] == [line.strip() for line in lines]
    assert len({token for line in encoded for token in line.split()}) <= 150


def test_sentencepiece_knows_every_character_of_its_text(learned):
    """The brackets of <unk> too, which sentencepiece skips while it learns."""
    model = sentencepiece_bpe._processor(learned)
    pieces = {
        token for line in sentencepiece_bpe.encode(learned, sample_text(0).splitlines()) for token in line.split()
    }
    assert all(model.piece_to_id(piece) != model.unk_id() for piece in pieces)


def test_sentencepiece_keeps_empty_lines_and_plain_spaces(learned):
    lines = sentencepiece_bpe.encode(learned, ["", " ", "a\u00a0role\u3000@-@"])
    assert lines[:2] == ["", ""]
    assert lines[2].split(" ") == lines[2].split()


@pytest.mark.parametrize("vocabulary", [1, 20, 100_000])
def test_a_vocabulary_that_does_not_fit_is_one_line(tmp_path, vocabulary):
    with pytest.raises(UserError, match=rf"--vocabulary: found {vocabulary:,}; expected a size that fits") as error:
        sentencepiece_bpe.learn(sample_text(0).splitlines(), vocabulary, 1, tmp_path)
    assert "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


def test_long_lines_are_learned_from(tmp_path):
    sentencepiece_bpe.learn(["abcdef " * 3000, "x y"], 20, 1, tmp_path)
    assert sentencepiece_bpe.encode(str(tmp_path / sentencepiece_bpe.MODEL), ["abcdef"]) == ["▁abcdef"]
