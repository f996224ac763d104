"""Answers over HTTP whether the server works: the page that probes and clients read.

    GET /live    200 while tritonserver runs or loads its models
    GET /ready   200 while all models take requests; 503 from the beginning of a drain to the end
    GET /health  200, and the body of /ready: each model, as JSON
    GET /refresh  whose copy POST makes again: the HTTP port of the server
    POST /refresh  with the operator's key: a copy that the server reads (--set, --engines) is made again of
                 the files as they are; `trimodal reload` asks for it before it has a model loaded
    GET /lost    model → seconds since it was taken from a process that died: what was sent to it before, and
                 is not answered, will not be. Told without a look at Triton, as clients ask while they wait.

Triton's own /v2/health/ready knows neither a dead process of a Python model nor a lost engine.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import logging
import socket
import sys
import threading
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from trimodal.errors import ServerError
from trimodal.server.launch import OPERATOR_HEADER
from trimodal.server.overlay import ServedRepository
from trimodal.server.supervision.supervisor import Supervisor

logger = logging.getLogger(__name__)
_TIMEOUT_S = 5.0  # for a request to arrive
_MOST_BODY = 1 << 16  # bytes that are read of what is not looked at


class HealthServer:
    """The page of one server, from its start on. Raises: ServerError: the port cannot be opened."""

    def __init__(
        self,
        host: str,
        port: int,
        supervisor: Supervisor,
        repository: ServedRepository,
        *,
        http_port: int,
        operator_key: str,
    ) -> None:
        class Handler(BaseHTTPRequestHandler):
            timeout = _TIMEOUT_S
            server_version, sys_version = "trimodal", ""

            def do_GET(self) -> None:
                if self.path == "/live":
                    alive = supervisor.alive
                    self._answer(200 if alive else 503, {"live": alive})
                elif self.path in ("/ready", "/health"):
                    health = supervisor.health()
                    self._answer(200 if health.ready or self.path == "/health" else 503, asdict(health))
                elif self.path == "/lost":
                    self._answer(200, supervisor.lost())
                elif self.path == "/refresh":
                    self._answer(200, {"http_port": http_port})
                else:
                    self._answer(404, {"error": "there are /live, /ready, /health and /lost"})

            do_HEAD = do_GET

            def do_POST(self) -> None:
                # A body that is left unread resets the connection, and the answer may be lost with it.
                length = self.headers.get("Content-Length", "")
                self.rfile.read(min(int(length), _MOST_BODY) if length.isdecimal() else 0)
                key = self.headers.get(OPERATOR_HEADER, "")
                if self.path != "/refresh":
                    self._answer(404, {"error": "there is /refresh"})
                elif not hmac.compare_digest(key.encode(), operator_key.encode()):
                    self._answer(401, {"error": "the API is restricted to the server's operator"})
                else:
                    try:
                        repository.refresh()
                        self._answer(200, {})
                    except (ServerError, OSError) as error:
                        self._answer(409, {"error": str(error)})

            def _answer(self, status: int, body: dict[str, Any]) -> None:
                data = json.dumps(body).encode() + b"\n"
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass  # a probe a second is no news

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 1024  # of the 5 by default a burst of idle clients leaves none to a probe
            address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

            def handle_error(self, *_: object) -> None:
                if not isinstance(sys.exc_info()[1], OSError):  # else a client that left
                    logger.exception("the health page failed on a request")

        try:
            self._server = Server((host, port), Handler)
        except OSError as error:
            raise ServerError(f"the health page cannot be on {host}, port {port}: {error.strerror}") from None
        self._thread = threading.Thread(target=self._server.serve_forever, name="health", daemon=True)
        try:
            self._thread.start()
        except BaseException:
            self._server.server_close()
            raise

    def close(self) -> None:
        """Closes the port."""
        with contextlib.suppress(OSError):  # some systems end no socket that only listens
            self._server.socket.shutdown(socket.SHUT_RDWR)  # wakes the thread, which looks twice a second
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5.0)
