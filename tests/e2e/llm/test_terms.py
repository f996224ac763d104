"""A request's terms on the wire: as inputs, parameters, over HTTP; wrong ones name field and limit."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request

import numpy as np
import pytest

from tests.e2e.llm.deadline_rig import WAIT, engine_held
from trimodal.client import Client
from trimodal.client.transports.base import Request
from trimodal.client.transports.grpc import GrpcTransport
from trimodal.client.transports.tensors import strings
from trimodal.errors import InvalidArgument, Unavailable
from trimodal.server.process import TritonServer

pytestmark = pytest.mark.e2e


async def over_the_wire(
    server: TritonServer, inputs: dict[str, object], parameters: dict[str, object]
) -> str:
    """Sends a request as it is, past the client's own typing; the finish_reason."""
    transport = GrpcTransport(server.grpc_url, WAIT)
    try:
        tensors = {"text_input": strings([b"over the wire"]), "max_tokens": np.array([3], np.int32), **inputs}
        request = Request("llm", tensors, parameters=parameters)  # type: ignore[arg-type]
        responses = await transport.stream(request, WAIT)
        reason = ""
        while response := await responses.read():
            if response.outputs:
                reason = bytes(response.outputs["finish_reason"][0]).decode()
        return reason
    finally:
        await transport.aclose()


DUE = np.array([1], np.int32)  # millisecond: nobody can make that while the engine is held


@pytest.mark.parametrize(
    ("inputs", "parameters"),
    [
        ({"ttft_deadline_ms": DUE}, {}),
        ({}, {"ttft_deadline_ms": 1}),
        ({"tier": strings([b"hasty"])}, {}),
        ({}, {"tier": "hasty"}),
    ],
    ids=["input", "parameter", "tier as input", "tier as parameter"],
)
async def test_a_deadline_comes_as_input_parameter_or_with_the_tier(
    server: TritonServer, client: Client, inputs: dict[str, object], parameters: dict[str, object]
) -> None:
    async with engine_held(client):
        with pytest.raises(Unavailable, match="ttft_deadline_ms") as caught:
            await over_the_wire(server, inputs, parameters)
        assert "retry after" in str(caught.value)


@pytest.mark.parametrize(
    ("inputs", "parameters", "sentence"),
    [
        (
            {"tier": strings([b"gold"])},
            {},
            "tier is 'gold': one of premium, standard, hasty, batch",
        ),
        ({"tier": strings([b"a", b"b"])}, {}, None),  # Triton's own refusal
        ({}, {"ttft_deadline_ms": 1.5}, "ttft_deadline_ms is 1.5: a whole number is needed"),
        ({}, {"ttft_deadline_ms": 1 << 62}, "it must be between 1 and 3600000"),
        ({}, {"ttft_deadline": 5}, "unknown parameter 'ttft_deadline'"),
        ({"ttft_deadline_ms": DUE}, {"ttft_deadline_ms": 1}, "ttft_deadline_ms is given twice"),
        ({"max_tokens": np.array([1001], np.int32)}, {}, "tier 'standard' allows at most 1000"),
    ],
)
async def test_wrong_terms_name_the_field_and_the_limit(
    server: TritonServer,
    client: Client,
    inputs: dict[str, object],
    parameters: dict[str, object],
    sentence: str | None,
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        await over_the_wire(server, inputs, parameters)
    assert sentence is None or sentence in str(caught.value)
    assert "Traceback" not in str(caught.value)
    assert (await client.complete("still here", max_tokens=2)).finish_reason == "length"


def generate(server: TritonServer, body: dict[str, object]) -> str:
    """What HTTP's generate_stream answers, an error's body as well."""
    request = urllib.request.Request(
        f"http://{server.http_url}/v2/models/llm/generate_stream",
        json.dumps({"text_input": "over HTTP", "max_tokens": 3} | body).encode(),
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as page:
            return str(page.read().decode())
    except urllib.error.HTTPError as error:
        with error:
            return str(error.read().decode())


@pytest.mark.parametrize(
    "body", [{"ttft_deadline_ms": 1}, {"parameters": {"ttft_deadline_ms": 1}}, {"tier": "hasty"}]
)
async def test_deadlines_over_http(server: TritonServer, client: Client, body: dict[str, object]) -> None:
    async with engine_held(client):
        answer = await asyncio.to_thread(generate, server, body)
        assert "UNAVAILABLE: " in answer
        assert "ttft_deadline_ms" in answer
        assert "retry after" in answer
    assert '"finish_reason":"length"' in await asyncio.to_thread(generate, server, {"tier": "batch"})
