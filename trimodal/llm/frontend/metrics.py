"""Declares the llm model's metric families, with the field's definitions.

TTFT: arrival to the first non-empty delta handed over. ITL: the gap between two
deltas of one answer (a delta can hold several tokens). Queue: arrival to the engine.
End-to-end: arrival to the last delta. All in seconds, as Prometheus wants them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from trimodal.errors import RequestError
from trimodal.llm.engines.protocol import EngineStats
from trimodal.metrics import Metric, Metrics

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class LlmMetrics:
    """Counts what one loaded llm model does."""

    def __init__(self, metrics: Metrics, model: str) -> None:
        self._metrics = metrics
        self._model = model
        self.ttft = self._histogram("ttft_seconds", "Time to first token: arrival to first text")
        self.itl = self._histogram("itl_seconds", "Inter-token latency: gap between deltas")
        self.queue = self._histogram("queue_seconds", "Arrival to hand-over to the engine")
        self.e2e = self._histogram("e2e_seconds", "Arrival to last delta")
        self.restarts = self._counter("engine_restarts_total", "Engine processes lost")
        self.lookups_skipped = self._counter(
            "cache_skipped_total", "Requests past the cache, as too many looked already"
        )
        self.engine_ready = self._gauge("engine_ready", "1 while the engine is open, 0 while it is not")
        self._active = self._gauge("active_requests", "Requests in the engine")
        self._queued = self._gauge("queued_requests", "Requests that wait for the engine")
        self._kv_usage = self._gauge("kv_usage_ratio", "KV blocks held by running requests, 0 to 1")
        self._tokens_per_step = self._gauge(
            "tokens_per_step", "Completion tokens per sequence and decoding step"
        )
        self._acceptance = self._gauge(
            "speculation_acceptance_ratio", "Drafted tokens that were accepted, 0 to 1"
        )
        self._speculating = self._gauge("speculation_active", "1 while speculation is on, 0 when off")
        text = "Requests not served: refused for deadline or queue on arrival; expired or displaced later"
        self._unserved = {
            reason: self._counter("unserved_total", text, reason=reason)
            for reason in ("deadline", "queue", "expired", "displaced")
        }
        self._shown: Counter[str] = Counter()
        self.prediction_error = self._histogram(
            "ttft_prediction_error_seconds", "Size of the difference of predicted and real TTFT"
        )

    def unserved(self, counts: Counter[str]) -> None:
        """Counts the requests that the scheduler did not serve since the last call, of its counts so far."""
        shown, self._shown = self._shown, counts
        for reason, counter in self._unserved.items():
            counter.increment(counts[reason] - shown[reason])

    def outcome(self, outcome: str) -> None:
        """One request ended: stop, length, or the name of its error's code in lower case."""
        self._counter("requests_total", "Requests by outcome", outcome=outcome).increment(1)

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
        self._active.set(running)
        self._queued.set(waiting)
        self._kv_usage.set(stats.kv_usage)
        self._speculating.set(float(stats.speculating))
        if stats.decode_slots:
            self._tokens_per_step.set(stats.decoded_tokens / stats.decode_slots)
        if stats.drafted_tokens:
            self._acceptance.set(stats.accepted_tokens / stats.drafted_tokens)

    def tokens(self, prompt: int, cached: int, completion: int, *, saved: bool) -> None:
        """Counts the tokens of an answer that is over, whole or cut off; `saved`: not generated for it."""
        if saved:
            self._tokens("saved", completion)
            return
        self._tokens("prompt", prompt)
        self._tokens("completion", completion)
        if cached:
            self._tokens("cached", cached)

    def _tokens(self, kind: str, count: int) -> None:
        text = (
            "Tokens by kind: prompt (all), cached (served by the prefix cache), completion, "
            "saved (answered without being generated)"
        )
        self._counter("tokens_total", text, kind=kind).increment(count)

    def _counter(self, name: str, text: str, **labels: str) -> Metric:
        return self._metrics.counter(f"trimodal_llm_{name}", text, {"model": self._model, **labels})

    def _gauge(self, name: str, text: str, **labels: str) -> Metric:
        return self._metrics.gauge(f"trimodal_llm_{name}", text, {"model": self._model, **labels})

    def _histogram(self, name: str, text: str) -> Metric:
        labels = {"model": self._model}
        return self._metrics.histogram(f"trimodal_llm_{name}", text, labels, _SECONDS)
