"""WikiText corpora from what people have of them to what fairseq-train reads."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys

import pytest

from agg_fairseq.errors import UserError
from scripts.data import wikitext as module
from scripts.data import wikitext_corpora
from scripts.data.download import sha256
from scripts.data.locks import only_run_in
from scripts.data.prepared_folder import SPLITS, binarize, stage
from scripts.data.wikitext import Preparation, prepare
from scripts.data.wikitext_corpora import tokens_file
from tests.conftest import ROOT, called, run_command
from tests.serving import serving
from tests.wikitext_sample import corpus_of, sample_texts, write_files, write_parquet, write_zip

pytestmark = pytest.mark.slow  # command lines: processes of their own

TEXTS = sample_texts()
FOLDERS = ["data-bin", "encoded", "text", "tokenizer"]


@pytest.fixture
def given(tmp_path):
    """A folder whose name has spaces and letters that are not ASCII."""
    return write_files(tmp_path / "my files, é", TEXTS)


@pytest.fixture
def here(monkeypatch):
    """fairseq-preprocess in this process: starting it anew takes seconds."""

    def binarize_here(text, folder, workers, options):
        prefixes = [f"--{split}pref={text / split}" for split in SPLITS]
        called("preprocess", *prefixes, f"--destdir={folder}", f"--workers={workers}", *options)

    monkeypatch.setattr(module, "binarize", binarize_here)


def wikitext(*arguments, check=True, cwd=ROOT):
    return run_command(
        sys.executable, "-m", "scripts.data.wikitext", *arguments, check=check, cwd=cwd, env={"PYTHONPATH": str(ROOT)}
    )


def preparation(output, **changes):
    """Of words, on two processes."""
    defaults = {
        "key": "wikitext2", "source": None, "tokenizer": "words", "vocabulary": None, "bpe_dir": None, "output": output,
        "downloads": output.parent / "downloads", "workers": 2,
    }  # fmt: skip
    return Preparation(**{**defaults, **changes})


def visible(folder):
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def binarized(folder):
    """The tokens that fairseq-train reads, line by line, by split."""
    from fairseq.data import Dictionary, data_utils

    dictionary = Dictionary.load(str(folder / "data-bin" / "dict.txt"))
    found = {}
    for split in SPLITS:
        dataset = data_utils.load_indexed_dataset(str(folder / "data-bin" / split), dictionary)
        found[split] = [[dictionary[index] for index in line[:-1]] for line in dataset]
    return found, len(dictionary)


def encoded(folder):
    return {
        split: [line.split() for line in (folder / "encoded" / split).read_text().split("\n")[:-1]] for split in SPLITS
    }


def test_the_script_from_its_first_line(given, tmp_path):
    """Paths are those of where the user is; what is done is not done again; the tokenizer's files are where it says."""
    options = ("--from", given.name, "--tokenizer=sentencepiece", "--vocabulary=150", "--output=-out ü", "--workers=2")
    first = run_command("bash", ROOT / "scripts" / "wikitext2" / "prepare.sh", *options, cwd=tmp_path)
    output = tmp_path / "-out ü"
    assert visible(output) == sorted([*FOLDERS, "manifest.json"])
    manifest = json.loads((output / "manifest.json").read_text())
    assert manifest["bpe"] == {"kind": "sentencepiece", "sentencepiece_model": "tokenizer/sentencepiece.model"}
    assert manifest["corpus"] == "wikitext2" and manifest["tokenizer"] == "sentencepiece" and not manifest["official"]
    for name, facts in manifest["files"].items():
        assert facts["sha256"] == sha256(output / name)
    assert manifest["files"]["text/wiki.train.tokens"]["lines"] == TEXTS["train"].count("\n")
    lines, dictionary = binarized(output)
    assert lines == encoded(output) and dictionary == manifest["dictionary"]
    assert manifest["tokens"] == {split: sum(len(line) + 1 for line in lines[split]) for split in SPLITS}
    assert first.stderr.count("warning: wiki.") == 3 and f"{dictionary:,} entries in the dictionary" in first.stdout
    before = (output / "manifest.json").stat().st_mtime_ns
    again = wikitext("wikitext2", *options, cwd=tmp_path)
    assert again.stdout.endswith("is complete\n") and (output / "manifest.json").stat().st_mtime_ns == before


@pytest.mark.parametrize("form", [write_zip, write_parquet])
def test_words_from_every_form(form, here, tmp_path):
    """Every line is there, the empty ones too."""
    prepare(preparation(tmp_path / "out", source=form(tmp_path / "given", TEXTS)))
    lines, _ = binarized(tmp_path / "out")
    train = {word for line in TEXTS["train"].split("\n") for word in line.split()}
    for split in SPLITS:
        expected = [line.split() for line in TEXTS[split].split("\n")[:-1]]
        assert lines[split] == [[word if word in train else "<unk>" for word in line] for line in expected]
    assert {"<unk>", "@-@"} <= train


