"""Everything that can happen to a request, at once, in an order that a seed decides: each gets one end.

`TRIMODAL_STRESS_SEEDS=0:2000 pytest tests/llm/test_stress.py` runs these seeds instead of the few below;
a seed that fails does so again.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.llm.doubles import chaos as doubles
from tests.llm.doubles.chaos import TIERS, ChaosAnswers, ChaosClient, ChaosEngine, chaos_cache, request_of
from tests.llm.doubles.engine_thread import start_thread
from tests.llm.doubles.interleaving import Interleaving
from tests.llm.doubles.sinks import counts, eventually
from trimodal.errors import RequestError
from trimodal.llm.frontend.metrics import LlmMetrics
from trimodal.llm.request.terms import CancelRequest
from trimodal.llm.service import LlmService
from trimodal.llm.settings import LlmSettings
from trimodal.metrics import MemoryMetrics

SUBMITTERS = 3
CHOSEN = os.environ.get("TRIMODAL_STRESS_SEEDS")
SEEDS = [
    pytest.param(seed, marks=() if CHOSEN or seed < 12 else pytest.mark.slow)
    for seed in range(*map(int, (CHOSEN or "0:40").split(":")))
]


class Chaos:
    """A service, and threads that send it requests, cancel them, and perhaps close it in the middle."""

    def __init__(self, seed: int, tiers: Path) -> None:
        self.draw = draw = random.Random(seed)
        self.settings = LlmSettings.model_validate(
            {
                "engine": "fake",
                "fake_step_ms": 2.0,
                "fake_prefill_us": 5.0,
                "cancel_poll_ms": 3,
                "tiers": str(tiers),
                "max_num_seqs": 6,
                "num_kv_blocks": 96,
                "max_queue": draw.choice([2, 24]),
                "ageing_s": 0.1,
                "scheduler": draw.choice(["deadline", "deadline", "fifo"]),
            }
        )
        self.seconds = draw.choice([0.05, 0.1, 0.3])
        self.engines: list[ChaosEngine] = []
        self.metrics = MemoryMetrics()
        kind, drawn = draw.choice(["none", "played", "real"]), random.Random(seed + 1)
        self.answers = {"none": lambda _: None, "played": ChaosAnswers, "real": chaos_cache}[kind](drawn)
        self.service = LlmService(
            self.settings,
            LlmMetrics(self.metrics, "llm"),
            self._open,
            answers=self.answers,
            fingerprint="0123456789abcdef",
        )
        self.clients: list[ChaosClient] = []
        self.keys: list[str] = []
        self.until = doubles.time.monotonic() + self.seconds

    def _open(self, settings: LlmSettings) -> Any:
        # Most first ones are lost in the middle; the second lives on.
        lives = self.draw.choice([0.4, 0.8, 1e9]) * self.seconds if not self.engines else 1e9
        self.engines.append(ChaosEngine(settings, random.Random(7), lives))
        return start_thread(self.engines[-1])

    def run(self) -> None:
        """Sends and cancels until the time is over."""
        tasks = [(self._send, random.Random(self.draw.random())) for _ in range(SUBMITTERS)]
        tasks.append((self._cancel, random.Random(self.draw.random())))
        threads = [threading.Thread(target=task, args=(draw,)) for task, draw in tasks]
        if self.draw.random() < 0.3:
            threads.append(threading.Thread(target=self._close))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()

    def _send(self, draw: random.Random) -> None:
        while time.monotonic() < self.until:
            for _ in range(draw.choice([1, 1, 1, 6])):
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

    def _close(self) -> None:
        time.sleep(self.seconds / 2)
        self.service.close()

    def check(self) -> None:
        """One end for each client, and nothing left anywhere."""
        eventually(lambda: all(client.refused or client.ended.is_set() for client in self.clients))
        service = self.service
        eventually(lambda: counts(service) == (0, 0, 0))
        eventually(lambda: self._total("requests_total") >= len(self.clients))
        time.sleep(0.05)  # a second end would come now
        for client in self.clients:
            assert client.ends == (0 if client.refused else 1)
            assert not client.after_end
            if not client.refused and not client.error:
                last = client.deltas[-1]
                assert last.completion_tokens == sum(delta.tokens for delta in client.deltas)
                assert 0 <= last.cached_tokens <= last.prompt_tokens
                assert last.finish_reason in ("stop", "length", "deadline")
                assert last.note
                assert last.note.cache in ("", "exact", "semantic", "coalesced")
                assert last.note.queue_s >= 0
                assert not last.note.predicted_ttft_s < 0
        assert self._total("requests_total") == len(self.clients)
        registry, scheduler = service._registry, service._dispatcher._scheduler
        assert (registry.states, registry.generations, registry.looking) == ({}, {}, 0)
        assert (registry._by_cancel_key, registry._by_question) == ({}, {})
        assert len(registry._cancelled_keys) <= 1024
        assert dict(scheduler.admission.reserved_by_tier) == {}
        assert (scheduler.admission.reserved, scheduler._dropped) == (set(), {})
        latency = scheduler._latency
        assert (latency.streams, latency.pending, latency._runs) == (0, 0, {})
        if self.answers:
            eventually(lambda: self.answers.threads.unfinished == 0)
        assert (self._total("active_requests"), self._total("queued_requests")) == (0, 0)
        assert all(
            metric.value >= 0 for (name, _), metric in self.metrics.series.items() if name.endswith("_total")
        )

    def _total(self, name: str) -> float:
        series = list(self.metrics.series.items())
        return sum(metric.value for (key, _), metric in series if key == f"trimodal_llm_{name}")


@pytest.fixture
def tiers(tmp_path: Path) -> Path:
    path = tmp_path / "tiers.toml"
    path.write_text(TIERS)
    return path


@pytest.fixture(scope="module")
def ends() -> Iterator[Counter[str]]:
    """How requests ended, over all seeds of a run: it must have both to show anything."""
    ends: Counter[str] = Counter()
    yield ends
    assert ends["answered in full"] > 0
    assert ends["error"] > 0


@pytest.mark.parametrize("seed", SEEDS)
def test_each_request_has_one_end_and_gives_everything_back(
    seed: int, tiers: Path, ends: Counter[str]
) -> None:
    with Interleaving(seed).installed("trimodal.llm", "trimodal.cache", "tests.llm", "tests.cache"):
        chaos = Chaos(seed, tiers)
        chaos.run()
        chaos.check()
        chaos.service.close()
    for client in chaos.clients:
        if client.error:
            ends["error"] += 1
        elif client.deltas and client.deltas[-1].finish_reason in ("stop", "length"):
            ends["answered in full"] += 1


def test_a_seed_gives_the_same_run_again(tiers: Path) -> None:
    def run() -> tuple[int, float, list[str]]:
        with Interleaving(5).installed("trimodal.llm", "trimodal.cache", "tests.llm", "tests.cache") as world:
            chaos = Chaos(5, tiers)
            chaos.run()
            chaos.service.close()
            return world.switches, world.now, [client.text for client in chaos.clients]

    assert run() == run()


def test_threads_as_they_come_end_each_request_too(tiers: Path) -> None:
    chaos = Chaos(1, tiers)
    chaos.run()
    chaos.check()
    chaos.service.close()
