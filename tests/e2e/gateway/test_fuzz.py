"""Hostile requests to a real stack, made by number: each has an end, sound ones stay right, nothing is left.

`scripts/ci/fuzz requests` sends as many as it is told to.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.e2e.gateway.test_openai import gateway
from tests.fuzz.served.judge import Judge, fault
from tests.fuzz.served.run import fuzz, idle
from tests.fuzz.served.wire import Answer, Stack
from trimodal.server.process import TritonServer

pytestmark = pytest.mark.e2e


def check(server: TritonServer, first: int, count: int) -> None:
    judge = Judge()
    with gateway(server.grpc_url) as url:
        stack = Stack(url.removeprefix("http://"), server.grpc_url, server.http_url, server.metrics_url)
        asyncio.run(fuzz(stack, first, count, judge, server.pid))
    assert judge.findings == []
    assert sum(judge.answers.values()) == count
    assert idle(server.metrics_url) == {}


def test_a_few_hundred_requests(fakes: TritonServer) -> None:
    check(fakes, 0, 300)


@pytest.mark.slow
def test_some_thousand_requests(fakes: TritonServer) -> None:
    check(fakes, 1_000_000, 4_000)


@pytest.mark.parametrize(
    ("surface", "answer", "told"),
    [
        ("grpc", Answer("none"), "no end within the limit"),
        ("gateway", Answer("502"), "a status that is not to be"),
        (
            "grpc",
            Answer("INTERNAL", b"the model failed on this request; why"),
            "failure of ours",
        ),
        ("http", Answer("400", b'{"error": "no file /tmp/x/y"}'), "it tells of the machine"),
        ("grpc", Answer("INTERNAL", b"something"), "an internal error"),
        ("realtime", Answer("1011"), "a status that is not to be"),
        ("gateway", Answer("400", b'{"error": {"message": "max_tokens is 0"}}'), ""),
        ("grpc", Answer("OK", b"any bytes, as /tmp/x.py"), ""),
    ],
)
def test_what_is_wrong_is_told(surface: str, answer: Answer, told: str) -> None:
    assert told in fault(surface, answer)
    assert bool(told) == bool(fault(surface, answer))
