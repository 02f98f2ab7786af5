"""A server of files on this machine, for tests of downloads."""

import contextlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Files(ThreadingHTTPServer):
    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files = {}  # content by path
        self.requests = []  # what was asked for: the path, and the header Range

    def url(self, path="/file"):
        return f"http://127.0.0.1:{self.server_port}{path}"


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        server, asked = self.server, self.headers.get("Range")
        server.requests.append((self.path, asked))
        if self.path not in server.files:
            return self.send_error(404)
        content = server.files[self.path]
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
        if start and start >= len(content):
            return self.send_error(416)
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.end_headers()
        self.wfile.write(content[start:])

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def serving():
    with Files() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()
