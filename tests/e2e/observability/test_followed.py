"""One request followed by its id: the gateway's log, the models' and the engine's, Triton's trace."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.e2e import fakes
from tests.e2e.conftest import BOUND, wait_until
from tests.e2e.gateway.test_openai import gateway
from tests.e2e.observability.receiver import Receiver
from trimodal.logs import LEVEL_VARIABLE
from trimodal.server.process import TritonServer

pytestmark = pytest.mark.e2e
TRIES = 5  # Triton 2.51 misses some traces: of 300 requests 10 had none


def traced(traces: Receiver, identity: str) -> set[str]:
    """The models that Triton names in spans of requests with this id."""
    found = ({one["key"]: one["value"] for one in span.get("attributes", [])} for span in traces.spans)
    return {
        one["triton.model_name"]["stringValue"]
        for one in found
        if one.get("triton.request_id", {}).get("stringValue") == identity
    }


@pytest.mark.slow
def test_one_request_is_followed_by_its_id(
    own_server: Callable[..., TritonServer],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv(LEVEL_VARIABLE, "debug")
    caplog.set_level("INFO", "trimodal")

    def follow(model: str, models: set[str], **asked: object) -> None:
        for _ in range(TRIES):
            identity, trace = f"mine-{secrets.token_hex(4)}", secrets.token_hex(16)
            headers = {"x-request-id": identity, "traceparent": f"00-{trace}-{secrets.token_hex(8)}-01"}
            path = "chat/completions" if "messages" in asked else "embeddings"
            answer = httpx.post(
                f"{url}/v1/{path}", json={"model": model, **asked}, headers=headers, timeout=BOUND
            )
            assert answer.status_code == 200, answer.text
            assert answer.headers["x-request-id"] == identity
            wait_until(
                lambda: any(getattr(one, "request_id", "") == identity for one in caplog.records),  # noqa: B023
                "the gateway's line",
            )
            if "llm" in models:
                log = server.log_path.read_text()
                handed = re.search(rf"\[request {identity}\] goes to the engine as (sequence \d+)", log)
                assert handed, "the model's line"
                assert f"{handed[1]} begins" in log, "the engine's line"
            try:
                wait_until(lambda: models <= traced(traces, identity), "spans", 3)  # noqa: B023
            except pytest.fail.Exception:
                continue
            return
        pytest.fail(f"{TRIES} requests to {model} without a trace of {models}: {traced(traces, identity)}")

    with Receiver() as traces:
        changes = fakes.changes(tmp_path)
        server = own_server((*fakes.MODELS, "assistant"), changes, otlp=traces.url, otlp_every=0)
        with gateway(server.grpc_url) as url:
            talk = [{"role": "user", "content": "hi"}]
            follow("llm", {"llm"}, messages=talk, max_tokens=3)
            follow("assistant", {"assistant", "llm"}, messages=talk, max_tokens=3)
            follow("embedding", {"embedding"}, input="hi")
