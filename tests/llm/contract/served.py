"""An engine in its own process behind the whole service, asked as Triton's glue asks it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.llm.doubles.sinks import Collector, counts, eventually
from tests.llm.doubles.tensors import tensors
from trimodal.errors import RequestError, Unavailable
from trimodal.llm.engines.budgets import fitted
from trimodal.llm.engines.protocol import CallName, EngineInfo
from trimodal.llm.frontend.metrics import LlmMetrics
from trimodal.llm.request.operator import OperatorCall
from trimodal.llm.request.outputs import Delta
from trimodal.llm.request.request import read_request
from trimodal.llm.request.terms import ProbeRequest
from trimodal.llm.service import LlmService
from trimodal.llm.settings import LlmSettings
from trimodal.metrics import MemoryMetrics

SECONDS = 120.0  # for anything: machines with two cores and other work answer slowly, and no answer is a hang
BATCH = 4


class Client(Collector):
    """Knows when its first text came, and waits as long as it takes."""

    def __init__(self, order: list[Client]) -> None:
        super().__init__()
        self._order = order

    def send(self, delta: Delta) -> None:
        if delta.text and not self.text:  # those that wait get deltas without any, so as to know that they do
            self._order.append(self)
        super().send(delta)

    def answer(self) -> Client:
        """Waits for the end, which must be no error."""
        self.wait(SECONDS)
        assert self.error is None, self.error
        return self

    def refusal(self) -> RequestError:
        self.wait(SECONDS)
        assert self.error
        return self.error

    @property
    def last(self) -> Delta:
        return self.deltas[-1]


class Served:
    """One engine, open until close(). `order`: clients in the order of their first texts."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = fitted(LlmSettings.model_validate(settings))
        self.name = self.settings.engine
        self.order: list[Client] = []
        self._metrics = MemoryMetrics()
        self.service = LlmService(self.settings, LlmMetrics(self._metrics, "llm"))

    @property
    def info(self) -> EngineInfo:
        return self.service._engine.client.info

    def ask(self, prompt: str | list[dict[str, str]] | None = None, **fields: Any) -> Client:
        """A request of these input tensors; a list is a chat. What is no array becomes one."""
        fields = {"text_input" if isinstance(prompt, str) else "messages": prompt} | fields
        inputs = tensors(**{name: value for name, value in fields.items() if value is not None})
        client = Client(self.order)
        self.service.submit(read_request(inputs, {}, self.settings), client)
        return client

    def operate(self, name: CallName, lora_name: str = "", level: int = 1) -> None:
        """Has the engine do what an operator wants."""
        client = Client([])
        self.service.submit(OperatorCall(name, lora_name, level), client)
        client.answer()

    def room(self) -> int:
        """Tokens of the longest request."""
        client = Client([])
        self.service.submit(ProbeRequest(), client)
        return int(json.loads(client.answer().text)["max_model_len"])

    def value(self, name: str) -> float:
        return self._metrics.get(f"trimodal_llm_{name}", {"model": "llm"}).value

    def nothing_left(self) -> None:
        eventually(lambda: counts(self.service) == (0, 0, 0), SECONDS)
        for gauge in ("active_requests", "queued_requests", "kv_usage_ratio"):
            eventually(lambda gauge=gauge: self.value(gauge) == 0, SECONDS)  # type: ignore[misc]

    def processes(self) -> list[int]:
        """The engine's own and all that it started, parents first."""
        pid = self.service._engine.client.pid
        assert pid
        found = [pid]
        for one in found:
            found += _children(one)
        return found

    def core(self) -> int:
        """What computes or leads those that do: vLLM's core is a process of the engine's."""
        return self._titled("EngineCore") if self.name == "vllm" else self.processes()[0]

    def worker(self) -> int:
        return self._titled("Worker")

    def answers_again(self) -> None:
        """Waits for the next engine, which must answer."""
        deadline = time.monotonic() + 2 * SECONDS
        while True:
            try:
                assert self.ask("Hello", max_tokens=4).answer().text
            except Unavailable:
                assert time.monotonic() < deadline, "no other engine was opened"
                time.sleep(0.05)
            else:
                return

    def close(self) -> None:
        self.service.close(SECONDS)

    def _titled(self, title: str) -> int:
        (pid,) = [one for one in self.processes() if title in _title(one)]
        return pid


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGCONT)


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        threads = Path(f"/proc/{pid}/task").iterdir()
        return sorted(int(one) for thread in threads for one in (thread / "children").read_text().split())
    return []


def _title(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""
