"""Configures logging once a process: one handler on stderr, in text or as a JSON object a line.

A module that has something to say calls `logging.getLogger(__name__)`. A record may name its request:

    logger.warning("refused a sequence", extra={"request_id": request_id})

and the trace that it belongs to, by `trace_id.set(…)` where the request's task begins. `extra={"fields": …}`
adds names and values: at the end of a text, as keys of an object.

Inside Triton, stderr of the Python models is part of Triton's log (its file: `trimodal serve --log`, or
TRIMODAL_LOG).
"""

from __future__ import annotations

import io
import json
import logging
import math
import os
import re
import sys
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

FORMAT_VARIABLE = "TRIMODAL_LOG_FORMAT"
LEVEL_VARIABLE = "TRIMODAL_LOG_LEVEL"
_WORD = re.compile(r"[!#-\[\]-~]+")  # printable ASCII without blanks, quotes and backslashes
_LONGEST_ID = 128  # characters of a request's id: a client may have chosen it
_TOLD_S = 60.0
LEVELS = ("debug", "info", "warning", "error")
trace_id: ContextVar[str] = ContextVar("trace_id", default="")
"""Of the request that the present task works for; in every record."""
request_fields: ContextVar[dict[str, object] | None] = ContextVar("request_fields", default=None)
"""What the log's line of that request will say."""


def note(**fields: object) -> None:
    """Adds to the line of the request that the present task works for; nothing where there is none."""
    if (noted := request_fields.get()) is not None:
        noted.update(fields)


class LoopFailures:
    """Tells of failures in a loop that goes on: of those of one kind the first, and then one a minute."""

    def __init__(self, logger: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._clock = clock
        self._told: dict[type[BaseException], float] = {}

    def tell(self, message: str, error: BaseException) -> None:
        """Logs a message with the error's traceback, unless one of its kind was logged just now."""
        now = self._clock()
        if now - self._told.get(type(error), -math.inf) >= _TOLD_S:
            self._told[type(error)] = now
            self._logger.error(message, exc_info=error)


def configure(model: str = "") -> None:
    """Sends this process's log records to stderr, as TRIMODAL_LOG_FORMAT and TRIMODAL_LOG_LEVEL say.

    A second call replaces the first. Records of other libraries are shown from WARNING on. An unknown
    format or level is taken as text and info: a server must not fail for its log. `model`, which this
    process serves, is named in every record.
    """
    handler = StderrHandler()
    handler.set_name("trimodal")
    as_json = os.environ.get(FORMAT_VARIABLE, "").lower() == "json"
    handler.setFormatter(RecordFormatter(model, as_json=as_json))
    root = logging.getLogger()
    for old in [one for one in root.handlers if one.get_name() == "trimodal"]:
        root.removeHandler(old)
    root.addHandler(handler)
    level = os.environ.get(LEVEL_VARIABLE, "").lower()
    logging.getLogger("trimodal").setLevel((level if level in LEVELS else "info").upper())


def outlive_output() -> None:
    """Lets this process go on where stdout or stderr takes nothing any more; what is written then is lost.

    A file on a full disk, a pipe whose reader ended, a terminal that was closed: a server must not end for
    what it says. Streams that something has replaced, as tests do, stay.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None or stream is not getattr(sys, f"__{name}__"):
            continue
        raw = io.BufferedWriter(_LossyFile(stream.fileno(), "w", closefd=False))
        setattr(sys, name, io.TextIOWrapper(raw, stream.encoding, stream.errors, line_buffering=True))


class _LossyFile(io.FileIO):
    def write(self, data: Any, /) -> int:
        try:
            written = super().write(data)
        except OSError:
            written = None
        return len(data) if written is None else written  # None: it would block, and a buffer raises then


class StderrHandler(logging.Handler):
    """Writes to whatever sys.stderr is at that moment, a record at once."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(f"{self.format(record)}\n")
            sys.stderr.flush()
        except Exception:
            self.handleError(record)


class RecordFormatter(logging.Formatter):
    """Text, or one object a line; a traceback stands below the text, in the object under `exception`.

    2026-11-22T07:40:01.123Z WARNING llm [request 17] the engine is lost: …
    """

    def __init__(self, model: str, *, as_json: bool) -> None:
        super().__init__()
        self._model = model
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        moment = f"{seconds}.{int(record.msecs):03d}Z"
        request_id, message = getattr(record, "request_id", ""), record.getMessage()
        if isinstance(request_id, str):
            request_id = request_id[:_LONGEST_ID]
        trace = trace_id.get()
        exception = self.formatException(record.exc_info) if record.exc_info else ""
        more: dict[str, object] = getattr(record, "fields", {})
        if not self._as_json:
            request = f" [request {_plain(request_id)}]" if request_id else ""
            traced = f" [trace {trace}]" if trace else ""
            line = f"{moment} {record.levelname} {self._model or 'trimodal'}{request}{traced} {message}"
            line += "".join(f" {name}={_plain(value)}" for name, value in more.items())
            return f"{line}\n{exception}" if exception else line
        fields: dict[str, Any] = {
            "time": moment,
            "level": record.levelname.lower(),
            "model": self._model,
            "request_id": request_id,
            "trace_id": trace,
            "logger": record.name,
            "message": message,
            "exception": exception,
        }
        return json.dumps({name: value for name, value in fields.items() if value} | more, ensure_ascii=False)


def _plain(value: object) -> str:
    """A value that cannot pass for other fields, or for a line of its own: a client may have chosen it."""
    text = str(value)
    return text if _WORD.fullmatch(text) else json.dumps(text)
