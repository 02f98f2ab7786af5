import itertools
import tarfile

import pytest

from agg_fairseq.errors import UserError
from scripts.data.files import BATCH, Text, in_batches, read_lines, sgm_segments, write_lines
from tests.wmt_archives import write_archive


def test_lines_of_plain_text(tmp_path):
    """A line stays a line, whatever is in it; a mark before the text and spaces around lines are not of it."""
    path = tmp_path / "text"
    path.write_bytes("\ufeffone\r\n\n two\u2028three\x0bfour\rfive \nnaïve\u00a0x\nend".encode())
    assert list(Text(path).lines()) == ["one", "", "two three four five", "naïve\u00a0x", "end"]


def test_members_of_archives(tmp_path):
    """The first that is there, in its own form; one that would lie elsewhere is another name, and a link is no text."""
    path = write_archive(tmp_path / "a.tgz", {
        "./dev/a.en": "one\ntwo\n", "dev/a.de.sgm": '<seg id="1">eins &amp;</seg>', "../dev/b.en": "no",
    })  # fmt: skip
    assert list(Text(path, ("dev/a.en", "dev/a.en.sgm")).lines()) == ["one", "two"]
    assert list(Text(path, ("dev/a.de", "dev/a.de.sgm")).lines()) == ["eins &"]
    with tarfile.open(tmp_path / "b.tar", "w") as file:
        link = tarfile.TarInfo("dev/b.en")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        file.addfile(link)
    for archive in (path, tmp_path / "b.tar"):
        with pytest.raises(UserError, match="found no dev/b.en; expected WMT's own archive"):
            list(Text(archive, ("dev/b.en",)).lines())
    assert len(list(tmp_path.iterdir())) == 2  # nothing was extracted


def test_other_encodings_and_missing_files(tmp_path):
    path, content = tmp_path / "text", b"one\n<seg>Gr\xfc\xdfe</seg>\n"
    path.write_bytes(content)
    archive = write_archive(tmp_path / "a.tgz", {"a": content, "a.sgm": content})
    for text in (Text(path), Text(archive, ("a",)), Text(archive, ("a.sgm",))):
        with pytest.raises(UserError, match="found bytes that are not UTF-8"):
            list(text.lines())
    for text in (Text(tmp_path / "none"), Text(tmp_path), Text(tmp_path / "none", ("a",))):
        with pytest.raises(UserError, match="unreadable"):
            list(text.lines())


def test_written_and_read_again(tmp_path):
    lines = ["one", "", "two\rthree\u2028four", "fünf"]
    write_lines(tmp_path / "text", lines)
    assert list(read_lines(tmp_path / "text")) == lines


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            '<srcset setid="newstest2014"><doc docid="1">\n<p>\n<seg id="1">Orlando Bloom &amp; Miranda Kerr</seg>\n'
            '<seg id="2"></seg>\n</p><SEG ID="3"> Tom said: &quot;&lt;i&gt; isn&apos;t\n text&quot; </SEG></doc>',
            ["Orlando Bloom & Miranda Kerr", "", 'Tom said: "<i> isn\'t text"'],
        ),
        ('<segment id="1">no</segment><seg id="1">R&D, AT&T</seg>', ["R&D, AT&T"]),
        ('<seg id="1">&amp;lt; &sect; &copyright a > b</seg>', ["&lt; &sect; &copyright a > b"]),
        ('<seg id="1">never closed', []),
    ],
)
def test_sgm_segments(text, expected):
    """In order, one to a line, the empty one kept; entities are characters, and those of text are kept."""
    assert sgm_segments(text) == expected


def test_batches_are_done_in_order_as_they_are_needed():
    stream = in_batches(list, itertools.count())  # endless
    assert [next(stream) for _ in range(2 * BATCH + 1)] == list(range(2 * BATCH + 1))
