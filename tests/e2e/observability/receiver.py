"""A tiny OpenTelemetry collector: takes spans over HTTP as JSON, which Triton sends."""

from __future__ import annotations

import json
from typing import Any

from tests.doubles.http_server import Asked, answering


class Receiver:
    """Started with `with`; `spans` holds all that came, as OTLP's JSON has them."""

    def __init__(self) -> None:
        self.spans: list[dict[str, Any]] = []
        self.services: set[str] = set()

    def _answer(self, request: Asked) -> tuple[int, bytes]:
        if request.path == "/v1/traces":
            self.take(json.loads(request.body))
        return 200, b""

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
        self._server = answering(self._answer)
        self.url = f"http://127.0.0.1:{self._server.__enter__()}"
        return self

    def __exit__(self, *_: object) -> None:
        self._server.__exit__(None, None, None)
