"""Servers of this process on a free port, which answer with JSON or text."""

import contextlib
import dataclasses
import http.server
import json
import threading
import urllib.parse
from collections.abc import Mapping


class Refused(Exception):
    """An answer with another status than 200."""

    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


@dataclasses.dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: dict[str, str]
    headers: Mapping[str, str]
    body: bytes


@contextlib.contextmanager
def serving(answer):
    """Serves while the context lasts; yields the address.

    Args:
        answer: makes a document or a text of a `Request`, or raises `Refused`.
    """

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            """Says nothing."""

        def handle_all(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            url = urllib.parse.urlparse(self.path)
            query = {key: values[0] for key, values in urllib.parse.parse_qs(url.query).items()}
            try:
                found = answer(Request(self.command, url.path, query, self.headers, body))
                status = 200
            except Refused as refused:
                status = refused.status
                found = {"kind": "Status", "code": status, "message": str(refused)}
            is_text = isinstance(found, str)
            content = found.encode() if is_text else json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/plain" if is_text else "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PATCH = do_DELETE = handle_all  # noqa: N815

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
