"""Downloads: resumed, checked, from the first mirror that works, from a server of our own."""

import email.utils
import errno
import hashlib
import os
import socket
import subprocess
import sys
import time

import pytest

from agg_fairseq.errors import UserError
from scripts.data import download as module
from scripts.data.download import expected, fetch
from tests.conftest import ROOT
from tests.serving import serving

CONTENT = bytes(range(256)) * 5000
SHA256 = hashlib.sha256(CONTENT).hexdigest()
RIGHT = expected(SHA256)


def any_file(_):
    """A check that every file passes."""


@pytest.fixture(autouse=True)
def pauses(monkeypatch):
    """How long it would have waited between attempts."""
    found = []
    monkeypatch.setattr(module.time, "sleep", found.append)
    return found


@pytest.fixture
def server():
    with serving() as server:
        server.files["/file"] = CONTENT
        yield server


@pytest.fixture
def dead():
    """A URL at which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{probe.getsockname()[1]}/file"


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_downloaded_whole_and_not_asked_for_again(server, tmp_path):
    target = tmp_path / "new folder" / "file.zip"
    for _ in range(2):
        assert fetch(target, [server.url()], RIGHT) == target
    assert target.read_bytes() == CONTENT
    assert names(target.parent) == ["file.zip"]
    assert server.requests == [("/file", None, None)]


def test_a_broken_connection_is_resumed_at_the_byte_where_it_broke(server, tmp_path):
    server.cuts = [1000, 300_000]
    fetch(tmp_path / "file", [server.url()], RIGHT)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert [asked for _, asked, _ in server.requests] == [None, "bytes=1000-", "bytes=301000-"]


def test_a_later_call_goes_on_where_attempts_brought_nothing_any_more(server, tmp_path, pauses):
    server.cuts = [1000] * 5 + [0] * module.ATTEMPTS
    with pytest.raises(UserError, match=r"the connection ended after 5,000 of 1,280,000 bytes\); see to the network"):
        fetch(tmp_path / "file", [server.url()], any_file)
    assert not (tmp_path / "file").exists()
    assert pauses == [module.PAUSE] * 5 + [module.PAUSE * factor for factor in (2, 4, 8, 16)]
    fetch(tmp_path / "file", [server.url()], any_file)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.requests[-1] == ("/file", "bytes=5000-", '"1"')


def test_a_connection_that_breaks_often_is_borne_as_long_as_bytes_come(server, tmp_path):
    server.cuts = [1000] * 5 * module.ATTEMPTS
    fetch(tmp_path / "file", [server.url()], RIGHT)
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_mirror_that_had_the_file_is_waited_for(server, dead, tmp_path, pauses, monkeypatch):
    """Not one that never answered, or does not have it any more."""
    with pytest.raises(UserError, match="Connection refused"):
        fetch(tmp_path / "file", [dead], any_file)
    assert pauses == []
    (tmp_path / ".file.partial" / module.partial_name(dead)).write_bytes(b"some")
    with pytest.raises(UserError, match="Connection refused"):
        fetch(tmp_path / "file", [dead], any_file)
    assert len(pauses) == module.ATTEMPTS - 1
    server.cuts = [1000]
    monkeypatch.setattr(module.time, "sleep", lambda _: server.files.clear())
    with pytest.raises(UserError, match="HTTP 404"):
        fetch(tmp_path / "file", [server.url()], any_file)
    assert len(server.requests) == 2


def test_a_connection_that_never_gets_further_is_given_up(server, tmp_path):
    """Where each attempt begins anew, with more and with less in turn."""
    server.ranges, server.cuts = False, [2000, 1000] * 2 * module.ATTEMPTS
    with pytest.raises(UserError, match="the connection ended after"):
        fetch(tmp_path / "file", [server.url()], any_file)
    assert len(server.requests) == 1 + module.ATTEMPTS


def test_what_came_from_one_mirror_outlives_the_try_of_another(server, tmp_path):
    """Both break off, in each of three runs; the first has sent all of it then."""
    server.files["/other"] = CONTENT
    mirrors = [server.url(), server.url("/other")]
    third = len(CONTENT) // 3 + 1
    for _ in range(2):
        server.cuts = [third, *[0] * module.ATTEMPTS, 1000, *[0] * module.ATTEMPTS]
        with pytest.raises(UserError):
            fetch(tmp_path / "file", mirrors, any_file)
    server.requests.clear()
    fetch(tmp_path / "file", mirrors, any_file)
    assert (tmp_path / "file").read_bytes() == CONTENT and names(tmp_path) == ["file"]
    assert server.requests == [("/file", f"bytes={2 * third}-", '"1"')]


def test_one_of_several_versions(server, tmp_path):
    """Each of them is accepted, whichever digest is published of it, and nothing else."""
    server.files["/login"] = b"<html>log in first"
    other = hashlib.md5(CONTENT[::-1]).hexdigest()
    check = expected(other, SHA256)
    assert fetch(tmp_path / "file", [server.url("/login"), server.url()], check).read_bytes() == CONTENT
    server.files["/other"] = CONTENT[::-1]
    assert fetch(tmp_path / "other", [server.url("/other")], check).read_bytes() == CONTENT[::-1]
    said = rf"sent another file: found the MD5 \w{{32}}, SHA-256 \w{{64}}; expected MD5 {other} or SHA-256 {SHA256}"
    with pytest.raises(UserError, match=said):
        fetch(tmp_path / "page", [server.url("/login")], check)
    assert not (tmp_path / "page").exists()


def test_what_changed_on_the_server_is_not_glued_to_what_was_there(server, tmp_path):
    server.cuts = [1000, *[0] * module.ATTEMPTS]
    with pytest.raises(UserError):
        fetch(tmp_path / "file", [server.url()], any_file)
    server.tag, server.files["/file"] = '"2"', CONTENT[::-1]
    fetch(tmp_path / "file", [server.url()], any_file)
    assert (tmp_path / "file").read_bytes() == CONTENT[::-1]


@pytest.mark.parametrize(
    ("tag", "ranges", "asked"), [('"1"', False, "bytes=1000-"), ("", True, None), ('W/"1"', True, None)]
)
def test_without_ranges_or_a_strong_tag_it_starts_again(server, tmp_path, tag, ranges, asked):
    server.tag, server.ranges, server.cuts = tag, ranges, [1000]
    fetch(tmp_path / "file", [server.url()], any_file)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert [request[1] for request in server.requests] == [None, asked]


def test_a_file_that_was_complete_but_not_renamed(server, tmp_path):
    partial = tmp_path / ".file.partial" / module.partial_name(server.url())
    partial.parent.mkdir()
    partial.write_bytes(CONTENT)
    partial.with_name(f"{partial.name}.tag").write_text('"1"')
    fetch(tmp_path / "file", [server.url()], RIGHT)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert names(tmp_path) == ["file"]
    assert len(server.requests) == 1  # answered by 416: there is nothing after what had arrived


def test_a_partial_file_that_is_as_long_but_different(server, tmp_path):
    partial = tmp_path / ".file.partial" / module.partial_name(server.url())
    partial.parent.mkdir()
    partial.write_bytes(CONTENT[::-1])
    partial.with_name(f"{partial.name}.tag").write_text('"1"')
    fetch(tmp_path / "file", [server.url()], RIGHT)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert [asked for _, asked, _ in server.requests] == [f"bytes={len(CONTENT)}-", None]


@pytest.mark.parametrize("status", [429, 502, 503])
def test_a_server_that_is_busy_is_asked_again(server, tmp_path, pauses, status):
    """At the first answer, too; as late as it asks for, but not earlier than without that."""
    server.refusals = [(status, None), (status, "0"), (status, "7"), (status, "soon")]
    fetch(tmp_path / "file", [server.url()], RIGHT)
    assert pauses == [2, 4, 8, 16]
    server.refusals = [(status, "100"), (status, email.utils.formatdate(time.time() + 60, usegmt=True))]
    fetch(tmp_path / "again", [server.url()], RIGHT)
    assert pauses[4] == 100 and 55 < pauses[5] <= 60


def test_a_server_that_stays_busy_is_given_up(server, tmp_path, pauses):
    server.refusals = [(503, None)] * module.ATTEMPTS
    server.files["/mirror"] = CONTENT
    assert fetch(tmp_path / "file", [server.url(), server.url("/mirror")], RIGHT).read_bytes() == CONTENT
    assert len(pauses) == module.ATTEMPTS - 1
    server.refusals = [(503, "3600")]
    with pytest.raises(UserError, match="HTTP 503 Service Unavailable, asks to wait 3,600 s"):
        fetch(tmp_path / "again", [server.url()], RIGHT)
    assert len(pauses) == module.ATTEMPTS - 1


def test_what_arrived_before_a_stall_is_kept(server, tmp_path, monkeypatch):
    """The connection stays open, and nothing more comes: fewer bytes than are read at a time."""
    monkeypatch.setattr(module, "TIMEOUT", 0.2)
    server.cuts, server.stall = [1000], 0.5
    fetch(tmp_path / "file", [server.url()], RIGHT)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert [asked for _, asked, _ in server.requests] == [None, "bytes=1000-"]


def test_the_first_mirror_that_works_is_taken(server, dead, tmp_path):
    there = tmp_path / "there"
    there.write_bytes(CONTENT)
    server.files["/wrong"] = b"a page that says sorry"
    mirrors = [dead, server.url("/missing"), server.url("/wrong"), there.as_uri(), server.url()]
    fetch(tmp_path / "file", mirrors, RIGHT)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert [path for path, *_ in server.requests] == ["/missing", "/wrong"]


def test_all_failures_are_told_in_one_line(server, dead, tmp_path):
    server.files["/wrong"] = b"a page that says sorry"
    absent = (tmp_path / "absent").as_uri()
    with pytest.raises(UserError) as error:
        fetch(tmp_path / "file", [dead, server.url("/missing"), server.url("/wrong"), absent], RIGHT)
    told = str(error.value)
    assert "\n" not in told
    assert f"{dead}: Connection refused; {server.url('/missing')}: HTTP 404 Not Found; " in told
    assert f"{hashlib.sha256(b'a page that says sorry').hexdigest()}; expected {SHA256}; {absent}: No such file" in told
    assert told.endswith(f"or put the file there by hand, as {tmp_path / 'file'}")
    assert not (tmp_path / "file").exists()


def test_a_file_that_is_there_is_checked_and_never_replaced(server, tmp_path):
    (tmp_path / "file").write_bytes(b"mine")
    assert fetch(tmp_path / "file", [server.url()], any_file).read_bytes() == b"mine"
    with pytest.raises(UserError, match=f"expected {SHA256}; remove the file"):
        fetch(tmp_path / "file", [server.url()], RIGHT)
    assert (tmp_path / "file").read_bytes() == b"mine"
    assert server.requests == []


def test_a_full_disk_is_one_line_and_the_next_run_goes_on(server, tmp_path, monkeypatch):
    class Full:
        """A bar that fails as a write to a full disk does, after some bytes are written."""

        def __init__(self, *_, **__): ...
        def __enter__(self):
            return self

        def __exit__(self, *_): ...
        def update(self, _):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("tqdm.tqdm", Full)
        with pytest.raises(UserError, match="cannot write .*file: No space left on device; make room"):
            fetch(tmp_path / "file", [server.url()], RIGHT)
    fetch(tmp_path / "file", [server.url()], RIGHT)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert 0 < int(server.requests[1][1].removeprefix("bytes=").removesuffix("-")) <= module.CHUNK


def test_a_folder_that_cannot_be_made(server, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(UserError, match="cannot write .*: (Not a directory|File exists)"):
        fetch(tmp_path / "file" / "in" / "it", [server.url()], any_file)


def test_two_processes_download_once(server, tmp_path):
    program = (
        "import sys, pathlib; from scripts.data.download import fetch; "
        "fetch(pathlib.Path(sys.argv[1]), sys.argv[2:], lambda path: None)"
    )
    command = [sys.executable, "-c", program, tmp_path / "file", server.url()]
    server.gate.clear()
    first = subprocess.Popen(command, cwd=ROOT)
    while not server.requests:
        assert first.poll() is None
        time.sleep(0.01)
    second = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    assert second.stderr.readline() == "waiting for another download of file to end\n"
    server.gate.set()
    assert second.communicate(timeout=60)[1] == ""
    assert (first.wait(timeout=60), second.returncode) == (0, 0)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert len(server.requests) == 1
