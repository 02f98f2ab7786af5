import errno
import hashlib
import io
import os
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from agg_fairseq.errors import UserError
from scripts.data.download import fetch
from tests.serving import serving

CONTENT = bytes(range(256)) * 5000
SHA256 = hashlib.sha256(CONTENT).hexdigest()
RIGHT = [SHA256]


@pytest.fixture
def server():
    with serving() as server:
        server.files["/file"] = CONTENT
        yield server


def test_a_file_is_downloaded_whole_and_not_asked_for_again(server, tmp_path):
    target = tmp_path / "new folder" / "file.zip"
    for _ in range(2):
        assert fetch(target, [server.url()], RIGHT) == target
    assert target.read_bytes() == CONTENT and [path.name for path in target.parent.iterdir()] == ["file.zip"]
    assert server.requests == [("/file", None)]


def test_a_broken_connection_is_resumed_for_as_long_as_bytes_come(server, tmp_path):
    """A later call goes on where an attempt brought nothing anymore."""
    server.cuts = [1000, 300_000, 0]
    with pytest.raises(UserError, match=r"the connection ended after 301,000 of 1,280,000 bytes\); run it again"):
        fetch(tmp_path / "file", [server.url()], RIGHT)
    assert [asked for _, asked in server.requests] == [None, "bytes=1000-", "bytes=301000-"]
    assert not (tmp_path / "file").exists()
    fetch(tmp_path / "file", [server.url()], RIGHT)
    assert (tmp_path / "file").read_bytes() == CONTENT and server.requests[-1] == ("/file", "bytes=301000-")


@pytest.mark.parametrize("arrived", [CONTENT[::-1][:1000], CONTENT[::-1], CONTENT])
def test_what_arrived_of_another_version_is_not_glued_to_this_one(server, tmp_path, arrived):
    """Less than the file, as much, or all of it; and where the server has no ranges."""
    for ranges in (True, False):
        server.ranges = ranges
        (tmp_path / ".file.partial").write_bytes(arrived)
        fetch(tmp_path / "file", [server.url()], RIGHT)
        assert (tmp_path / "file").read_bytes() == CONTENT
        (tmp_path / "file").unlink()


def test_the_first_mirror_that_works_is_taken(server, tmp_path):
    """Those that do not answer, or lack the file, or send something else, are asked once."""
    server.files["/wrong"] = b"a page that says sorry"
    dead = "http://127.0.0.1:1/file"  # where nobody listens
    mirrors = [dead, server.url("/missing"), server.url("/wrong")]
    with pytest.raises(UserError) as error:
        fetch(tmp_path / "file", mirrors, RIGHT)
    told = str(error.value)
    assert "\n" not in told and told.endswith(f"or put it at {tmp_path / 'file'}")
    assert "Connection refused" in told and "HTTP Error 404: Not Found; " in told
    assert f"found the digest {hashlib.sha256(server.files['/wrong']).hexdigest()}; expected {SHA256}" in told
    assert not (tmp_path / "file").exists()
    there = tmp_path / "there"
    there.write_bytes(CONTENT)
    fetch(tmp_path / "file", [*mirrors, there.as_uri(), server.url()], RIGHT)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert [path for path, _ in server.requests] == ["/missing", "/wrong"] * 2


def test_a_file_that_is_there_is_checked_and_never_replaced(server, tmp_path):
    (tmp_path / "file").write_bytes(b"mine")
    with pytest.raises(UserError, match=f"expected {SHA256}; remove the file"):
        fetch(tmp_path / "file", [server.url()], RIGHT)
    assert (tmp_path / "file").read_bytes() == b"mine" and server.requests == []


def test_a_full_disk_ends_it_and_the_next_run_goes_on(server, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("tqdm.tqdm.update", full)  # after some bytes are written
        with pytest.raises(OSError, match="No space left on device"):
            fetch(tmp_path / "file", [server.url()], RIGHT)
    fetch(tmp_path / "file", [server.url()], RIGHT)
    assert (tmp_path / "file").read_bytes() == CONTENT and server.requests[1][1].startswith("bytes=")


def test_of_two_that_want_a_file_one_downloads_it(server, tmp_path, monkeypatch):
    """Two open files of one process are locked as those of two."""
    server.gate.clear()
    told = io.StringIO()  # only read: what `capsys` empties while another thread writes may be lost
    monkeypatch.setattr(sys, "stderr", told)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(fetch, tmp_path / "file", [server.url()], RIGHT)
        while not server.requests:
            assert not first.done()
        second = pool.submit(fetch, tmp_path / "file", [server.url()], RIGHT)
        while "waiting for another download of file to end\n" not in told.getvalue():
            assert not second.done()
        server.gate.set()
        assert first.result() == second.result() == tmp_path / "file"
    assert (tmp_path / "file").read_bytes() == CONTENT and len(server.requests) == 1
