"""Decides who a request is from and what it may do: key, model, limits."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from starlette.requests import HTTPConnection

from trimodal.client.options import Options
from trimodal.client.transports.base import named
from trimodal.gateway.errors import ApiError, invalid
from trimodal.gateway.keys import ANYBODY, Key, KeyRing
from trimodal.gateway.quota import Quota
from trimodal.logs import trace_id

# Version, trace, parent, flags; what may follow is of versions that are not known yet.
_TRACEPARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-((?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2})(-.*)?"
)
# W3C's standard wants no more; gRPC takes 8 KiB of metadata in all.
_TRACESTATE = re.compile(r"[\x20-\x7e]{1,512}")
_REQUEST_ID = re.compile(r"[\w.:-]{1,128}", re.ASCII)  # one that every route can tell
SUBPROTOCOL_KEY = "openai-insecure-api-key."
_MAX_DEADLINE_MS = 3_600_000
# Paths that no limit counts where an operator asks.
_OPERATIONS = ("/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/sleep", "/wake_up")
_CACHE_CONTROLS = {"no-cache", "no-store"}


@dataclass(frozen=True)
class Caller:
    """Who asks, and the terms that come with the request's headers."""

    key: Key
    request_id: str
    ttft_deadline_ms: int | None = None
    cache_control: str = ""
    trace: Mapping[str, str] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    adapter: str = ""  # the adapter of the llm that stands in the place of a model

    def served(self, model: str) -> str:
        """The model that answers for the one that was asked for."""
        return "llm" if self.adapter and model == self.adapter else model

    def named(self, model: str) -> str:
        """The model that the caller means."""
        return self.aliases.get(model, model)

    def terms(self, options: Options) -> Options:
        """These options with what only the gateway may set (tenant and tier) and what headers say."""
        options["tenant"] = self.key.tenant or None
        options["tier"] = self.key.tier or None
        options["lora_name"] = self.adapter or None
        options["ttft_deadline_ms"] = self.ttft_deadline_ms
        options["cache_control"] = self.cache_control or None
        return options


class Access:
    """Lets callers in. Without a file of keys everybody is ANYBODY. `aliases`: other names of models."""

    def __init__(self, keys: Path | None, aliases: Sequence[str] = ()) -> None:
        self._ring = KeyRing(keys) if keys else None
        self._aliases = aliases
        self.quota = Quota()

    def identify(self, connection: HTTPConnection) -> Caller:
        """Who sent this request. Raises: ApiError 401 (no key or an unknown one), 400 (a header).

        The log names the request's trace from here on; its connection is kept where others make room.
        """
        trace, key = _trace(connection), self._key(connection)
        trace_id.set(trace["traceparent"].split("-")[1] if trace else "")
        connection.state.identified = True
        connection.state.tenant = key.tenant
        return Caller(
            key,
            request_id(connection),
            _deadline(connection),
            _cache_control(connection),
            trace,
            dict(alias.split("=") for alias in (*self._aliases, *key.model_aliases)),
        )

    def limited(self, connection: HTTPConnection, key: Key, size: float) -> ApiError | None:
        """Counts a request with a body of this size against the limits of its key: why they leave no room.

        Done before a body is read: what a key sends beyond its limits, or sends wrong, costs others little.
        One for a path that there is not costs as much.
        """
        free = key.operator and connection.scope["path"] in _OPERATIONS
        if not free and (connection.scope["method"] == "POST" or size):
            connection.state.tenant = key.tenant
            try:
                self.quota.count(key)
            except ApiError as refusal:
                return refusal
        return None

    def holds(self, key: Key) -> bool:
        """Whether a caller that was let in still may: its key was not revoked."""
        return self._ring is None or self._ring.holds(key)

    def _key(self, connection: HTTPConnection) -> Key:
        if self._ring is None:
            return ANYBODY
        secret = _secret(connection)
        if not secret:
            message = "an API key is needed: send it as 'Authorization: Bearer …'"
            raise ApiError(401, message, code="no_api_key")
        key = self._ring.find(secret)
        if key is None:
            raise ApiError(401, "this API key is not known, or was revoked", code="invalid_api_key")
        return key


def _secret(connection: HTTPConnection) -> str:
    """The key that a request shows; a browser's WebSocket can set no header, but subprotocols."""
    scheme, _, secret = connection.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return secret.strip()
    offered = [one for one in connection.scope.get("subprotocols", ()) if one.startswith(SUBPROTOCOL_KEY)]
    return offered[0].removeprefix(SUBPROTOCOL_KEY) if offered else ""


def check_model(caller: Caller, model: str) -> None:
    """Raises: ApiError 403 where the caller's key does not hold for this model."""
    if not caller.key.may_use(named(model)[0]):
        raise ApiError(403, f"this API key does not hold for the model '{model}'", code="model_not_allowed")


def check_operator(caller: Caller) -> None:
    """Raises: ApiError 403 where the caller's key is no operator's."""
    if not caller.key.operator:
        raise ApiError(403, "this API key is not an operator's", code="not_an_operator")


def request_id(connection: HTTPConnection) -> str:
    """The id that the client gave, if it can be one, or a new one: the same whenever it is asked for."""
    if not hasattr(connection.state, "request_id"):
        given = connection.headers.get("x-request-id", "")
        known = _REQUEST_ID.fullmatch(given)
        connection.state.request_id = given if known else f"req_{secrets.token_hex(12)}"
    return str(connection.state.request_id)


def _trace(connection: HTTPConnection) -> dict[str, str]:
    """The headers to hand on of the trace that a request belongs to; malformed ones are ignored."""
    match = _TRACEPARENT.fullmatch(connection.headers.get("traceparent", ""))
    if not match:
        return {}
    state = ",".join(connection.headers.getlist("tracestate"))
    more = {"tracestate": state} if _TRACESTATE.fullmatch(state) else {}
    return {"traceparent": f"00-{match[1]}", **more}


def _cache_control(connection: HTTPConnection) -> str:
    """The directives that the model's cache knows; proxies and browsers add others, which change nothing."""
    given = connection.headers.get("cache-control", "").lower().split(",")
    return ",".join(sorted({one.strip() for one in given} & _CACHE_CONTROLS))


def _deadline(connection: HTTPConnection) -> int | None:
    given = connection.headers.get("x-slo-ttft-ms")
    if given is None:
        return None
    if not given.isascii() or not given.isdigit() or not 1 <= int(given[:10]) <= _MAX_DEADLINE_MS:
        raise invalid(f"x-slo-ttft-ms is not a whole number of milliseconds from 1 to {_MAX_DEADLINE_MS}")
    return int(given[:10])
