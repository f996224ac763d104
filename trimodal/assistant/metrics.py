"""Defines the assistant's metrics: requests by outcome, requests under way, and the time of each stage."""

from __future__ import annotations

from trimodal.assistant.values import STAGES
from trimodal.errors import RequestError
from trimodal.metrics import Metrics, counters

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_P = "trimodal_assistant"
_OUTCOMES = ("ok", "deadline", "cancelled", "invalid_arg", "not_found", "unavailable", "internal")


class AssistantMetrics:
    """Counts of one assistant. `model` labels the gauge that the drain looks at."""

    def __init__(self, metrics: Metrics, model: str = "assistant") -> None:
        label = {"model": model}
        self.active = metrics.gauge(f"{_P}_active_requests", "Requests with a stage under way", label)
        self._requests = counters(
            f"{_P}_requests_total", metrics, "Requests by outcome", "outcome", _OUTCOMES, **label
        )
        self.stages = {
            stage: metrics.histogram(
                f"{_P}_stage_seconds", "How long a stage took", label | {"stage": stage}, _SECONDS
            )
            for stage in STAGES
        }
        failed = "Requests that a stage failed"
        self.failures = counters(f"{_P}_stage_failures_total", metrics, failed, "stage", STAGES, **label)
        self.ttft = metrics.histogram(
            f"{_P}_ttft_seconds", "Arrival to the first text of the answer", label, _SECONDS
        )
        self.e2e = metrics.histogram(f"{_P}_e2e_seconds", "Arrival to the last response", label, _SECONDS)

    def ended(self, reason: str | RequestError) -> None:
        """A request is over: with an answer's finish_reason, or an error."""
        if isinstance(reason, RequestError):
            self._requests[reason.code.lower()].increment(1)
        else:
            self._requests["deadline" if reason == "deadline" else "ok"].increment(1)
