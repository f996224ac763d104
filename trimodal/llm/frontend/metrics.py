"""The llm model's metric families, with the field's definitions.

TTFT: arrival to the first non-empty delta handed over. ITL: the gap between two
deltas of one answer (a delta can hold several tokens). Queue: arrival to the engine.
End-to-end: arrival to the last delta. All in seconds, as Prometheus wants them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

from trimodal.errors import RequestError
from trimodal.llm.engines.protocol import EngineStats
from trimodal.llm.request.outputs import Delta
from trimodal.llm.scheduler.stats import SchedulerStats
from trimodal.metrics import Metrics

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_P = "trimodal_llm"


class LlmMetrics:
    """Counts for one loaded llm model."""

    def __init__(self, metrics: Metrics, model: str) -> None:
        self._metrics = metrics
        self._labels = {"model": model}

        labels = self._labels
        self.ttft = metrics.histogram(
            f"{_P}_ttft_seconds", "Time to first token: arrival to first text", labels, _SECONDS
        )
        self.itl = metrics.histogram(
            f"{_P}_itl_seconds", "Inter-token latency: gap between deltas", labels, _SECONDS
        )
        self.queue = metrics.histogram(
            f"{_P}_queue_seconds", "Arrival to hand-over to the engine", labels, _SECONDS
        )
        self.e2e = metrics.histogram(f"{_P}_e2e_seconds", "Arrival to last delta", labels, _SECONDS)
        self.active = metrics.gauge(f"{_P}_active_requests", "Requests in the engine", labels)
        self.queued = metrics.gauge(f"{_P}_queued_requests", "Requests that wait for the engine", labels)
        self.kv_usage = metrics.gauge(
            f"{_P}_kv_usage_ratio", "KV blocks held by running requests, 0 to 1", labels
        )
        self.tokens_per_step = metrics.gauge(
            f"{_P}_tokens_per_step", "Completion tokens per sequence and decoding step", labels
        )
        self.acceptance = metrics.gauge(
            f"{_P}_speculation_acceptance_ratio", "Drafted tokens that were accepted, 0 to 1", labels
        )
        self.speculating = metrics.gauge(
            f"{_P}_speculation_active", "1 while speculation is on, 0 when off", labels
        )
        self.restarts = metrics.counter(f"{_P}_engine_restarts_total", "Engine processes lost", labels)
        self.prefix_hits = metrics.counter(
            f"{_P}_prefix_cache_hits_total", "Requests with cached prompt tokens", labels
        )

        self.lookups_skipped = metrics.counter(
            f"{_P}_cache_skipped_total", "Requests past the cache, as too many looked already", labels
        )

        text = "Requests not served: refused for deadline or queue on arrival; expired or displaced later"
        self._unserved = {
            reason: metrics.counter(f"{_P}_unserved_total", text, {**labels, "reason": reason})
            for reason in ("deadline", "queue", "expired", "displaced")
        }
        self._shown = SchedulerStats()
        text = "Size of the error of recent predictions of TTFT, seconds"
        self._errors = {
            quantile: metrics.gauge(
                f"{_P}_ttft_prediction_error_seconds", text, {**labels, "quantile": quantile}
            )
            for quantile in ("0.5", "0.9")
        }
        self._token_seconds = metrics.gauge(
            f"{_P}_token_seconds", "Measured time between two tokens of a stream at the present batch", labels
        )
        self._prefill_token_seconds = metrics.gauge(
            f"{_P}_prefill_token_seconds", "Measured time that a prompt token takes", labels
        )

    def scheduling(self, stats: SchedulerStats) -> None:
        """Counts what the scheduler did since the last call and shows the error of its predictions."""
        shown, self._shown = self._shown, stats
        for reason, now, before in (
            ("deadline", stats.refused_deadline, shown.refused_deadline),
            ("queue", stats.refused_queue, shown.refused_queue),
            ("expired", stats.expired, shown.expired),
            ("displaced", stats.displaced, shown.displaced),
        ):
            self._unserved[reason].increment(now - before)
        for gauge, value in (
            (self._errors["0.5"], stats.error_p50_s),
            (self._errors["0.9"], stats.error_p90_s),
            (self._token_seconds, stats.token_s),
            (self._prefill_token_seconds, stats.prefill_token_s),
        ):
            if math.isfinite(value):  # else nothing is known yet
                gauge.set(value)

    def tokens(self, kind: str, count: int) -> None:
        """Adds to the tokens of a kind: prompt, cached, completion or saved."""
        text = (
            "Tokens by kind: prompt (all), cached (served by the prefix cache), completion, "
            "saved (answered without being generated)"
        )
        self._metrics.counter(f"{_P}_tokens_total", text, {**self._labels, "kind": kind}).increment(count)

    def outcome(self, outcome: str) -> None:
        """One request ended: stop, length, or the name of its error's code in lower case."""
        labels = {**self._labels, "outcome": outcome}
        self._metrics.counter(f"{_P}_requests_total", "Requests by outcome", labels).increment(1)

    @contextmanager
    def refusals(self) -> Iterator[None]:
        """Counts the request that an exception in the block refuses."""
        try:
            yield
        except Exception as error:
            self.outcome(error.code.lower() if isinstance(error, RequestError) else "internal")
            raise

    def state(self, running: int, waiting: int, stats: EngineStats) -> None:
        """Shows how many requests run and wait, and the engine's snapshot."""
        self.active.set(running)
        self.queued.set(waiting)
        self.kv_usage.set(stats.kv_usage)
        self.speculating.set(float(stats.speculating))
        if stats.decode_slots:
            self.tokens_per_step.set(stats.decoded_tokens / stats.decode_slots)
        if stats.drafted_tokens:
            self.acceptance.set(stats.accepted_tokens / stats.drafted_tokens)

    def finished(self, delta: Delta) -> None:
        """Counts the outcome and the tokens of an answer whose last delta was sent."""
        self.outcome(delta.finish_reason)
        if delta.note and delta.note.cache:
            self.tokens("saved", delta.completion_tokens)
            return
        self.tokens("prompt", delta.prompt_tokens)
        self.tokens("completion", delta.completion_tokens)
        if delta.cached_tokens:
            self.tokens("cached", delta.cached_tokens)
            self.prefix_hits.increment(1)