def test_gpt2_of_real_text(shared_data, here, tmp_path):
    given = tmp_path / "given"
    given.mkdir()
    for split, count in {"train": 300, "valid": 40, "test": 40}.items():
        with open(shared_data / "wikitext-2" / tokens_file(split), encoding="utf-8") as file:
            (given / tokens_file(split)).write_text("".join(next(file) for _ in range(count)), encoding="utf-8")
    out = preparation(tmp_path / "out", source=given, tokenizer="gpt2", bpe_dir=shared_data / "gpt2-bpe", workers=3)
    prepare(out)
    lines, _ = binarized(tmp_path / "out")
    assert [len(lines[split]) for split in SPLITS] == [300, 40, 40]
    assert encoded(tmp_path / "out")["train"] == lines["train"]
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["bpe"] == {
        "kind": "gpt2", "gpt2_encoder_json": "tokenizer/encoder.json", "gpt2_vocab_bpe": "tokenizer/vocab.bpe",
    }  # fmt: skip
    one = preparation(tmp_path / "one", source=given, tokenizer="gpt2", bpe_dir=shared_data / "gpt2-bpe", workers=1)
    prepare(one)
    for split in SPLITS:  # in order, whatever the number of processes
        assert sha256(one.output / "encoded" / split) == sha256(out.output / "encoded" / split)


def test_downloaded_text_and_a_dictionary_that_is_not_the_papers(here, tmp_path, monkeypatch, capsys, shared_data):
    archive = write_zip(tmp_path / "a.zip", TEXTS)
    corpus = corpus_of(TEXTS, archive)
    monkeypatch.setattr(module, "CORPORA", {"wikitext9": corpus})
    with serving() as server:
        monkeypatch.setattr(wikitext_corpora, "ZIPS", server.url(""))
        server.files["/wikitext-9-v1.zip"] = archive.read_bytes()
        prepare(preparation(tmp_path / "words", key="wikitext9"))
        gpt2 = {"key": "wikitext9", "tokenizer": "gpt2", "bpe_dir": shared_data / "gpt2-bpe"}
        prepare(preparation(tmp_path / "gpt2", **gpt2))
        assert len(server.requests) == 1
    manifest = json.loads((tmp_path / "gpt2" / "manifest.json").read_text())
    assert manifest["official"] and "warning" not in capsys.readouterr().err
    (tmp_path / "gpt2" / "manifest.json").unlink()
    object.__setattr__(corpus, "gpt2_dictionary", 44_256)
    prepare(preparation(tmp_path / "gpt2", **gpt2))
    said = capsys.readouterr().err
    assert f"warning: found a dictionary of {manifest['dictionary']:,}; the paper's has 44,256" in said


def test_a_killed_run_goes_on(given, here, tmp_path):
    """Killed at every stage in turn, as far as a test can time it: what there is afterwards is whole or not there."""
    output = tmp_path / "out"
    command = [sys.executable, "-m", "scripts.data.wikitext", "wikitext2", "--from", given, "--output", output]
    for awaited in ("text", "encoded", "data-bin"):
        process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
        for line in process.stderr:
            if line == f"wikitext: {awaited}\n":
                break
        process.send_signal(signal.SIGKILL)
        process.stderr.close()
        process.wait()
        assert not (output / "manifest.json").exists()
    prepare(preparation(output, source=given))
    lines, _ = binarized(output)
    assert lines["train"] == [line.split() for line in TEXTS["train"].split("\n")[:-1]]
    assert {split: len(lines[split]) for split in SPLITS} == {split: TEXTS[split].count("\n") for split in SPLITS}


