"""Configures logging once a process: one handler on stderr, in text or as a JSON object a line.

A module that has something to say calls `logging.getLogger(__name__)`. A record may name its request:

    logger.warning("refused a sequence", extra={"request_id": request_id})

Inside Triton, stderr of the Python models is part of Triton's log (its file: `trimodal serve --log`, or
TRIMODAL_LOG).
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from typing import Any

FORMAT_VARIABLE = "TRIMODAL_LOG_FORMAT"
LEVEL_VARIABLE = "TRIMODAL_LOG_LEVEL"
LEVELS = ("debug", "info", "warning", "error")


def configure(model: str = "") -> None:
    """Sends this process's log records to stderr, as TRIMODAL_LOG_FORMAT and TRIMODAL_LOG_LEVEL say.

    A second call replaces the first. Records of other libraries are shown from WARNING on. An unknown
    format or level is taken as text and info: a server must not fail for its log.

    Args:
        model: the model that this process serves, named in every record.
    """
    handler = StderrHandler()
    handler.set_name("trimodal")
    as_json = os.environ.get(FORMAT_VARIABLE, "").lower() == "json"
    handler.setFormatter(JsonFormatter(model) if as_json else TextFormatter(model))
    root = logging.getLogger()
    for old in [one for one in root.handlers if one.get_name() == "trimodal"]:
        root.removeHandler(old)
    root.addHandler(handler)
    level = os.environ.get(LEVEL_VARIABLE, "").lower()
    logging.getLogger("trimodal").setLevel((level if level in LEVELS else "info").upper())


class StderrHandler(logging.Handler):
    """Writes to whatever sys.stderr is at that moment, a record at once."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(f"{self.format(record)}\n")
            sys.stderr.flush()
        except Exception:
            self.handleError(record)


def _time(record: logging.LogRecord) -> str:
    """UTC with milliseconds, as 2026-11-22T07:40:01.123Z."""
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}Z"


class TextFormatter(logging.Formatter):
    """`2026-11-22T07:40:01.123Z WARNING llm [request 17] the engine is lost: …`, a traceback below."""

    def __init__(self, model: str = "") -> None:
        super().__init__()
        self._model = model or "trimodal"

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  logging's name
        request_id = getattr(record, "request_id", "")
        request = f" [request {request_id}]" if request_id else ""
        return f"{_time(record)} {record.levelname} {self._model}{request} {record.message}"

    def usesTime(self) -> bool:  # noqa: N802  logging's name
        return False


class JsonFormatter(logging.Formatter):
    """One object a line: time, level, model, request_id, logger, message and, with a traceback, exception."""

    def __init__(self, model: str = "") -> None:
        super().__init__()
        self._model = model

    def format(self, record: logging.LogRecord) -> str:
        told: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "model": self._model,
            "request_id": getattr(record, "request_id", ""),
            "logger": record.name,
            "message": record.getMessage(),
            "exception": self.formatException(record.exc_info) if record.exc_info else "",
        }
        return json.dumps({name: value for name, value in told.items() if value}, ensure_ascii=False)
