"""What a side of an experiment does not answer is told, and is no quick answer."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from benchmarks.litserve import over_http


@pytest.mark.parametrize(
    ("answer", "outcome", "said"),
    [
        (httpx.Response(503, text="no worker"), "protocol", "HTTP 503: no worker"),
        (httpx.ReadError("reset"), "unreachable", "http://peer: reset"),
    ],
)
def test_what_a_peer_does_not_answer_is_an_outcome(answer: Any, outcome: str, said: str) -> None:
    """It was a traceback, which ended the whole comparison."""

    def answering(request: httpx.Request) -> httpx.Response:
        if isinstance(answer, Exception):
            raise answer
        return answer

    client = httpx.AsyncClient(base_url="http://peer", transport=httpx.MockTransport(answering))
    record = asyncio.run(over_http(client, [b"jpeg"])(0))
    assert (record.outcome, record.error, record.pieces) == (outcome, said, [])
