"""Counts requests for Prometheus and logs them: what came, how it ended, how long it took."""

from __future__ import annotations

import json
import logging
import random
import time
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trimodal import logs
from trimodal.client.transports.base import named
from trimodal.gateway.access import request_id
from trimodal.gateway.answering import DONE
from trimodal.gateway.openai.fields import IGNORED_HEADER, ignored_header
from trimodal.gateway.openai.responses.store import ResponseStore
from trimodal.gateway.quota import Quota
from trimodal.gateway.upstreams.pool import Upstreams
from trimodal.settings import shorten

logger = logging.getLogger(__name__)
_SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0)
_GAPS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_ERROR = b'data: {"error":'
_SPENT = {
    "tokens": "Tokens of prompts and answers",
    "images": "Pictures that requests and sessions brought",
    "audio_seconds": "Recordings that requests brought, and live audio",
}
_PROBES = {"/health", "/ready", "/metrics"}
_LEFT = 499  # what nginx logs of a client that closed its connection before the answer was complete


class GatewayMetrics:
    """All families of one gateway, in a registry of its own.

    Labels have few values: an endpoint that is no route, and a model that no server has, is "other".
    """

    def __init__(self, upstreams: Upstreams, quota: Quota, responses: ResponseStore) -> None:
        self._upstreams = upstreams
        self.registry = CollectorRegistry()
        self.registry.register(_StateFamilies(upstreams, quota, responses))
        ProcessCollector(registry=self.registry)

        def family(kind: Any, name: str, text: str, *labels: str, **options: Any) -> Any:
            return kind(f"trimodal_gateway_{name}", text, labels, registry=self.registry, **options)

        where = ("endpoint", "model")
        self.in_flight: Gauge = family(Gauge, "in_flight", "Requests that are being answered")
        self._requests: Counter = family(
            Counter, "requests", "Requests by outcome; 499: the client left", *where, "tenant", "status"
        )
        self._refusals: Counter = family(
            Counter, "refusals", "Errors that clients were told, by code", "endpoint", "cause"
        )
        self._ignored: Counter = family(
            Counter, "ignored_fields", "Fields of requests that were ignored", "endpoint"
        )
        self._early: Counter = family(
            Counter, "early_answers", "Answers that began before a turn was over, by outcome", "outcome"
        )
        self._early_tokens: Counter = family(
            Counter, "early_tokens", "Tokens computed for early answers, by outcome", "outcome"
        )
        self._ttft: Histogram = family(
            Histogram, "ttft_seconds", "Arrival to first event of a stream", *where, buckets=_SECONDS
        )
        self._itl: Histogram = family(
            Histogram, "itl_seconds", "Mean gap between the events of a stream", *where, buckets=_GAPS
        )
        self._duration: Histogram = family(
            Histogram, "request_seconds", "Arrival to end of the answer", *where, buckets=_SECONDS
        )

    def early(self, outcome: str, tokens: int) -> None:
        """Counts an early answer that is over."""
        self._early.labels(outcome).inc()
        self._early_tokens.labels(outcome).inc(tokens)

    def ended(self, endpoint: str, state: Mapping[str, Any], measure: Measure) -> None:
        """Counts a request that is over; `state` has its model and tenant, if it came so far."""
        model, _ = named(state.get("model", ""))
        if model and model not in self._upstreams.state:
            model = "other"
        where = (endpoint, model)
        self._requests.labels(*where, state.get("tenant", ""), str(measure.status)).inc()
        if ignored := state.get("ignored"):
            self._ignored.labels(endpoint).inc(len(ignored))
        if measure.cause:
            self._refusals.labels(endpoint, measure.cause).inc()
        self._duration.labels(*where).observe(time.perf_counter() - measure.began)
        if measure.streamed and measure.events:
            self._ttft.labels(*where).observe(measure.first - measure.began)
            if measure.events > 1:
                self._itl.labels(*where).observe((measure.last - measure.first) / (measure.events - 1))


class _StateFamilies(Collector):
    """Reads what servers, tenants and store have when it is asked for, so that requests do not pay for it."""

    def __init__(self, upstreams: Upstreams, quota: Quota, responses: ResponseStore) -> None:
        self._upstreams = upstreams
        self._responses = responses
        self._spent = quota.spent

    def collect(self) -> Iterator[Metric]:
        name = "trimodal_gateway_upstream"
        running = GaugeMetricFamily(f"{name}_in_flight", "Requests that a server has", labels=["upstream"])
        draining = GaugeMetricFamily(f"{name}_draining", "1: it gets no new requests", labels=["upstream"])
        ready = GaugeMetricFamily(
            f"{name}_ready", "1: the model answers", labels=["upstream", "model", "version"]
        )
        moved = CounterMetricFamily(
            f"{name}_moved", "Requests that it failed or refused and another was asked", labels=["upstream"]
        )
        for server in self._upstreams.servers:
            running.add_metric([server.address], server.running)
            draining.add_metric([server.address], server.draining)
            moved.add_metric([server.address], server.moved)
            if not server.versions:  # it was never reached: whose they are is not known
                ready.add_metric([server.address, "", ""], 0)
            for model, versions in server.versions.items():
                for version in versions:
                    ready.add_metric([server.address, model, version], server.answers(model, version))
        routed = CounterMetricFamily(
            "trimodal_gateway_routed",
            "Requests by the version that a route gave them",
            labels=["model", "version"],
        )
        # A version that has had no request yet has its series: a rate misses what a series begins with.
        shares = {(model, version): 0 for model, one in self._upstreams.routes.items() for version in one}
        for where, count in sorted({**shares, **self._upstreams.routed}.items()):
            routed.add_metric(where, count)
        affinity = CounterMetricFamily(
            "trimodal_gateway_affinity",
            "Prompts by whether they went to the server of their beginning; miss: it had no room",
            labels=["result"],
        )
        affinity.add_metric(["hit"], self._upstreams.kept)
        affinity.add_metric(["miss"], self._upstreams.passed_on)
        kept = GaugeMetricFamily(
            "trimodal_gateway_responses_kept",
            "Responses that the store had when this gateway last kept or deleted one",
            value=self._responses.count,
        )
        yield from (running, draining, ready, moved, affinity, routed, kept)
        for unit, text in _SPENT.items():
            used = CounterMetricFamily(f"trimodal_gateway_{unit}", text, labels=["tenant"])
            for tenant, spent in self._spent.items():
                used.add_metric([tenant], spent[unit])
            yield used


