"""A stand-in for a Qdrant server: its REST calls answered by the client's local mode, and faults on demand.

It knows the calls that the store makes, no others. What a real server would say to them is its
documentation's word, not this file's.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pydantic import TypeAdapter
from qdrant_client import models

from tests.cache.stores.qdrant_local import local_client

Fault = Callable[[str, str], tuple[int, bytes] | None]


class StandIn:
    """Listens on a free port. `fault` may answer a call itself; `calls` are (method, path, headers)."""

    def __init__(self) -> None:
        self.local = local_client()
        self.fault: Fault = lambda method, path: None
        self.calls: list[tuple[str, str, dict[str, str]]] = []
        self.delay_s = 0.0
        self._going = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self) -> None:  # noqa: N802
                outer._answer(self)

            do_PUT = do_POST = do_GET  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"qdrant+http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self._going.set()
        self._server.shutdown()
        self._thread.join(20)
        self._server.server_close()

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("content-length", 0)))
        path = request.path.partition("?")[0]
        self.calls.append((request.command, path, {k.lower(): v for k, v in request.headers.items()}))
        self._going.wait(self.delay_s)
        status, content = self.fault(request.command, path) or self._call(request.command, path, body)
        try:
            request.send_response(status)
            request.send_header("content-length", str(len(content)))
            request.send_header("content-type", "application/json")
            request.end_headers()
            request.wfile.write(content)
        except OSError:
            pass  # the client did not wait

    def _call(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        _, _, name, *rest = [*path.split("/"), ""]
        sent = json.loads(body) if body else {}
        call = f"{method} {'/'.join(part for part in rest if part)}".strip()
        if not name:
            return _good(
                {"collections": [one.model_dump() for one in self.local.get_collections().collections]}
            )
        try:
            return _good(_jsonable(CALLS[call](self.local, name, sent)))
        except ValueError as error:
            status = 404 if "not found" in str(error) else 409 if "already exists" in str(error) else 400
            return status, json.dumps({"status": {"error": str(error)}, "time": 0}).encode()


def _filter(sent: dict[str, Any]) -> Any:
    return models.Filter.model_validate(sent["filter"]) if sent.get("filter") else None


def _selector(sent: dict[str, Any]) -> Any:
    return TypeAdapter(models.PointsSelector).validate_python(sent)


def _create(local: Any, name: str, sent: dict[str, Any]) -> bool:
    vectors = sent["vectors"] and models.VectorParams.model_validate(sent["vectors"])
    return bool(local.create_collection(name, vectors_config=vectors))


def _retrieve(local: Any, name: str, sent: dict[str, Any]) -> Any:
    return local.retrieve(name, sent["ids"], with_payload=sent["with_payload"])


def _query(local: Any, name: str, sent: dict[str, Any]) -> Any:
    return local.query_points(
        name,
        query=sent["query"]["nearest"],
        query_filter=_filter(sent),
        limit=sent["limit"],
        with_payload=sent["with_payload"],
    )


def _scroll(local: Any, name: str, sent: dict[str, Any]) -> Any:
    points, offset = local.scroll(
        name,
        scroll_filter=_filter(sent),
        limit=sent["limit"],
        offset=sent.get("offset"),
        order_by=sent.get("order_by"),
        with_payload=sent["with_payload"],
    )
    return {"points": [point.model_dump() for point in points], "next_page_offset": offset}


CALLS: dict[str, Callable[[Any, str, dict[str, Any]], Any]] = {
    "GET exists": lambda local, name, sent: {"exists": local.collection_exists(name)},
    "PUT": _create,
    "PUT index": lambda local, name, sent: _done(local.count(name)),
    "PUT points": lambda local, name, sent: _done(
        local.upsert(name, [models.PointStruct.model_validate(point) for point in sent["points"]])
    ),
    "POST points": _retrieve,
    "POST points/query": _query,
    "POST points/count": lambda local, name, sent: local.count(name, _filter(sent)),
    "POST points/scroll": _scroll,
    "POST points/delete": lambda local, name, sent: _done(local.delete(name, _selector(sent))),
    "POST points/payload": lambda local, name, sent: _done(
        local.set_payload(name, sent["payload"], _filter(sent))
    ),
}


def _done(_: object) -> dict[str, Any]:
    return {"operation_id": 1, "status": "completed"}


def _jsonable(value: Any) -> Any:
    if isinstance(value, list):
        return [_jsonable(one) for one in value]
    return value.model_dump() if hasattr(value, "model_dump") else value


def _good(result: Any) -> tuple[int, bytes]:
    return 200, json.dumps({"result": result, "status": "ok", "time": time.process_time()}).encode()
