"""Schedules of the assistant: stages side by side on executors' threads; any may fail or be stopped."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from tests.assistant.doubles import WORDS, note, piece
from tests.doubles import pb_utils
from tests.schedules.play import Drawn, Scenario
from tests.schedules.scenarios.misbehaving import SlowSender
from tests.schedules.world import World
from trimodal.assistant.metrics import AssistantMetrics
from trimodal.assistant.request import AskRequest
from trimodal.assistant.service import AssistantService
from trimodal.assistant.settings import AssistantSettings
from trimodal.assistant.values import Columns, Label, Labels, Piece
from trimodal.errors import Cancelled, RequestError, Unavailable
from trimodal.metrics import MemoryMetrics
from trimodal.triton.responses import ResponseStream

TEMPLATE = Path(__file__).parents[3] / "model_repository" / "assistant" / "prompt.jinja"
SAMPLES = np.zeros(1600, np.float32)
CLIENTS, REQUESTS = 3, 2


class DrawnModels:
    """Other models that take a while, fail, and end what they do when they are told to stop."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self.stopped: set[int] = set()

    def hear(self, samples: Any, stream: int, check: Callable[[], None], *_: Any, **__: Any) -> str:
        self._work()
        check()
        if stream in self.stopped:
            raise Cancelled("the stream was started anew")
        return self._draw.choice(["what is said", ""])

    def stop_hearing(self, stream: int, *_: Any) -> None:
        time.sleep(self._draw.choice([0.0, 0.001]))
        self.stopped.add(stream)

    def see(self, image: bytes, check: Callable[[], None], *_: Any) -> Labels:
        self._work()
        return (Label(label="seven", score=0.9), Label(label="one", score=0.1))

    def answer(self, inputs: Any, on_cancel: Any, *_: Any, **__: Any) -> Iterator[Piece]:
        cancelled = threading.Event()
        with on_cancel(cancelled.set):
            for word in WORDS[: self._draw.randint(1, len(WORDS))]:
                self._work()
                if cancelled.is_set():
                    raise Cancelled("the client cancelled the request")
                yield piece(word)
            if self._draw.random() < 0.9:
                yield piece("", "stop", (9, 3, 4), **note())

    def _work(self) -> None:
        time.sleep(self._draw.choice([0.0, 0.001, 0.02]))
        chance = self._draw.random()
        if chance < 0.06:
            raise Unavailable("no room") if chance < 0.03 else Drawn("a defect")


class Client(ResponseStream):
    """The glue's sink over a slow sender; its client may leave."""

    def __init__(self, draw: random.Random) -> None:
        self.sender = SlowSender(draw.choice([0.0, 0.0, 0.005]))
        super().__init__(pb_utils, self.sender)
        self.refused: RequestError | None = None
        self._breaks = draw.random() < 0.05

    def send(self, columns: Columns, *, final: bool) -> None:
        if self._breaks:
            self._breaks = False
            raise Drawn("no room for the tensor")
        self.respond(columns, final=final)


class Assistant(Scenario):
    """Clients ask with text, audio and images; some leave, some have little time; the service is closed."""

    switching: ClassVar[tuple[str, ...]] = tuple(
        f"trimodal.assistant.{name}" for name in ("service", "request_state", "pipeline")
    )
    comes_to = ("answered", "CANCELLED", "UNAVAILABLE", "INTERNAL", "refused")

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.metrics = MemoryMetrics()
        self.clients: list[Client] = []
        settings = AssistantSettings(template=str(TEMPLATE), cancel_poll_ms=2, max_requests=4)
        models: Any = DrawnModels(random.Random(self.draw.random()))
        self.service = AssistantService(settings, models, AssistantMetrics(self.metrics))

    def run(self) -> None:
        draws = [random.Random(self.draw.random()) for _ in range(CLIENTS)]
        threads = [threading.Thread(target=self._ask_all, args=(draw,), name="client") for draw in draws]
        for thread in threads:
            thread.start()
        if self.draw.random() < 0.3:
            time.sleep(self.draw.choice([0.0, 0.01, 0.03]))
            self.service.close()
        for thread in threads:
            thread.join()
        for client in self.clients:
            assert client.refused or client.sender.ended.wait(30), "a request has no end"
        self.world.settle(lambda: self._value("active_requests") == 0, 5.0)
        self.service.close()

    def _ask_all(self, draw: random.Random) -> None:
        for _ in range(REQUESTS):
            client = Client(draw)
            self.clients.append(client)
            image, samples = draw.choice([None, b"a file"]), draw.choice([None, SAMPLES])
            request = AskRequest("a question", image, samples, deadline_ms=draw.choice([None, None, 10, 50]))
            try:
                self.service.submit(request, client)
            except RequestError as error:
                client.refused = error
                continue
            time.sleep(draw.choice([0.0, 0.01, 0.1]))
            client.sender.cancelled = draw.random() < 0.3

    def check(self) -> None:
        for client in self.clients:
            sender = client.sender
            assert sender.finals == (0 if client.refused else 1), f"{sender.finals} ends"
            assert sender.looks_after_final == 0, "a look at a request that Triton has freed"
            if client.refused:
                self.seen["refused"] += 1
                continue
            error = sender.error()
            self.seen[_NAMES[error.code] if error else "answered"] += 1
        series = self.metrics.series.items()
        ended = [metric for (name, _), metric in series if name.endswith("requests_total")]
        taken = sum(not client.refused for client in self.clients)
        assert sum(metric.value for metric in ended) == taken, "each request is counted once"
        assert self._value("active_requests") == 0
        assert not self.service._requests

    def _value(self, name: str) -> float:
        return self.metrics.get(f"trimodal_assistant_{name}", {"model": "assistant"}).value


_NAMES = {value: name for name, value in vars(pb_utils.TritonError).items() if isinstance(value, int)}
