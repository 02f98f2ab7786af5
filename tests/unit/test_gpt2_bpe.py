import pytest

from agg_fairseq.errors import UserError
from scripts.data import gpt2_bpe
from scripts.data.files import digest

ODD = ["", " ", "  two  spaces ", "戦場のヴァルキュリア 3 : <unk>", "naïve\u00a0café \u3000 x", "🙂 \u200b ' 's don't"]


def test_ids_are_those_of_fairseq(shared_data):
    from fairseq.data.encoders.gpt2_bpe_utils import get_encoder

    folder = shared_data / "gpt2-bpe"
    bpe = get_encoder(str(folder / "encoder.json"), str(folder / "vocab.bpe"))
    with open(shared_data / "wikitext-2" / "wiki.valid.tokens", encoding="utf-8") as file:
        lines = [*(line for line, _ in zip(file, range(300), strict=False)), *ODD]
    encoded = list(gpt2_bpe.encode(folder, lines))
    assert encoded == [" ".join(map(str, bpe.encode(line.strip()))) for line in lines]
    assert sum(len(line.split()) for line in encoded) > 10_000


def test_files_of_mirrors(shared_data, tmp_path, monkeypatch):
    """What is downloaded is kept, and then checked again."""
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    monkeypatch.setattr(gpt2_bpe, "MIRRORS", ((tmp_path / "gone").as_uri(), (shared_data / "gpt2-bpe").as_uri()))
    gpt2_bpe.take(tmp_path / "downloads", folder)
    assert {path.name: digest(path) for path in folder.iterdir()} == gpt2_bpe.FILES
    (tmp_path / "downloads" / "gpt2_bpe" / "vocab.bpe").write_text("#version: 0.2\nĠ t\n")
    with pytest.raises(UserError, match=f"vocab.bpe: found the .*; expected {gpt2_bpe.FILES['vocab.bpe']}; remove"):
        gpt2_bpe.take(tmp_path / "downloads", folder)
