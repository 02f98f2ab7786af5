"""Damaged and malicious checkpoints and binarized splits: read as they were written, or refused in
one line, without running what is in them."""

import contextlib
import io
import os
import pickle
import shutil
import zipfile

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary, data_utils
from fairseq.data.indexed_dataset import IndexedDatasetBuilder, MMapIndexedDatasetBuilder

from agg_fairseq.checkpoints.fairseq_checkpoint import Checkpoint
from agg_fairseq.data.binarized import count_split, load_sentences
from agg_fairseq.errors import UserError
from tests.commands import refused
from tests.hostile import AMOUNTS, fuzz

WEIGHT = "decoder.output_projection.weight"


class Evil:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch '{self.marker}'",)


def saved(**parts):
    file = io.BytesIO()
    torch.save({"model": {WEIGHT: torch.randn(12, 4)}, "cfg": {"task": None}, **parts}, file)
    return file.getvalue()


def test_nothing_runs_what_a_checkpoint_says(tmp_path):
    path, marker = tmp_path / "checkpoint_best.pt", tmp_path / "marker"
    evil = Evil(marker)
    for content in (
        saved(cfg=evil),
        pickle.dumps({"model": {}, "cfg": evil}),
        saved(extra_state={"array": np.array([evil], dtype=object)}),
    ):
        path.write_bytes(content)
        with pytest.raises(UserError, match="is damaged, or loading it would run code"):
            Checkpoint(path)
        assert not marker.exists()


def flipped():
    content = bytearray(saved(model={WEIGHT: torch.ones(1000, 4)}))
    content[len(content) // 2] ^= 1
    return content


def compressed():
    """A small file could be of any size in memory."""
    file = io.BytesIO(saved())
    with zipfile.ZipFile(file, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/other", bytes(10**6))
    return file.getvalue()


@pytest.mark.parametrize(
    "change",
    [flipped, compressed, lambda: saved(cfg={"task": "some"}).replace(b"some", b"soma", 1)],
)
def test_what_torch_would_not_see_is_refused(change, tmp_path):
    """It would load other weights or options."""
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(change())
    assert torch.load(path), "else this shows nothing"
    with pytest.raises(UserError, match="refused, since it is damaged"):
        Checkpoint(path)


@AMOUNTS
def test_a_damaged_checkpoint_is_whole_or_refused(files, tmp_path):
    weight, path = torch.randn(12, 4), tmp_path / "checkpoint.pt"

    def check(content):
        path.write_bytes(content)
        with contextlib.suppress(UserError):
            assert torch.equal(Checkpoint(path).parameters[WEIGHT], weight)

    fuzz(check, saved(model={WEIGHT: weight}), files)


def test_what_meters_of_fairseq_save_is_opened(tmp_path):
    """--eval-bleu leaves arrays of numpy in its meters, other tasks numbers; a resume opens the
    same file by torch."""
    path, meters = tmp_path / "bleu.pt", {"wer": np.float32(0.5), "number": np.int64(2)}
    meters |= {"counts": np.array([3, 2, 1, 0]), "name": np.array(["a"])}
    path.write_bytes(saved(extra_state=meters))
    for state in (Checkpoint(path).state, torch.load(path)):
        found = state["extra_state"]
        assert found["counts"].tolist() == [3, 2, 1, 0] and found["wer"] == 0.5


def write_split(folder, sentences, kind=MMapIndexedDatasetBuilder, dtype=np.int32):
    builder = kind(str(folder / "train.bin"), dtype=dtype)
    for sentence in sentences:
        builder.add_item(torch.tensor(sentence))
    builder.finalize(str(folder / "train.idx"))


@pytest.mark.parametrize("sentences", [[[0, 1, 2], [3, 2]], []])
def test_a_split_of_an_older_format_is_read(sentences, tmp_path):
    write_split(tmp_path, sentences, IndexedDatasetBuilder)
    tokens, ends, _ = load_sentences([tmp_path / "train"], Dictionary())
    assert [part.tolist() for part in np.split(tokens, ends)] == [*sentences, []]


@AMOUNTS
@pytest.mark.parametrize("suffix", ["idx", "bin"])
def test_a_damaged_split_is_whole_or_refused(files, suffix, tmp_path):
    write_split(tmp_path, [[0, 1, 2], [3, 2]], dtype=np.uint16)
    path = tmp_path / f"train.{suffix}"

    def check(content):
        path.write_bytes(content)
        try:
            counts = count_split(tmp_path, Dictionary())
        except UserError as error:
            assert "run fairseq-preprocess again" in str(error) and "\n" not in str(error)
            return
        tokens = [0, 1, 2, 3, 2]
        if suffix == "bin":
            tokens = np.frombuffer(content, dtype=np.uint16).tolist()
        assert counts.tolist() == np.bincount(tokens, minlength=4).tolist()
        found = data_utils.load_indexed_dataset(str(tmp_path / "train"), Dictionary())
        assert [sentence.tolist() for sentence in found] == [tokens[:3], tokens[3:]]

    fuzz(check, path.read_bytes(), files)


def test_a_damaged_part_of_a_split_is_not_absent(tmp_path):
    """fairseq takes a part whose .idx has another first byte for the end of the split."""
    write_split(tmp_path, [[0, 1, 2], [3, 2]])
    for suffix in ("bin", "idx"):
        shutil.copy(tmp_path / f"train.{suffix}", tmp_path / f"train1.{suffix}")
    index = tmp_path / "train1.idx"
    index.write_bytes(b"X" + index.read_bytes()[1:])
    with pytest.raises(UserError, match="train1: unreadable .idx"):
        count_split(tmp_path, Dictionary())


def test_a_dictionary_that_is_no_text_is_refused(lm_runs, lm_data, tmp_path):
    data = shutil.copytree(lm_data, tmp_path / "data")
    content = (data / "dict.txt").read_bytes()
    (data / "dict.txt").write_bytes(b"\xff" + content[1:])
    for command in ("eval-lm", "isotropy"):
        error = refused(command, lm_runs / "mle", "--data", data)
        assert f"{data}/dict.txt: unreadable" in error


@pytest.mark.parametrize("token", [-1, 2**31 - 1])
def test_a_token_beyond_the_dictionary_is_refused(token, tmp_path):
    write_split(tmp_path, [[0, token, 2]])
    with pytest.raises(UserError, match=f"found token {token}, beyond all 4"):
        count_split(tmp_path, Dictionary())
