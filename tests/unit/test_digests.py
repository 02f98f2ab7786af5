"""Digests of published files."""

import hashlib

from scripts.data.digests import published


def test_one_of_several_versions_is_accepted_by_any_of_their_digests(tmp_path):
    check = published(*(hashlib.new(name, b"right").hexdigest() for name in ("md5", "sha1")), "0" * 64)
    (tmp_path / "file").write_bytes(b"right")
    assert check(tmp_path / "file") is None
    (tmp_path / "file").write_bytes(b"other")
    digests = [hashlib.new(name, b"other").hexdigest() for name in ("md5", "sha1", "sha256")]
    assert check(tmp_path / "file").startswith(f"found the digest {' or '.join(digests)}; expected ")
