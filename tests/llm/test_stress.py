"""Everything that can happen to a request, at once: each gets one end, and all books are empty after it."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.llm.doubles.chaos import TIERS, ChaosAnswers, ChaosClient, ChaosEngine, request_of
from tests.llm.doubles.sinks import eventually
from trimodal.errors import RequestError
from trimodal.llm.engine_core.client import start_thread
from trimodal.llm.frontend.metrics import LlmMetrics
from trimodal.llm.request.terms import CancelRequest
from trimodal.llm.service import LlmService
from trimodal.llm.settings import LlmSettings
from trimodal.metrics import MemoryMetrics

SUBMITTERS = 4


class Chaos:
    """A service, and threads that send it requests and cancel them."""

    def __init__(self, seed: int, tiers: Path, seconds: float, **settings: Any) -> None:
        self.draw = random.Random(seed)
        self.settings = LlmSettings.model_validate(
            {
                "engine": "fake",
                "fake_step_ms": 1.0,
                "fake_prefill_us": 5.0,
                "cancel_poll_ms": 3,
                "tiers": str(tiers),
                "max_num_seqs": 6,
                "num_kv_blocks": 96,
                "max_queue": 24,
                "ageing_s": 0.1,
                **settings,
            }
        )
        self.engines: list[ChaosEngine] = []
        self.metrics = MemoryMetrics()
        self.answers = ChaosAnswers(random.Random(seed + 1))
        self.lives_s = seconds * 0.4
        self.service = LlmService(
            self.settings,
            LlmMetrics(self.metrics, "llm"),
            self._open,
            answers=self.answers,
            fingerprint="0123456789abcdef",
        )
        self.clients: list[ChaosClient] = []
        self.keys: list[str] = []
        self.until = time.monotonic() + seconds

    def _open(self, settings: LlmSettings) -> Any:
        # The first is lost in the middle; the second lives on.
        lives = self.lives_s if not self.engines else 1e9
        self.engines.append(ChaosEngine(settings, random.Random(7), lives))
        return start_thread(self.engines[-1])

    def run(self) -> None:
        """Sends and cancels until the time is over."""
        threads = [
            threading.Thread(target=self._send, args=(random.Random(self.draw.random()),))
            for _ in range(SUBMITTERS)
        ]
        threads.append(threading.Thread(target=self._cancel, args=(random.Random(self.draw.random()),)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()

    def _send(self, draw: random.Random) -> None:
        while time.monotonic() < self.until:
            for _ in range(draw.choice([1, 1, 1, 12])):
                client = ChaosClient(draw)
                request = request_of(draw, self.keys)
                self.clients.append(client)
                try:
                    self.service.submit(request, client)
                except RequestError as error:
                    client.refused = error
            time.sleep(draw.choice([0.0, 0.005, 0.02]))

    def _cancel(self, draw: random.Random) -> None:
        while time.monotonic() < self.until:
            keys = list(self.keys) or ["k" * 16]
            key = draw.choice([keys[-1], draw.choice(keys), f"{draw.getrandbits(64):016x}"])
            told = ChaosClient(random.Random(0))
            self.service.submit(CancelRequest(key), told)
            assert told.ends == 1
            time.sleep(0.003)

    def check(self) -> None:
        """One end for each client, and nothing left in any book."""
        eventually(lambda: all(client.refused or client.ended.is_set() for client in self.clients))
        for client in self.clients:
            assert client.ends == (0 if client.refused else 1)
            assert not client.after_end
            if not client.refused and not client.error:
                last = client.deltas[-1]
                assert last.completion_tokens == sum(delta.tokens for delta in client.deltas)
                assert 0 <= last.cached_tokens <= last.prompt_tokens
                assert last.finish_reason in ("stop", "length", "deadline")
                assert last.note
                assert last.note.queue_s >= 0
                assert not last.note.predicted_ttft_s < 0
        service = self.service
        eventually(lambda: service.counts == (0, 0, 0))
        book, scheduler = service._registry, service._dispatcher._scheduler
        assert (book.streams, book.generations, book._keys, book._under_way) == (set(), {}, {}, {})
        assert book.looking == 0
        assert len(book._cancelled) <= 1024
        assert dict(scheduler.admission.reserved_by_tier) == {}
        assert (scheduler.admission.reserved, scheduler._dropped) == (0, {})
        speed = scheduler._predictor._speed
        assert (speed.streams, speed.pending, speed._runs) == (0, 0, {})
        assert service._cache
        assert service._cache._looking._value == 64  # type: ignore[attr-defined]
        self._check_metrics()

    def _check_metrics(self) -> None:
        def total(name: str) -> float:
            series = list(self.metrics.series.items())
            return sum(metric.value for (key, _), metric in series if key == f"trimodal_llm_{name}")

        eventually(lambda: total("requests_total") == len(self.clients))
        assert (total("active_requests"), total("queued_requests")) == (0, 0)
        assert all(
            metric.value >= 0 for (name, _), metric in self.metrics.series.items() if name.endswith("_total")
        )


@pytest.fixture
def tiers(tmp_path: Path) -> Path:
    path = tmp_path / "tiers.toml"
    path.write_text(TIERS)
    return path


@pytest.mark.parametrize(("seed", "scheduler"), [(1, "deadline"), (2, "deadline"), (3, "fifo")])
def test_each_request_has_one_end_and_gives_everything_back(
    seed: int, scheduler: str, tiers: Path, caplog: pytest.LogCaptureFixture
) -> None:
    chaos = Chaos(seed, tiers, 1.3, scheduler=scheduler)
    try:
        chaos.run()
        chaos.check()
        eventually(lambda: len(chaos.engines) == 2)  # one was lost
        eventually(lambda: not chaos.engines[-1].has_work())
        assert any(client.error is client.refused is None for client in chaos.clients)
        assert any(client.error for client in chaos.clients)
        notes = [client.deltas[-1].note for client in chaos.clients if client.deltas]
        assert {note.cache for note in notes if note} <= {"", "exact", "semantic", "coalesced"}
    finally:
        chaos.service.close()


def test_close_in_the_middle_ends_everything(tiers: Path, caplog: pytest.LogCaptureFixture) -> None:
    chaos = Chaos(4, tiers, 0.8)
    closing = threading.Timer(0.5, chaos.service.close)
    closing.start()
    chaos.run()
    closing.join(30)
    assert not closing.is_alive()
    assert all(client.ends == (0 if client.refused else 1) for client in chaos.clients)
    assert chaos.service._registry.states == set()
    assert chaos.service.counts == (0, 0, 0)
