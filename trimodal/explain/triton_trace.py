"""Has Triton trace requests to some models for a while, and reads what it wrote.

Triton (2.51 to 2.71) writes a trace to a file once the request is released: `trace.0`, `trace.1`, … with
`log_frequency` 1. The file's name is fixed when the server starts; all else is set over the trace API.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trimodal.errors import OperatorError
from trimodal.server.launch import GRPC_OPERATOR_HEADER

_SETTINGS = ("trace_level", "trace_rate", "trace_count", "log_frequency")
_ON = {"trace_level": ["TIMESTAMPS"], "trace_rate": ["1"], "trace_count": ["-1"], "log_frequency": ["1"]}


class NotTraced(OperatorError):
    """Triton cannot be had to trace; the sentence says why, and what would help."""


@dataclass(frozen=True)
class TraceRecord:
    """What Triton did with one request to one model.

    Attributes:
        parent: id of the ensemble's record; 0: none.
        times: name → nanoseconds of the server's monotonic clock, the first and the last of that name.
    """

    id: int
    model: str
    request_id: str = ""
    parent: int = 0
    times: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def first(self, name: str) -> int | None:
        """When this happened first; None: the trace does not have it."""
        return self.times[name][0] if name in self.times else None

    def last(self, name: str) -> int | None:
        return self.times[name][1] if name in self.times else None


def parse(text: str) -> list[TraceRecord]:
    """The records of a trace file, as far as it can be read."""
    try:
        entries = json.loads(text)
    except ValueError:
        return []  # it is being written
    heads: dict[int, dict[str, Any]] = {}
    times: dict[int, dict[str, tuple[int, int]]] = {}
    for entry in entries:
        number = int(entry["id"])
        if "model_name" in entry:
            heads[number] = entry
        of = times.setdefault(number, {})
        for one in entry.get("timestamps", ()):
            name, at = str(one["name"]), int(one["ns"])
            low, high = of.get(name, (at, at))
            of[name] = (min(low, at), max(high, at))
    return [
        TraceRecord(
            number,
            head["model_name"],
            head.get("request_id", ""),
            int(head.get("parent_id", 0)),
            times.get(number, {}),
        )
        for number, head in sorted(heads.items())
    ]


class TritonTrace:
    """Triton's traces of requests to `models`, while `on` is entered."""

    def __init__(self, client: Any, models: Sequence[str], operator_key: str, timeout: float) -> None:
        """`client`: tritonclient's for asyncio; it stays its owner's to close. `timeout`: seconds a call."""
        self._client = client
        self._timeout = timeout
        self._models = models
        self._headers = {GRPC_OPERATOR_HEADER: operator_key} if operator_key else {}
        self._file = Path()
        self._old: set[Path] = set()
        self._alone = False

    @asynccontextmanager
    async def on(self) -> AsyncIterator[TritonTrace]:
        """Traces what comes to the models; afterwards the settings are as they were.

        Raises:
            NotTraced: without a key, a trace file, or where that is on another machine.
        """
        from tritonclient.utils import InferenceServerException

        before: dict[str, dict[str, Any]] = {}
        try:
            try:
                common = await self._read("")
                self._check(common)
                for model in self._models:
                    own = _tracing(await self._read(model))
                    # Another explain's, also of one that was killed, would stay: a file for each request.
                    before[model] = {} if own in (_ON, _tracing(common)) else own
                    await self._set(model, _ON)
            except InferenceServerException as error:
                raise NotTraced(_why(error)) from None
            yield self
        finally:
            with contextlib.suppress(InferenceServerException):
                for model, settings in before.items():
                    await self._set(model, {name: settings.get(name) for name in _SETTINGS})

    async def records(self, request_id: str, model: str, *, seconds: float = 2.0) -> list[TraceRecord]:
        """What is traced until now, once this model's request with this id is; nothing after so many seconds.

        Requests that it makes of others have the same id, and may be traced before it.

        The files are removed, unless somebody else has requests traced, too.
        """
        deadline = time.monotonic() + seconds
        while True:
            found = {path: parse(_text(path)) for path in self._files() - self._old}
            every = [one for records in found.values() for one in records]
            if any((one.request_id, one.model) == (request_id, model) for one in every):
                for path in found if self._alone else ():
                    path.unlink(missing_ok=True)
                return every
            if time.monotonic() > deadline:
                return []
            await asyncio.sleep(0.02)

    def _files(self) -> set[Path]:
        return set(self._file.parent.glob(f"{self._file.name}.*"))

    def _check(self, settings: Mapping[str, list[str]]) -> None:
        if settings.get("trace_mode", ["triton"]) != ["triton"]:
            raise NotTraced("this server sends its traces to OpenTelemetry, so it writes none")
        self._file = Path((settings.get("trace_file") or [""])[0])
        if not self._file.name:
            raise NotTraced("this server was started without a file for traces")
        if not self._file.parent.is_dir():
            raise NotTraced("the server runs on another machine, where it writes its traces")
        self._alone = settings.get("trace_level") == ["OFF"]
        self._old = self._files()

    async def _read(self, model: str) -> dict[str, list[str]]:
        answer = await self._client.get_trace_settings(
            model, headers=self._headers, client_timeout=self._timeout
        )
        return {name: list(setting.value) for name, setting in answer.settings.items()}

    async def _set(self, model: str, settings: Mapping[str, Any]) -> None:
        await self._client.update_trace_settings(
            model, dict(settings), headers=self._headers, client_timeout=self._timeout
        )


def _tracing(settings: Mapping[str, list[str]]) -> dict[str, Any]:
    """Of all settings those that are set here."""
    return {name: settings.get(name) for name in _SETTINGS}


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _why(error: Exception) -> str:
    if "restricted" in str(error):
        return "the trace API wants the operator's key: TRIMODAL_OPERATOR_KEY or --operator-key-file"
    return f"Triton's trace API: {error}"
