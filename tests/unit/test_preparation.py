"""The functions that all prepare.sh share: downloads, and stages of a folder."""

import hashlib

from tests.conftest import ROOT, run_command

CONTENT = bytes(range(256)) * 500
SHA256, MD5 = hashlib.sha256(CONTENT).hexdigest(), hashlib.md5(CONTENT).hexdigest()
STAGES = """
make_first() { echo one > "$1/a"; }
make_second() { cat "$output/first/a" > "$1/b"; eval "$then"; echo alone; }
use made corpus=some
stage first
stage second
mkdir "$output/data-bin"
touch "$output/data-bin"/{a.bin,dict.txt}
echo "[] tokens" > "$output/data-bin/preprocess.output"
finish corpus words words
"""


def run(folder, program, **variables):
    shared = f". {ROOT}/scripts/data/preparation.sh; set -- ; parse workers vocabulary -- ;"
    command = ("bash", "-c", f"{shared} {program}")
    return run_command(*command, cwd=folder, env=variables, check=False)


def fetch(tmp_path, *folders, digests=f"{MD5} {SHA256}"):
    """Downloads `file` from the first of some folders: its content, if there is one, and what was
    said."""
    urls = [f"file://{tmp_path}/{folder}" for folder in folders]
    result = run(tmp_path, f"fetch file '{digests}' {' '.join(urls)}")
    assert result.returncode in (0, 2)
    content = None if result.returncode else (tmp_path / "data/downloads/file").read_bytes()
    return content, result.stderr


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


def test_a_run_that_failed_goes_on(tmp_path):
    folder = tmp_path / "made"
    assert run(tmp_path, STAGES, then="false").returncode == 1
    assert (folder / "first" / "a").exists() and not (folder / "second").exists()
    (folder / ".partial" / "c").write_text("half")
    (folder / "first" / "a").write_text("two\n")  # is not made again
    assert "alone" in run(tmp_path, STAGES, then="true").stdout
    assert [path.name for path in (folder / "second").iterdir()] == ["b"]
    assert (folder / "second" / "b").read_text() == "two\n" and (folder / "manifest.json").exists()
