"""The functions that all prepare.sh share: downloads, and stages of a folder."""

import hashlib
import os
import subprocess

from tests.conftest import ROOT

CONTENT = bytes(range(256)) * 500
SHA256, MD5 = hashlib.sha256(CONTENT).hexdigest(), hashlib.md5(CONTENT).hexdigest()
STAGES = """
make_first() { echo one > "$1/a"; }
make_second() { cat "$output/first/a" > "$1/b"; eval "$then"; echo alone; }
use made "$settings"
stage first
stage second
finish corpus words '{}'
"""


def started(folder, program, **variables):
    shared = (
        f". {ROOT}/scripts/data/preparation.sh; set -- ; parse workers vocabulary -- ; {program}"
    )
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": folder}
    environment = {**os.environ, **variables}
    return subprocess.Popen(
        ["bash", "-c", shared], env=environment, start_new_session=True, **options
    )


def run(folder, program, **variables):
    with started(folder, program, **variables) as process:
        out, err = process.communicate(timeout=1800)
    return process.returncode, out, err


def fetch(tmp_path, *folders, digests=f"{MD5} {SHA256}"):
    """Downloads `file` from the first of some folders: its content, if there is one, and what was
    said."""
    urls = [f"file://{tmp_path}/{folder}" for folder in folders]
    status, _, err = run(tmp_path, f"fetch file '{digests}' {' '.join(urls)}")
    target = tmp_path / "data" / "downloads" / "file"
    assert status in (0, 2)
    return (None if status else target.read_bytes()), err


def write(path, content=CONTENT):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_a_download_goes_on_where_it_was_interrupted_and_is_not_asked_for_again(tmp_path):
    source = write(tmp_path / "server" / "file")
    write(tmp_path / "data" / "downloads" / "file.partial", b"x" * 1000)
    for _ in range(2):
        assert fetch(tmp_path, "server", digests="")[0] == b"x" * 1000 + CONTENT[1000:]
        source.unlink(missing_ok=True)


def test_a_file_that_is_there_is_checked_and_never_replaced(tmp_path):
    write(tmp_path / "server" / "file")
    mine = write(tmp_path / "data" / "downloads" / "file", b"mine")
    content, err = fetch(tmp_path, "server")
    assert content is None and "found another digest" in err and mine.read_bytes() == b"mine"


def prepared(folder, then="true", settings="corpus=some"):
    binarized = (
        'mkdir "$output/data-bin"; touch "$output/data-bin"/{a.bin,dict.txt}; echo "[] tokens" > '
    )
    program = STAGES.replace("finish", binarized + '"$output/data-bin/preprocess.output"; finish')
    return run(folder, program, then=then, settings=settings)


def test_a_run_that_failed_goes_on_and_a_complete_folder_is_left_alone(tmp_path):
    folder = tmp_path / "made"
    assert prepared(tmp_path, then="false")[0] == 1
    assert (folder / "first" / "a").exists() and not (folder / "second").exists()
    (folder / ".partial" / "c").write_text("half")
    (folder / "first" / "a").write_text("two\n")  # is not made again
    status, out, _ = prepared(tmp_path)
    assert "alone" in out and [path.name for path in (folder / "second").iterdir()] == ["b"]
    assert (folder / "second" / "b").read_text() == "two\n" and (folder / "manifest.json").exists()
    (folder / "first" / "a").unlink()  # what is not needed any more may go
    status, _, err = prepared(tmp_path)
    assert status == 0 and err.endswith("made is complete\n")
    status, _, err = prepared(tmp_path, settings="corpus=other")
    assert status == 2 and "was prepared with other settings: corpus=some" in err
