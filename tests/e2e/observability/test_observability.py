"""One real server with load of every kind: the metrics of rules and dashboards, traces, `trimodal top`."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import httpx
import pytest

from tests.deploy.expressions import expressions, scraped
from tests.e2e import fakes
from tests.e2e.conftest import BOUND, own_processes, unsupervised, wait_until
from tests.e2e.gateway.test_openai import gateway
from tests.e2e.observability import load
from tests.e2e.observability.receiver import Receiver
from trimodal.server.process import TritonServer
from trimodal.top.figures import figures
from trimodal.top.page import Change, Page, fetch

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

# What this load does not move: gauges that are zero again, and what the fake engines, and a server that is
# well, do not do. They must be there all the same.
STILL = {
    "trimodal_llm_engine_ready",
    "trimodal_llm_engine_restarts_total",
    "trimodal_llm_speculation_acceptance_ratio",
    "trimodal_llm_speculation_active",
    "trimodal_llm_active_requests",
    "trimodal_llm_queued_requests",
    "trimodal_llm_kv_usage_ratio",
    "trimodal_llm_ttft_prediction_error_seconds_bucket",
    "process_resident_memory_bytes",
    "nv_cpu_utilization",
    "nv_cpu_memory_used_bytes",
    "trimodal_cache_bypassed_total",
    "trimodal_cache_refused_total",
    "trimodal_speech_active_streams",
    "trimodal_speech_active_requests",
    "trimodal_speech_windows_in_flight",
    "trimodal_speech_fallbacks_total",
    "trimodal_speech_doubted_total",
    "trimodal_speech_window_retries_total",
    "trimodal_assistant_stage_failures_total",
    "trimodal_gateway_in_flight",
    "trimodal_gateway_upstream_in_flight",
    "trimodal_gateway_upstream_draining",
    "trimodal_gateway_upstream_ready",
    "trimodal_gateway_upstream_moved_total",
    "nv_inference_pending_request_count",
    "nv_inference_request_failure",  # a test of its own, below
}

# It comes with the first audit, for which two questions must be near: tests/e2e/cache/test_semantic.py.
AUDITED = {"trimodal_cache_audit_false_hit_ratio"}
# It comes with a route: tests/e2e/server/test_versions.py.
ROUTED = {"trimodal_gateway_routed_total"}
STILL |= (
    AUDITED
    | ROUTED
    | {
        "trimodal_cache_audit_answers_total",
        "trimodal_cache_audit_dropped_total",
        "trimodal_cache_audit_tokens_total",
        "trimodal_judge_batch_size_sum",
        "trimodal_judge_batch_size_count",
        "trimodal_judge_pairs_total",
        "trimodal_judge_seconds_bucket",
    }
)


class Bench(NamedTuple):
    server: TritonServer
    gateway: str
    traces: Receiver


@pytest.fixture(scope="module")
def bench(serve: Callable[..., TritonServer], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    changes = load.changes(tmp_path_factory.mktemp("artefacts"))
    with Receiver() as traces:
        server = serve(load.MODELS, changes, otlp=traces.url, otlp_every=0)
        with gateway(server.grpc_url) as url:
            yield Bench(server, url, traces)


def pages(bench: Bench) -> tuple[Page, Page]:
    return (
        fetch(f"http://{bench.server.metrics_url}/metrics", timeout=10),
        fetch(f"{bench.gateway}/metrics", timeout=10),
    )


def test_every_metric_of_a_rule_or_panel_is_there_and_moves(bench: Bench) -> None:
    before = pages(bench)
    asyncio.run(load.load(bench.server.grpc_url, bench.gateway))
    wait_until(
        lambda: pages(bench)[0].total("trimodal_llm_active_requests") == 0, "the end of the last request"
    )
    after = pages(bench)
    wanted = scraped()
    there = {name for page in after for name in page.samples}
    assert wanted - there == AUDITED | ROUTED, "not on any page"

    def moved(name: str) -> bool:
        return any(
            new.samples.get(name) != old.samples.get(name) for old, new in zip(before, after, strict=True)
        )

    assert not {name for name in wanted - STILL if not moved(name)}, "on a page, and stands still"
    assert STILL - {"trimodal_llm_speculation_active"} <= wanted | {"trimodal_gateway_upstream_ready"}


def test_labels_that_expressions_select_by_are_there(bench: Bench) -> None:
    """Outcomes and reasons come into being with their first request: kinds of them are enough here."""
    asyncio.run(load.load(bench.server.grpc_url, bench.gateway, seed=1))
    server, front = pages(bench)
    for name, label, value in (
        ("trimodal_llm_requests_total", "outcome", "unavailable"),
        ("trimodal_llm_tokens_total", "kind", "cached"),
        ("trimodal_cache_lookups_total", "outcome", "hit"),
        ("trimodal_cache_bypassed_total", "reason", "open"),
        ("trimodal_speech_streams_total", "outcome", "failed"),
        ("trimodal_llm_ttft_seconds_bucket", "le", "0.5"),
        ("trimodal_llm_itl_seconds_bucket", "le", "0.1"),
        ("trimodal_speech_lag_seconds_bucket", "le", "3"),
        ("trimodal_assistant_ttft_seconds_bucket", "le", "2.5"),
    ):
        assert value in server.values(name, label), name
        assert any(f"{label}=" in one and value in one for one in expressions() if name in one), name
    assert {"200", "400", "404"} <= set(front.values("trimodal_gateway_requests_total", "status"))


def test_every_series_of_a_model_tells_its_name_and_version(bench: Bench) -> None:
    server, _ = pages(bench)
    own = {name: server.samples[name] for name in server.samples if name.startswith("trimodal_")}
    assert {name for name in own if name.endswith("_seconds_bucket")}
    bare = {
        name
        for name, series in own.items()
        if not all({"model", "version"} <= dict(s).keys() for s in series)
    }
    assert bare == set()


def test_top_tells_what_happened(bench: Bench) -> None:
    first = pages(bench)
    asyncio.run(load.load(bench.server.grpc_url, bench.gateway, seed=2))
    shown = figures(*map(Change, first, pages(bench)), {})
    assert shown.llm
    assert shown.speech
    assert shown.vision
    assert shown.gateway
    assert shown.llm.ttft.p50
    assert shown.llm.itl.p99
    assert shown.speech.lag.p90
    assert shown.vision.refused_per_s
    assert shown.gateway.requests_per_s
    assert {model.name for model in shown.models} >= set(load.MODELS)


def test_the_command_prints_once_and_ends_on_ctrl_c(bench: Bench) -> None:
    address = ("--url", bench.server.metrics_url, "--gateway", bench.gateway, "--interval", "0.2")
    command = [sys.executable, "-m", "trimodal.cli.app", "top", *address]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=BOUND, check=True)
    told = json.loads(done.stdout)
    assert [source["away"] for source in told["sources"]] == ["", ""]
    assert all(model["ready"] for model in told["models"])
    page = ("--url", bench.server.metrics_url, "--health", bench.server.health_url, "--interval", "0.2")
    alone = subprocess.run([*command[:4], *page, "--json"], capture_output=True, timeout=BOUND, check=True)
    assert all(model["ready"] for model in json.loads(alone.stdout)["models"])
    own, other = os.openpty()
    live = subprocess.Popen(
        command, stdin=other, stdout=other, stderr=subprocess.PIPE, env={**os.environ, "TERM": "xterm"}
    )
    os.close(other)
    try:
        seen = b""
        while b"models ready" not in seen:
            seen += os.read(own, 65536)
        live.send_signal(signal.SIGINT)
        while True:
            try:
                seen += os.read(own, 65536)
            except OSError:
                break  # the terminal's other end is closed: the command is over
        assert live.wait(BOUND) == 0
        assert live.stderr
        assert live.stderr.read() == b""
        assert b"\x1b[?1049l" in seen, "the terminal has its own screen again"
    finally:
        live.kill()
        live.wait()
        os.close(own)
        live.stderr and live.stderr.close()


def test_a_request_s_trace_goes_through_the_pipeline(bench: Bench) -> None:
    picture = f"data:image/png;base64,{base64.b64encode(fakes.png(1)).decode()}"
    content = [{"type": "text", "text": "what is it?"}, {"type": "image_url", "image_url": {"url": picture}}]
    kinds: dict[str, tuple[str, dict[str, Any], set[str]]] = {
        "llm": ("completions", {"model": "llm", "prompt": "hi", "max_tokens": 5}, {"llm"}),
        "vision": ("images/classifications", {"input": [picture]}, {"vision"}),
        "embedding": ("embeddings", {"model": "embedding", "input": "hi"}, {"embedding"}),
        "assistant": (
            "chat/completions",
            {"model": "assistant", "messages": [{"role": "user", "content": content}], "max_tokens": 5},
            {"assistant", "llm"},
        ),
    }
    for kind, (path, body, models) in kinds.items():
        # Triton 2.51 misses some: of 300 requests 10 had no trace.
        for _ in range(5):
            trace, parent = secrets.token_hex(16), secrets.token_hex(8)
            headers = {"traceparent": f"00-{trace}-{parent}-01"}
            answer = httpx.post(f"{bench.gateway}/v1/{path}", json=body, headers=headers, timeout=BOUND)
            assert answer.status_code == 200, answer.text
            try:
                wait_until(lambda: {"InferRequest", *models} <= bench.traces.names(trace), "spans", 3)  # noqa: B023
            except pytest.fail.Exception:
                continue
            break
        else:
            pytest.fail(f"{kind}: five requests without a trace of {models}")
        spans = bench.traces.of(trace)
        assert parent in {span["parentSpanId"] for span in spans}, "below the client's own span"
        ids = {span["spanId"] for span in spans} | {parent}
        assert all(span["parentSpanId"] in ids for span in spans), "one tree"
    assert bench.traces.services == {"trimodal"}


def test_a_model_whose_process_was_killed_fails_as_the_alert_expects(
    own_server: Callable[..., TritonServer],
) -> None:
    """Triton goes on to call it ready: what tells is that its requests fail, not as CANCELED.

    As where it cannot be loaded again: nobody tries here.
    """
    server = unsupervised(own_server(("embedding",), {"embedding": {"engine": "fake"}}))
    stubs = own_processes(r"triton_python_backend_stub.*embedding")
    (stub,) = (pid for pid in stubs if os.getpgid(pid) == server.pid)
    os.kill(stub, signal.SIGKILL)
    url = f"http://{server.http_url}/v2/models/embedding/infer"
    body = {"inputs": [{"name": "text_input", "shape": [1, 1], "datatype": "BYTES", "data": ["x"]}]}
    page = fetch(f"http://{server.metrics_url}/metrics", timeout=10)
    for _ in range(6):
        assert httpx.post(url, json=body, timeout=BOUND).status_code != 200
    change = Change(page, fetch(f"http://{server.metrics_url}/metrics", timeout=10))
    reasons = ("BACKEND", "OTHER", "REJECTED")
    assert change.rate("nv_inference_request_failure", model="embedding", reason=reasons)
    assert not change.rate("nv_inference_request_success", model="embedding")
