"""Reads the trace that a request belongs to, as W3C's Trace Context has it: traceparent and tracestate."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from starlette.datastructures import Headers

# What may follow is of versions that are not known yet.
_TRACEPARENT = re.compile(r"(?!ff)([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_MEMBER = re.compile(r"[a-z0-9][a-z0-9_\-*/@]{0,255}=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{1,256}")
_MAX_MEMBERS = 32
_MAX_STATE = 512
"""Characters; the standard wants no less. gRPC takes 8 KiB of metadata in all."""


@dataclass(frozen=True)
class TraceContext:
    """`id` of the trace, 32 hex digits, and the headers to hand on; both empty where there is none."""

    id: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)


def read_trace_context(headers: Headers) -> TraceContext:
    """The trace of a request. What is malformed is ignored, as the standard wants; nothing is made up."""
    given = headers.getlist("traceparent")
    found = _TRACEPARENT.fullmatch(given[0].strip(" \t")) if len(given) == 1 else None
    if not found:
        return TraceContext()
    version, trace, parent, flags, more = found.groups()
    if not trace.strip("0") or not parent.strip("0") or (version == "00" and more):
        return TraceContext()
    metadata = {"traceparent": f"00-{trace}-{parent}-{flags}"}
    if state := _state(headers.getlist("tracestate")):
        metadata["tracestate"] = state
    return TraceContext(trace, metadata)


def _state(given: list[str]) -> str:
    """The tracestate to hand on; "": none, or a malformed one."""
    members = [one.strip(" \t") for one in ",".join(given).split(",")]
    members = [one for one in members if one]
    keys = {one.partition("=")[0] for one in members}
    if len(members) > _MAX_MEMBERS or len(keys) < len(members) or not all(map(_MEMBER.fullmatch, members)):
        return ""
    while len(",".join(members)) > _MAX_STATE:
        members.pop()  # the oldest stand last
    return ",".join(members)
