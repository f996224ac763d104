"""Pages of metrics as a server and a gateway show them, in short."""

from __future__ import annotations

from trimodal.top.page import Change, Page, read_page

LLM = """\
# TYPE nv_inference_request_success counter
nv_inference_request_success{{model="llm",version="1"}} {n}
# TYPE nv_inference_request_failure counter
nv_inference_request_failure{{model="llm",reason="BACKEND",version="1"}} {bad}
nv_inference_request_failure{{model="llm",reason="CANCELED",version="1"}} {n}
# TYPE nv_inference_queue_duration_us counter
nv_inference_queue_duration_us{{model="llm",version="1"}} {us}
# TYPE trimodal_llm_requests_total counter
trimodal_llm_requests_total{{model="llm",outcome="stop"}} {n}
trimodal_llm_requests_total{{model="llm",outcome="internal"}} {bad}
# TYPE trimodal_llm_kv_usage_ratio gauge
trimodal_llm_kv_usage_ratio{{model="llm"}} 0.95
# TYPE trimodal_llm_engine_restarts_total counter
trimodal_llm_engine_restarts_total{{model="llm"}} {bad}
# TYPE trimodal_llm_tokens_total counter
trimodal_llm_tokens_total{{kind="prompt",model="llm"}} {us}
trimodal_llm_tokens_total{{kind="cached",model="llm"}} {n}
# TYPE trimodal_llm_ttft_seconds histogram
trimodal_llm_ttft_seconds_bucket{{model="llm",le="0.1"}} {half}
trimodal_llm_ttft_seconds_bucket{{model="llm",le="1"}} {n}
trimodal_llm_ttft_seconds_bucket{{model="llm",le="+Inf"}} {n}
trimodal_llm_ttft_seconds_count{{model="llm"}} {n}
trimodal_llm_ttft_seconds_sum{{model="llm"}} {n}
"""
GATEWAY = """\
# TYPE trimodal_gateway_upstream_ready gauge
trimodal_gateway_upstream_ready{{upstream="a:1",model="llm",version="1"}} 1
trimodal_gateway_upstream_ready{{upstream="b:1",model="llm",version="1"}} {ready}
# TYPE trimodal_gateway_upstream_draining gauge
trimodal_gateway_upstream_draining{{upstream="b:1"}} {draining}
# TYPE trimodal_gateway_requests_total counter
trimodal_gateway_requests_total{{status="200"}} {n}
trimodal_gateway_requests_total{{status="404"}} {n}
trimodal_gateway_requests_total{{status="499"}} {n}
trimodal_gateway_requests_total{{status="503"}} {bad}
"""


def llm(at: float, n: int, bad: int = 0) -> Page:
    """After `n` requests of which half had their first text within 0.1 s, and `bad` failures."""
    return read_page(llm_text(n, bad), at)


def llm_text(n: int, bad: int = 0) -> str:
    return LLM.format(n=n, bad=bad, half=n / 2, us=n * 2000)


CANARY = """\
trimodal_gateway_upstream_ready{{upstream="a:1",model="llm",version="2"}} {canary}
# TYPE trimodal_gateway_upstream_draining gauge
"""


def gateway(
    at: float, n: int = 0, bad: int = 0, ready: int = 1, draining: int = 0, canary: int | None = None
) -> Page:
    """`canary`: whether a second version answers; None: there is none."""
    text = GATEWAY.format(n=n, bad=bad, ready=ready, draining=draining)
    first, begins, rest = text.partition("# TYPE trimodal_gateway_upstream_draining gauge\n")
    return read_page(first + (begins if canary is None else CANARY.format(canary=canary)) + rest, at)


def served(n: int = 100, bad: int = 0) -> Change:
    """Ten seconds with so many requests."""
    return Change(llm(0.0, 1000), llm(10.0, 1000 + n, bad))
