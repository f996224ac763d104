"""An HTTP server in a thread whose answers a test decides."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Asked(BaseHTTPRequestHandler):
    """One request: `path`, `headers`, `connection`, and its whole `body`."""

    protocol_version = "HTTP/1.1"
    answer: Callable[[Asked], tuple[int, bytes]]
    body = b""

    def do_GET(self) -> None:
        self.body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        status, told = type(self).answer(self)
        self.close_connection = not status
        if status:
            self.send_response(status)
            self.send_header("Content-Length", str(len(told)))
            self.end_headers()
            self.wfile.write(told)

    do_POST = do_GET

    def log_message(self, *_: object) -> None: ...


@contextmanager
def answering(answer: Callable[[Asked], tuple[int, bytes]]) -> Iterator[int]:
    """The port of a server on loopback while the block lasts.

    Args:
        answer: gives each request its status and body; status 0 ends the connection without a byte.
    """
    handler = type("Handler", (Asked,), {"answer": staticmethod(answer)})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join(10)