def test_a_full_disk_goes_on_when_there_is_room(given, here, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(module, "write_lines", full)
        with pytest.raises(OSError, match="No space left"):
            prepare(preparation(tmp_path / "out", source=given))
    assert visible(tmp_path / "out") == ["text"]
    text = (tmp_path / "out" / "text" / tokens_file("train")).stat().st_mtime_ns
    prepare(preparation(tmp_path / "out", source=given))
    assert (tmp_path / "out" / "text" / tokens_file("train")).stat().st_mtime_ns == text
    assert visible(tmp_path / "out") == ["data-bin", "encoded", "manifest.json", "text"]


def test_intermediate_folders_can_be_removed_afterwards(given, here, tmp_path, capsys):
    wanted = preparation(tmp_path / "out", source=given)
    prepare(wanted)
    for name in ("text", "encoded"):
        shutil.rmtree(tmp_path / "out" / name)
    prepare(wanted)
    assert capsys.readouterr().out.endswith("is complete\n")
    assert visible(tmp_path / "out") == ["data-bin", "manifest.json"]


def test_other_settings_do_not_touch_what_is_there(given, here, tmp_path):
    prepare(preparation(tmp_path / "out", source=given))
    with pytest.raises(UserError, match="was prepared with other settings .* remove it or name another folder"):
        prepare(preparation(tmp_path / "out", source=given, tokenizer="sentencepiece"))
    assert visible(tmp_path / "out") == ["data-bin", "encoded", "manifest.json", "text"]


def test_the_text_is_known_by_its_content(given, here, tmp_path, capsys):
    """A copy of it elsewhere is the same, and another text in its place is not."""
    prepare(preparation(tmp_path / "out", source=given))
    prepare(preparation(tmp_path / "out", source=write_files(tmp_path / "copy", TEXTS)))
    assert capsys.readouterr().out.endswith("is complete\n")
    (given / tokens_file("train")).write_text(f"{TEXTS['train']} another end \n", encoding="utf-8")
    with pytest.raises(UserError, match="was prepared with other settings"):
        prepare(preparation(tmp_path / "out", source=given))


def test_a_lost_file_of_a_stage(given, here, tmp_path):
    """Its folder is to be removed, says the message; then it is made anew."""
    wanted = preparation(tmp_path / "out", source=given)
    stage(tmp_path / "out" / "text", wanted.settings(), wanted.stages()["text"])
    (tmp_path / "out" / "text" / tokens_file("valid")).unlink()
    with pytest.raises(UserError, match=f"found no .*; remove the folder {tmp_path / 'out' / 'text'} and run it again"):
        prepare(wanted)
    shutil.rmtree(tmp_path / "out" / "text")
    prepare(wanted)
    assert (tmp_path / "out" / "manifest.json").exists()


def test_fairseq_preprocess_fails(tmp_path):
    """Only its last line is told."""
    with pytest.raises(
        UserError, match="fairseq-preprocess failed .FileNotFoundError: .*absent/train.*; mend"
    ) as error:
        binarize(tmp_path / "absent", tmp_path / "bin", 1, ["--only-source"])
    assert "\n" not in str(error.value)


def test_fairseq_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(UserError, match="found no .*/fairseq-preprocess; expected fairseq in this environment"):
        binarize(tmp_path, tmp_path, 1, [])


@pytest.mark.parametrize("key", ["wikitext103", "wikitext2"])
@pytest.mark.parametrize("tokenizer", ["words", "gpt2", "sentencepiece"])
def test_a_dry_run_writes_nothing(key, tokenizer, tmp_path):
    said = wikitext(key, "--tokenizer", tokenizer, "--dry-run", cwd=tmp_path).stdout
    assert not list(tmp_path.iterdir())
    assert f"in data/{key}-{tokenizer}\n" in said and "https://wikitext.smerity.com/wikitext-" in said
    assert ("tokenizer " in said.splitlines()[2]) is (tokenizer != "words")


def test_a_dry_run_says_what_is_made(given, tmp_path):
    made = preparation(tmp_path / "out", source=given)
    stage(tmp_path / "out" / "text", made.settings(), made.stages()["text"])
    options = ("wikitext2", "--from", given, "--output", tmp_path / "out", "--dry-run")
    assert wikitext(*options).stdout.splitlines()[1:3] == [
        "  text       is made",
        f"  encoded    by {os.cpu_count()} processes",
    ]
    other = wikitext(*options, "--tokenizer=sentencepiece", check=False)
    assert other.returncode == 2 and "text was prepared with other settings" in other.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("--tokenizer", "gpt2", "--vocabulary", "9"),
            "--vocabulary: found it with --tokenizer gpt2; expected --tokenizer ",
        ),
        (("--bpe-dir", "x"), "--bpe-dir: found it with --tokenizer words; expected --tokenizer gpt2"),
        (("--from", "/nowhere"), "--from: found neither a zip at /nowhere nor wiki.train.tokens"),
        (("--output", "file"), "file"),
    ],
)
def test_errors_are_one_line(arguments, said, tmp_path):
    (tmp_path / "file").write_text("")
    result = wikitext("wikitext2", *arguments, check=False, cwd=tmp_path)
    errors = [line for line in result.stderr.splitlines() if line != "wikitext: text"]
    assert result.returncode == 2 and len(errors) == 1
    assert errors[0].startswith("wikitext: error: ") and said in errors[0]


def test_a_second_run_waits_for_the_first(given, tmp_path):
    output = tmp_path / "out"
    command = [sys.executable, "-m", "scripts.data.wikitext", "wikitext2", "--from", given, "--output", output]
    with only_run_in(output):
        second = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
        assert second.stderr.readline() == f"waiting for another run in {output} to end\n"
        assert visible(output) == []
    assert second.stderr.readline() == "wikitext: text\n"
    second.kill()
    second.communicate(timeout=60)
