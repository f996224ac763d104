"""A tiny OpenTelemetry collector: takes spans over HTTP as JSON, which Triton sends."""

from __future__ import annotations

import http.server
import json
import threading
from typing import Any


class Receiver:
    """Started with `with`; `spans` holds all that came, as OTLP's JSON has them."""

    def __init__(self) -> None:
        self.spans: list[dict[str, Any]] = []
        self.services: set[str] = set()
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                if self.path == "/v1/traces":
                    receiver.take(body)
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *arguments: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def take(self, body: dict[str, Any]) -> None:
        for resource in body["resourceSpans"]:
            for attribute in resource["resource"]["attributes"]:
                if attribute["key"] == "service.name":
                    self.services.add(attribute["value"]["stringValue"])
            for scope in resource["scopeSpans"]:
                self.spans += scope["spans"]

    def of(self, trace: str) -> list[dict[str, Any]]:
        return [span for span in self.spans if span["traceId"] == trace]

    def names(self, trace: str) -> set[str]:
        return {span["name"] for span in self.of(trace)}

    def __enter__(self) -> Receiver:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)
