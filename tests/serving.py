"""A server of files on this machine, for tests of downloads."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Files(ThreadingHTTPServer):
    """Serves files, with ranges.

    files: content by path.
    cuts: how many bytes the next answers have; None for all.
    requests: what was asked for: the path, and the headers Range and If-Range.
    tag: the files' ETag; "" for none.
    ranges: whether ranges are granted.
    gate: answers wait until it is set.
    refusals: status and Retry-After (or None) of the next answers, instead of content.
    stall: seconds for which the connection stays open after an answer that was cut.
    """

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files, self.cuts, self.requests, self.tag, self.ranges = {}, [], [], '"1"', True
        self.refusals, self.stall = [], 0.0
        self.gate = threading.Event()
        self.gate.set()

    def url(self, path="/file"):
        return f"http://127.0.0.1:{self.server_port}{path}"


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        server, asked = self.server, self.headers.get("Range")
        server.requests.append((self.path, asked, self.headers.get("If-Range")))
        server.gate.wait(60)
        if server.refusals:
            status, wait = server.refusals.pop(0)
            self.send_response(status)
            if wait is not None:
                self.send_header("Retry-After", wait)
            return self.end_headers()
        if self.path not in server.files:
            return self.send_error(404)
        content, start = server.files[self.path], 0
        if asked and server.ranges and self.headers.get("If-Range") == server.tag:
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
        if start and start >= len(content):
            return self.send_error(416)
        self.send_response(206 if start else 200)
        if server.tag:
            self.send_header("ETag", server.tag)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        cut = server.cuts.pop(0) if server.cuts else None
        self.wfile.write(content[start:] if cut is None else content[start : start + cut])
        if cut is not None and server.stall:
            self.wfile.flush()
            time.sleep(server.stall)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def serving() -> Iterator[Files]:
    """A server that runs until the block ends."""
    with Files() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()
