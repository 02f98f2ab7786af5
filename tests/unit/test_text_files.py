"""Texts, plain and in archives, of all that may be wrong with them."""

import errno
import os
import tarfile

import pytest

from agg_fairseq.errors import UserError
from scripts.command import run, writing
from scripts.data.text_files import Text, read_lines, sgm_segments, write_lines, write_pairs
from tests.wmt_archives import add

LINES = [f"sentence {number * 7919 % 1000}" for number in range(2000)]


def archive(path, **members):
    """A .tgz of members by their names, `_` for `/`."""
    with tarfile.open(path, "w:gz") as file:
        for name, text in members.items():
            add(file, name.replace("_", "/"), text.encode())
    return path


def test_plain_text(tmp_path):
    """A line stays a line, whatever is in it; a mark before the text and spaces around lines are not of it."""
    path = tmp_path / "text"
    path.write_bytes("\ufeffone\r\n\n two\u2028three\x0bfour\rfive \nnaïve\u00a0x\nend".encode())
    assert list(Text(path).lines()) == ["one", "", "two three four five", "naïve\u00a0x", "end"]


def test_members_of_archives(tmp_path):
    """The first that is there, in its own form."""
    path = archive(tmp_path / "a.tgz", **{"./dev_a.en": "one\ntwo\n", "dev_a.de.sgm": '<seg id="1">eins &amp;</seg>'})
    assert list(Text(path, ("dev/a.en", "dev/a.en.sgm")).lines()) == ["one", "two"]
    assert list(Text(path, ("dev/a.de", "dev/a.de.sgm")).lines()) == ["eins &"]


def test_nothing_is_extracted(tmp_path):
    """A member that would lie elsewhere is just another name, and a link is no text."""
    path = tmp_path / "a.tgz"
    with tarfile.open(path, "w:gz") as file:
        link = tarfile.TarInfo("a.en")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        file.addfile(link)
        add(file, "../outside", b"x\n")
    with pytest.raises(UserError, match="found no a.en in it"):
        list(Text(path, ("a.en",)).lines())
    assert list(tmp_path.iterdir()) == [path] and not (tmp_path.parent / "outside").exists()


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_archive_that_is_cut_short(tmp_path, share):
    path = archive(tmp_path / "a.tgz", first="x\n" * 5000, a="\n".join(LINES), last="\n".join(reversed(LINES)))
    assert list(Text(path, ("a",)).lines()) == LINES
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.raises(UserError, match=r"a\.tgz: found a damaged archive \(.*; remove it, get it anew"):
        list(Text(path, ("a",)).lines())


def test_archive_with_a_wrong_bit(tmp_path):
    path = archive(tmp_path / "a.tgz", a="\n".join(LINES))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match="found a damaged archive"):
        list(Text(path, ("a",)).lines())


@pytest.mark.parametrize("members", [(), ("a",), ("a.sgm",)])
def test_other_encodings(tmp_path, members):
    path = tmp_path / "text"
    path.write_bytes(b"one\n<seg>Gr\xfc\xdfe</seg>\n")
    if members:
        with tarfile.open(tmp_path / "a.tgz", "w:gz") as file:
            file.add(path, members[0])
        path = tmp_path / "a.tgz"
    with pytest.raises(UserError, match="found bytes that are not UTF-8") as error:
        list(Text(path, members).lines())
    assert ("line 2" in str(error.value)) == (members != ("a.sgm",))


@pytest.mark.parametrize("members", [(), ("a",)])
def test_unreadable(tmp_path, members):
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(UserError, match=f"{path.name}: unreadable"):
            list(Text(path, members).lines())


def test_not_an_archive(tmp_path):
    (tmp_path / "a.tgz").write_text("<html>404</html>")
    with pytest.raises(UserError, match="found a damaged archive"):
        list(Text(tmp_path / "a.tgz", ("a",)).lines())


def test_written_and_read_again(tmp_path):
    lines = ["one", "", "two\rthree\u2028four", "fünf"]
    assert write_lines(tmp_path / "text", lines) == 4
    assert list(read_lines(tmp_path / "text")) == lines


def test_pairs(tmp_path):
    write_pairs([tmp_path / "a", tmp_path / "b"], [("one", "eins"), ("two", "")])
    assert [(tmp_path / name).read_text() for name in "ab"] == ["one\ntwo\n", "eins\n\n"]


REAL = """<srcset setid="newstest2014" srclang="any">
<doc sysid="ref" docid="abcnews.go.com/1" genre="news" origlang="en">
<p>
<seg id="1">Orlando Bloom &amp; Miranda Kerr</seg>
<seg id="2"></seg>
</p>
<p>
<seg id="3"> Tom said: &quot;&lt;i&gt; isn&apos;t
 text&quot; </seg>
</p></doc></srcset>
"""


def test_segments():
    """In order, one to a line, the empty one kept; entities are characters, and those of text are kept."""
    assert sgm_segments(REAL) == ["Orlando Bloom & Miranda Kerr", "", 'Tom said: "<i> isn\'t text"']


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("<seg>a</seg><seg id='2'>b</seg>", ["a", "b"]),
        ('<SEG ID="1">a</SEG>', ["a"]),
        ('<segment id="1">no</segment><seg id="1">R&D, AT&T</seg>', ["R&D, AT&T"]),
        ('<seg id="1">&amp;lt; &sect; &copyright</seg>', ["&lt; &sect; &copyright"]),
        ('<seg id="1">a > b</seg>', ["a > b"]),
        ('<seg id="1">never closed', []),
    ],
)
def test_irregular_segments(text, expected):
    assert sgm_segments(text) == expected


def test_full_disk_names_the_file(tmp_path, capsys):
    """The error of `write` names no file; that of a copy names the source first."""

    def write(*names):
        with writing(tmp_path / "text"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), *names)

    assert run("wmt14", write) == 2
    assert (
        capsys.readouterr().err
        == f"wmt14: error: {tmp_path}/text: No space left on device; mend that and run it again\n"
    )
    assert run("wmt14", lambda: write("here", None, "there")) == 2
    assert "error: there: No space left on device" in capsys.readouterr().err
