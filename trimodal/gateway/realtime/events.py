"""Reads a client's events, JSON objects with a type, and puts the events of errors."""

from __future__ import annotations

import json
import re
from typing import Any

from trimodal.client.errors import TransportError
from trimodal.errors import RequestError
from trimodal.gateway.errors import ApiError, invalid
from trimodal.gateway.limits import JsonText
from trimodal.gateway.realtime.outbox import Outbox
from trimodal.llm.structured.reading import MAX_NESTING, nested_beyond

Event = dict[str, Any]
# Settings are read by recursion, and each is named by its whole path: 590 levels of long names took 0.7 s.
# The deepest that means anything is a tool's schema, below the event, the session, its tools and the tool.
_MOST_LEVELS = 4 + MAX_NESTING
_MOST_NAMED = 256  # characters of a field's path
_HALF = re.compile("[\ud800-\udfff]")


def read_event(text: str) -> Event:
    """The event of one frame. Raises: ApiError."""
    JsonText().add(text.encode("utf-8", "replace"), last=True)
    try:
        event = json.loads(text)
        if nested_beyond(event, _MOST_LEVELS):
            raise RecursionError
    except RecursionError:
        raise ApiError(400, "the event is nested too deeply", code="invalid_json") from None
    except ValueError as error:
        raise ApiError(400, f"the event is not valid JSON: {error}", code="invalid_json") from None
    if not isinstance(event, dict):
        raise ApiError(400, "the event is not a JSON object", code="invalid_json")
    if not isinstance(event.get("type"), str):
        raise invalid("type: a text is needed", code="missing_required_parameter")
    return event


def check_texts(value: Any, place: str = "") -> None:
    """Raises: ApiError naming the first text with half of a pair of UTF-16, which no model's input takes.

    JSON has escapes for it: a client that cuts a text may cut an emoji.
    """
    if isinstance(value, str):
        if not value.isascii() and _HALF.search(value):
            raise invalid(f"{place} holds a lone surrogate: it is not valid Unicode")
    elif isinstance(value, list):
        for index, one in enumerate(value):
            check_texts(one, f"{place}[{index}]")
    elif isinstance(value, dict):
        for name, one in value.items():
            check_texts(name, place or "a name")
            check_texts(one, (f"{place}.{name}" if place else name)[:_MOST_NAMED])


def unknown_event(event: Event, known: str) -> ApiError:
    """Refuses an event that this kind of session does not take."""
    kind = event["type"][:64]
    return invalid(f"type is '{kind}': {known} are known here", code="unknown_event")


def put_error(outbox: Outbox, error: ApiError, cause: str | None = None) -> None:
    """Puts an error event of OpenAI's Realtime API; `cause`: the id of the client's event."""
    outbox.put("error", error={**error.body["error"], "event_id": cause})


def end_where_fatal(outbox: Outbox, error: Exception) -> None:
    """Ends the session after a failure of the server behind, or of our own: nothing more would come."""
    if isinstance(error, TransportError):
        outbox.end(1011, "the model server did not answer")
    elif not isinstance(error, ApiError | RequestError):
        outbox.end(1011, "internal error")
