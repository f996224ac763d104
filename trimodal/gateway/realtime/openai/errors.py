"""Tells of errors as OpenAI's Realtime API does."""

from __future__ import annotations

from typing import Any

from trimodal.gateway.errors import ApiError
from trimodal.gateway.realtime.outbox import Outbox


def put_error(outbox: Outbox, error: ApiError, cause: str | None = None) -> None:
    """Puts an error event; `cause`: the id of the client's event."""
    told: dict[str, Any] = error.body["error"]
    outbox.put("error", error={**told, "event_id": cause})
