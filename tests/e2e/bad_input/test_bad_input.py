"""Bad input over gRPC and HTTP: each gets its answer, and every model still answers rightly afterwards.

The rows stand beside this file.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator

import pytest

from tests.e2e.bad_input import embedding, http, llm, llm_http, recognize, speech, vision
from tests.e2e.bad_input.server import COUNTS, GOOD, MODELS, changes, counts
from tests.e2e.bad_input.wire import Answer, Row, Wire
from tests.e2e.conftest import own_processes, wait_until
from trimodal.server.process import TritonServer

pytestmark = pytest.mark.e2e

PARTS = (llm, llm_http, vision, embedding, speech, recognize, http)
ROWS: list[Row] = [row for part in PARTS for row in part.ROWS]

# What tells a stranger about the machine. A path begins at a blank or a quote; "/v2/…" is a part of the API.
LEAK = re.compile(r"Traceback|site-packages|shm|\.py\b|\.cc\b|0x[0-9a-f]{6}|(?:^|[\s'\"(])/(?!v2/)\w", re.I)


@pytest.fixture(scope="module")
def server(serve: Callable[..., TritonServer], tmp_path_factory: pytest.TempPathFactory) -> TritonServer:
    return serve(MODELS, changes(tmp_path_factory.mktemp("bad-input")))


@pytest.fixture(scope="module")
def wire(server: TritonServer) -> Iterator[Wire]:
    wire = Wire(server.grpc_url, server.http_url)
    for good in GOOD.values():
        good(wire)
    yield wire
    wire.close()


@pytest.fixture(scope="module")
def before(server: TritonServer, wire: Wire) -> set[int]:
    """Process ids before the first bad input."""
    return family(server)


def family(server: TritonServer) -> set[int]:
    """Process ids of tritonserver, its models' stubs and the engine."""
    found = set()
    for pid in own_processes():
        with contextlib.suppress(ProcessLookupError):
            if os.getpgid(pid) == server.pid:
                found.add(pid)
    return found


@pytest.mark.parametrize("model", sorted({row.model for row in ROWS}))
def test_bad_inputs_get_their_answers_and_harm_nobody(wire: Wire, before: set[int], model: str) -> None:
    """Sends all rows of a model, then a good request to each model; every wrong answer is told."""
    wrong = {
        row.name + " over " + row.transport: judged(row, row.send(wire)) for row in ROWS if row.model == model
    }
    assert not {row: told for row, told in wrong.items() if told}
    for good in GOOD.values():
        good(wire)


def judged(row: Row, answer: Answer) -> str:
    """What is wrong with the answer; "" when it is as the row wants it."""
    faults = {
        f"status {row.status}": re.fullmatch(row.status, answer.status),
        f"{row.message!r} in the sentence": re.search(row.message, answer.message),
        "nothing of the machine": not LEAK.search(answer.message),
        "at most 200 characters": not row.own or len(answer.message) <= 200,
    }
    wanted = [fault for fault, kept in faults.items() if not kept]
    return f"wanted: {', '.join(wanted)}; got {answer}" if wanted else ""


def test_a_wrong_answer_is_told() -> None:
    row = Row("llm", "x", "gRPC", lambda wire: Answer("OK"), "INVALID_ARGUMENT", "max_tokens")
    assert judged(row, Answer("INVALID_ARGUMENT", "max_tokens is 0")) == ""
    assert "status INVALID_ARGUMENT, 'max_tokens' in the sentence" in judged(row, Answer("OK"))
    assert "of the machine" in judged(row, Answer("INVALID_ARGUMENT", "max_tokens: /usr/lib/x"))
    assert "200 characters" in judged(row, Answer("INVALID_ARGUMENT", "max_tokens " + 200 * "x"))


def test_the_server_is_idle_and_made_of_the_same_processes(server: TritonServer, before: set[int]) -> None:
    wait_until(lambda: not any(counts(server.metrics_url).values()), "an idle server", 10)
    assert {name.partition("{")[0] for name in counts(server.metrics_url)} == set(COUNTS)
    assert family(server) == before
    assert len(before) >= 1 + 5 + 1, "tritonserver, five models in Python, the engine"


def test_there_are_enough_rows_of_every_kind() -> None:
    assert len(ROWS) >= 60
    assert len({(row.model, row.name, row.transport) for row in ROWS}) == len(ROWS)
    for model in MODELS:
        for protocol in ("gRPC", "HTTP"):
            assert sum(row.model == model and protocol in row.transport for row in ROWS) >= 5
    for row in ROWS:
        assert row.message or not row.own or row.status in ("OK", "200"), row.name
