"""Judges answers: each request gets an end, none tells of the machine, none fails on our side."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field

from tests.fuzz.served.wire import Answer

# What tells a stranger about the machine. A path begins at a blank or a quote; "/v2/…" is a part of the API.
_LEAK = re.compile(
    r"Traceback|site-packages|/dev/shm|\.py\b|\.cc\b|0x[0-9a-f]{8}|(?:^|[\s'\"(])/(?:tmp|home|work|root|usr)/"
)
_OURS_FAILED = re.compile(r"the model failed on this request|the gateway failed on this request")
# What each surface may answer with. Triton 2.51 says 500 to JSON that it cannot parse, and to no length.
_ALLOWED = {
    surface: frozenset(statuses.split())
    for surface, statuses in (
        ("gateway", "200 400 401 403 404 405 408 413 415 429 431 503"),
        ("gateway framing", "200 400 404 405 408 413 415 429 431 501 503 505 closed"),
        ("realtime", "1000 1002 1003 1006 1007 1008 1009 400 403 404 429 closed"),
        (
            "grpc",
            "OK stream INVALID_ARGUMENT NOT_FOUND UNAVAILABLE UNIMPLEMENTED INTERNAL CANCELLED "
            "RESOURCE_EXHAUSTED OUT_OF_RANGE FAILED_PRECONDITION",
        ),
        ("http", "200 400 404 405 413 500 501 503 closed"),
        ("http framing", "200 400 403 404 405 413 414 417 500 501 503 505 closed"),
    )
}
# Sentences of Triton's own, with INTERNAL or 500, about what it cannot read.
_UNREADABLE = re.compile(
    r"parse|JSON|deserializ|decod|unable to|unexpected|failed to|must be|expected|byte|size|invalid|attempt|"
    r"wrong type|inference request|content|element|overflow|negative|required|missing|unrecognized",
    re.I,
)


@dataclass
class Judge:
    """Counts what came back, and keeps what must not have; `running`: what has no end yet, by number."""

    answers: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)
    running: dict[int, str] = field(default_factory=dict)

    def judge(self, number: int, surface: str, answer: Answer, about: str) -> None:
        self.answers[f"{surface}: {answer.status}"] += 1
        if wrong := fault(surface, answer):
            self.findings.append(
                f"request {number}, {surface}: {wrong}: {answer.status} {answer.text[:400]!r} to {about}"
            )


def fault(surface: str, answer: Answer) -> str:
    """What is wrong with an answer; "" where nothing is."""
    if answer.status == "none":
        return "no end within the limit"
    if answer.status not in _ALLOWED[surface]:
        return "a status that is not to be"
    told = _error(answer)
    if _OURS_FAILED.search(told):
        return "an unexpected failure of ours"
    if _LEAK.search(told):
        return "it tells of the machine"
    unread = answer.status in ("INTERNAL", "500")
    if unread and not _UNREADABLE.search(told):
        return "an internal error"
    if surface == "realtime" and ('"server_error"' in told or '"internal_error"' in told):
        return "an internal error in an event"
    return ""


def _error(answer: Answer) -> str:
    """The text of an error; of an answer that is none, nothing: what a model said is not judged here."""
    if answer.status == "OK":
        return ""
    if answer.status == "200":
        events = [
            line for line in answer.text.splitlines() if line.startswith(("data:", "{")) and '"error"' in line
        ]
        return "\n".join(line for line in events if _is_error(line.removeprefix("data:")))
    if answer.status in ("1000", "1008"):
        return "\n".join(line for line in answer.text.splitlines() if '"type":"error"' in line)
    return answer.text


def _is_error(line: str) -> bool:
    try:
        value = json.loads(line)
    except ValueError:
        return False
    return isinstance(value, dict) and bool(value.get("error"))