class Measure:
    """What one answer was, noted while it is sent."""

    def __init__(self) -> None:
        self.began = self.first = self.last = time.perf_counter()
        self.status = _LEFT
        self.cause = ""
        self.events = 0
        self.streamed = False
        self._head = 0

    def note(self, message: Message) -> None:
        """Takes in a message to the client: one of these for each delta."""
        if message["type"] == "websocket.accept":
            self.status = 101
            return
        if message["type"] in ("http.response.start", "websocket.http.response.start"):
            self._head = message["status"]
            self.streamed = _header(message, b"content-type").startswith("text/event-stream")
            return
        if message["type"].startswith("websocket.") and not message["type"].endswith(".body"):
            return
        body = message.get("body", b"")
        if body and self.streamed and body != DONE and not body.startswith(b":"):  # a comment
            self.events += 1
            self.last = time.perf_counter()
            if self.events == 1:
                self.first = self.last
            if body.startswith(_ERROR):
                self.cause = _cause(body[len(b"data: ") :])
        elif self._head >= 400:
            self.cause = _cause(body)
        if not message.get("more_body", False):
            self.status = self._head


def _header(message: Message, wanted: bytes) -> str:
    found = (value for name, value in message.get("headers", ()) if name.lower() == wanted)
    return str(next(found, b"").decode("latin-1"))


def _cause(body: bytes) -> str:
    """The code of one of our errors, or its type."""
    try:
        told = json.loads(body)
        if told.get("ready") is False:  # of /ready
            return "not_ready"
        return str(told["error"]["code"] or told["error"]["type"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return "other"


class Measured:
    """ASGI middleware: measures every HTTP request, whatever answers it, and writes its line into the log.

    A WebSocket has a line, too, when it ends; status 101, unless it was refused.

    A handler puts "model", "tenant" and "ignored" into the request's state as soon as it knows them; ignored
    fields are named in a header of the answer, and every answer has the request's id.
    """

    def __init__(self, app: ASGIApp, metrics: GatewayMetrics, log_requests: float) -> None:
        self._app = app
        self._metrics = metrics
        self._log_requests = log_requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        is_request = scope["type"] == "http"
        identity = request_id(HTTPConnection(scope))
        measure = Measure()
        fields: dict[str, object] = {}
        logs.request_fields.set(fields)

        async def noted(message: Message) -> None:
            accepts = message["type"] == "websocket.accept"
            if not accepts:
                measure.note(message)
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                if not _header(message, b"x-request-id"):
                    headers.append((b"x-request-id", identity.encode()))
                if names := scope["state"].get("ignored"):
                    headers.append((IGNORED_HEADER.encode(), ignored_header(names).encode()))
                message = {**message, "headers": headers}
            await send(message)
            if accepts:  # not where the client is gone by then
                measure.note(message)

        self._metrics.in_flight.inc(is_request)
        try:
            await self._app(scope, receive, noted)
        except Exception:
            if is_request:
                # The application's outermost layer answers it.
                measure.status, measure.cause = 500, "internal_error"
            raise
        finally:
            self._metrics.in_flight.dec(is_request)
            endpoint = getattr(scope.get("route"), "path", "other")
            state = scope["state"]
            if is_request:
                self._metrics.ended(endpoint, state, measure)
            if self._is_logged(endpoint, measure):
                self._log(scope, state, measure, fields)

    def _is_logged(self, endpoint: str, measure: Measure) -> bool:
        """A share of those that were answered, and all that failed; no probe that found all well."""
        if not self._log_requests or (measure.status < 400 and endpoint in _PROBES):
            return False
        return measure.status >= 400 or random.random() < self._log_requests

    @staticmethod
    def _log(scope: Scope, state: Mapping[str, Any], measure: Measure, fields: Mapping[str, object]) -> None:
        """Writes who asked for what, how it ended and how long it took; nothing of what was said."""
        told = {
            "status": measure.status,
            "model": state.get("model"),
            "tenant": state.get("tenant"),
            **fields,
            "ttft_ms": round((measure.first - measure.began) * 1000, 1) if measure.events else None,
            "total_ms": round((time.perf_counter() - measure.began) * 1000, 1),
            "error": measure.cause,
        }
        logger.info(
            "%s %s", scope.get("method", "WebSocket"), shorten(quote(scope["path"]), 200),
            extra={
                "request_id": state["request_id"],
                "fields": {name: value for name, value in told.items() if value not in (None, "")},
            },
        )  # fmt: skip
