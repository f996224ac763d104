"""A client that collects its answer, and the service on a fake engine, for tests."""

import threading
from collections.abc import Callable
from typing import Any

from tests.doubles.waiting import wait_until
from tests.llm.doubles.engine_thread import start_thread
from trimodal.cache.answers import AnswerCache
from trimodal.errors import RequestError
from trimodal.llm.engine_core.client import EngineCoreClient
from trimodal.llm.engines.fake import FakeEngine
from trimodal.llm.engines.protocol import Sampling
from trimodal.llm.frontend.metrics import LlmMetrics
from trimodal.llm.request.operator import OperatorCall
from trimodal.llm.request.outputs import Delta
from trimodal.llm.request.request import GenerationRequest
from trimodal.llm.request.terms import CancelRequest, ProbeRequest
from trimodal.llm.service import LlmService
from trimodal.llm.settings import LlmSettings
from trimodal.metrics import MemoryMetrics


def counts(service: LlmService) -> tuple[int, int, int]:
    """Running generations, waiting ones, reserved KV blocks."""
    with service._lock:
        scheduler = service._dispatcher._scheduler
        return scheduler.running, scheduler.waiting, scheduler.admission.reserved_blocks


class Collector:
    """A sink that keeps all it gets; `cancelled` is what a client that leaves sets."""

    def __init__(self) -> None:
        self.deltas: list[Delta] = []
        self.error: RequestError | None = None
        self.ended = threading.Event()
        self.cancelled = False
        self.after_end = 0

    def send(self, delta: Delta) -> None:
        self.after_end += self.ended.is_set()
        self.deltas.append(delta)
        if delta.finish_reason:
            self.ended.set()

    def fail(self, error: RequestError) -> None:
        self.after_end += self.ended.is_set()
        self.error = error
        self.ended.set()

    def is_cancelled(self) -> bool:
        return self.cancelled

    @property
    def text(self) -> str:
        return "".join(delta.text for delta in self.deltas)

    def wait(self, timeout: float = 20.0) -> "Collector":
        assert self.ended.wait(timeout), "the answer did not end in time"
        return self


class FakeServer:
    """An LlmService on fake engines of a `kind` in this process, in `engines` as they are opened; `start`
    opens others."""

    def __init__(
        self,
        answers: AnswerCache | None = None,
        stop_file: str = "",
        start: Callable[[LlmSettings], EngineCoreClient] | None = None,
        kind: Callable[[LlmSettings], Any] = FakeEngine,
        unchecked: dict[str, object] | None = None,
        **settings: object,
    ) -> None:
        paced = {} if "engine" in settings else {"fake_step_ms": 1.0, "fake_prefill_us": 1.0}
        values = {"engine": "fake", "cancel_poll_ms": 2, **paced, **settings}
        # `unchecked` values may lie beyond what an operator may set.
        self.settings = LlmSettings.model_validate(values).model_copy(update=unchecked or {})
        self.metrics = MemoryMetrics()
        self.engines: list[Any] = []
        self._kind = kind
        self.service = LlmService(
            self.settings,
            LlmMetrics(self.metrics, "llm"),
            start or self._start,
            answers=answers,
            fingerprint="0123456789abcdef",
            stop_file=stop_file,
        )

    def __enter__(self) -> "FakeServer":
        return self

    def __exit__(self, *_: object) -> None:
        self.service.close()

    def _start(self, settings: LlmSettings) -> EngineCoreClient:
        self.engines.append(self._kind(settings))
        return start_thread(self.engines[-1])

    def submit(self, request: GenerationRequest | CancelRequest | ProbeRequest | OperatorCall) -> Collector:
        sink = Collector()
        self.service.submit(request, sink)
        return sink

    def ask(self, prompt: str = "hello", max_tokens: int = 20, stops: tuple[str, ...] = ()) -> Collector:
        return self.submit(GenerationRequest(prompt, None, Sampling(max_tokens), stops))

    def value(self, name: str, **labels: str) -> float:
        return self.metrics.get(f"trimodal_llm_{name}", {"model": "llm", **labels}).value

    def nothing_left(self) -> None:
        """Waits until neither the service nor its engine holds anything of a request."""
        eventually(lambda: counts(self.service) == (0, 0, 0))
        for gauge in ("active_requests", "queued_requests", "kv_usage_ratio"):
            eventually(lambda gauge=gauge: self.value(gauge) == 0)  # type: ignore[misc]


def eventually(condition: Callable[[], bool], timeout: float = 10.0) -> None:
    """Waits until `condition` holds."""
    wait_until(condition, bound=timeout)
