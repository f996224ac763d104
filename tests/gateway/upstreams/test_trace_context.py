"""traceparent and tracestate: what is handed on to Triton, what is ignored, and what the log says."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from starlette.datastructures import Headers

from tests.gateway.conftest import Serve, fails, fake_triton
from tests.gateway.openai.test_audio import wav
from tests.gateway.openai.test_conversation import IMAGE, PICTURE, user
from trimodal import logs
from trimodal.gateway.upstreams.trace_context import TraceContext, read_trace_context

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
GIVEN = f"00-{TRACE}-{PARENT}-01"


def read(*given: str, state: tuple[str, ...] = ()) -> TraceContext:
    pairs = [(b"traceparent", one.encode()) for one in given] + [
        (b"tracestate", one.encode()) for one in state
    ]
    return read_trace_context(Headers(raw=pairs))


def test_a_trace_is_handed_on_with_its_state() -> None:
    found = read(GIVEN, state=("a=1, b@c=x y", "d=2"))
    assert found == TraceContext(TRACE, {"traceparent": GIVEN, "tracestate": "a=1,b@c=x y,d=2"})
    assert read(GIVEN) == TraceContext(TRACE, {"traceparent": GIVEN})


@pytest.mark.parametrize("given", [f"01-{TRACE}-{PARENT}-01", f"cc-{TRACE}-{PARENT}-01-what-comes-later"])
def test_a_later_version_is_read_as_far_as_it_is_known(given: str) -> None:
    assert read(given) == TraceContext(TRACE, {"traceparent": GIVEN})


@pytest.mark.parametrize(
    "given",
    [
        "", "x", GIVEN.upper(), GIVEN[:-1], f"{GIVEN}0", f"{GIVEN}-00", f"ff-{TRACE}-{PARENT}-01",
        f"00-{'0' * 32}-{PARENT}-01", f"00-{TRACE}-{'0' * 16}-01", f"00-{TRACE[1:]}-{PARENT}-01",
        f"00-{TRACE}-{PARENT[1:]}g-01", f"00_{TRACE}-{PARENT}-01", f"cc-{TRACE}-{PARENT}-01.x",
    ],
)  # fmt: skip
def test_a_malformed_trace_is_ignored_and_its_state_with_it(given: str) -> None:
    assert read(given, state=("a=1",)) == TraceContext()


def test_none_and_two_are_ignored() -> None:
    assert read(state=("a=1",)) == TraceContext()
    assert read(GIVEN, GIVEN) == TraceContext()


@pytest.mark.parametrize(
    "state", ["a", "=1", "A=1", "a=", "a=1,a=2", "a=b=c", "a=\x01", ",".join(f"k{i}=1" for i in range(33))]
)
def test_a_malformed_state_is_ignored_alone(state: str) -> None:
    assert read(GIVEN, state=(state,)) == TraceContext(TRACE, {"traceparent": GIVEN})


def test_a_long_state_loses_its_oldest_members() -> None:
    state = read(GIVEN, state=(",".join(f"k{i}={'x' * 200}" for i in range(4)),)).metadata["tracestate"]
    assert [one.partition("=")[0] for one in state.split(",")] == ["k0", "k1"]


def test_every_request_to_triton_belongs_to_the_trace(serve: Serve) -> None:
    served = serve()
    headers = {"traceparent": GIVEN, "tracestate": "a=1"}
    chat = [{"role": "user", "content": "hi"}]
    bodies: list[tuple[str, dict[str, Any]]] = [
        ("chat/completions", {"json": {"model": "llm", "messages": chat}}),
        ("chat/completions", {"json": {"model": "llm", "messages": chat, "stream": True}}),
        # What is seen in the earlier picture is asked for as well.
        ("chat/completions", {"json": {"model": "llm", "messages": [user("a", IMAGE), user("b", IMAGE)]}}),
        ("completions", {"json": {"model": "llm", "prompt": "hi"}}),
        ("responses", {"json": {"model": "llm", "input": "hi"}}),
        ("embeddings", {"json": {"model": "embedding", "input": "hi"}}),
        ("images/classifications", {"json": {"model": "vision", "input": PICTURE}}),
        ("audio/transcriptions", {"data": {"model": "speech"}, "files": {"file": wav(1)}}),
    ]
    for path, body in bodies:
        answer = httpx.post(f"{served.url}/v1/{path}", headers=headers, **body)
        assert answer.status_code == 200, answer.text
    models = {request.model for request in served.triton.requests}
    assert models == {"llm", "assistant", "embedding", "vision", "speech"}
    assert {tuple(request.metadata.items()) for request in served.triton.requests} == {tuple(headers.items())}


def test_without_a_trace_and_with_a_malformed_one_triton_is_told_of_none(serve: Serve) -> None:
    served = serve()
    for headers in ({}, {"traceparent": f"00-{'0' * 32}-{PARENT}-01", "tracestate": "a=1"}):
        body = {"model": "llm", "prompt": "hi"}
        assert httpx.post(f"{served.url}/v1/completions", headers=headers, json=body).status_code == 200
    assert [request.metadata for request in served.triton.requests] == [{}, {}]


def test_the_log_names_the_trace_beside_the_request(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(logs.FORMAT_VARIABLE, "json")
    logs.configure()
    served = serve(fake_triton(llm=fails(ValueError("a defect"))))
    for headers in ({"traceparent": GIVEN, "x-request-id": "one"}, {"x-request-id": "two"}):
        body = {"model": "llm", "prompt": "hi"}
        assert httpx.post(f"{served.url}/v1/completions", headers=headers, json=body).status_code == 500
    records = [json.loads(line) for line in capsys.readouterr().err.splitlines() if line.startswith("{")]
    told = [(one["request_id"], one.get("trace_id")) for one in records if "request_id" in one]
    assert told == [("one", TRACE), ("two", None)]
