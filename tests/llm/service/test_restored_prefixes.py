"""What a new engine has in its prefix cache before anybody asks, and that nobody waits for it."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tests.llm.doubles.engine_thread import start_thread
from tests.llm.doubles.sinks import FakeServer, eventually
from tests.llm.service.test_tenants import cached
from trimodal.errors import SettingsError
from trimodal.llm.engine_core.client import EngineCoreClient, start_process
from trimodal.llm.engines.fake import FakeEngine
from trimodal.llm.engines.protocol import CallName, EngineCall, EngineRequest, Sampling
from trimodal.llm.request.operator import OperatorCall
from trimodal.llm.request.request import GenerationRequest
from trimodal.llm.request.terms import Terms
from trimodal.llm.settings import LlmSettings


class NotedEngine(FakeEngine):
    """Notes what happens to its sequences."""

    def __init__(self, settings: LlmSettings) -> None:
        super().__init__(settings)
        self.told: list[str] = []

    def add(self, request: EngineRequest) -> None:
        self.told.append("client" if request.sampling.max_tokens > 1 else "prefix")
        super().add(request)

    def cancel(self, id: int) -> None:
        self.told.append("cancel")
        super().cancel(id)


def settled(server: FakeServer) -> None:
    """Waits until nothing is to be computed while the server is idle."""
    prefills = server.service._dispatcher._prefills

    def nothing_left() -> bool:
        with server.service._lock:
            return not (prefills._public_due or prefills._due or prefills._running)

    eventually(nothing_left)


def test_prefixes_are_there_again_after_the_engine_was_lost_each_for_its_tenant() -> None:
    links: list[EngineCoreClient] = []

    def start(settings: LlmSettings) -> EngineCoreClient:
        links.append(start_process(settings))
        return links[-1]

    with FakeServer(start=start) as server:
        assert cached(server, tenant="acme") == 0
        assert cached(server, tenant="acme") == 192
        pid = links[0].pid
        assert pid
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: len(links) == 2 and server.value("engine_ready") == 1, timeout=60)
        settled(server)
        assert cached(server, tenant="acme") == 192
        assert cached(server, tenant="umbrella") == 0


class ForgetfulEngine(NotedEngine):
    """Its cache is empty after it has slept."""

    def call(self, call: EngineCall) -> None:
        super().call(call)
        self._prefix = type(self._prefix)(512, 32)


class ResettingEngine(NotedEngine):
    """Empties its cache, without being told to, at the next glance while it is idle once `due` is set."""

    def __init__(self, settings: LlmSettings) -> None:
        super().__init__(settings)
        self.due = threading.Event()

    def check(self) -> None:
        if self.due.is_set():
            self.due.clear()
            self._prefix = type(self._prefix)(512, 32)
            self._stats = replace(self._stats, cache_resets=self._stats.cache_resets + 1)


def test_they_are_there_again_and_no_hits_expected_when_an_idle_engine_has_emptied_its_cache() -> None:
    """OpenVINO's forgets grammars so: nobody asks, and nothing else tells of it."""
    with FakeServer(kind=ResettingEngine) as server:
        (engine,) = server.engines
        assert [cached(server) for _ in range(2)] == [0, 192]
        expected = server.service._dispatcher._scheduler._prefixes
        assert expected._cached
        engine.told.clear()
        engine.due.set()
        eventually(lambda: engine.told == ["prefix"])
        assert not expected._cached
        settled(server)
        assert cached(server) == 192


def sleep_and_wake(server: FakeServer) -> None:
    calls: tuple[CallName, ...] = ("sleep", "wake_up")
    for call in calls:
        server.submit(OperatorCall(call)).wait()


def test_they_are_there_again_when_the_engine_has_slept_whatever_salts_another_tenant_has() -> None:
    with FakeServer(kind=ForgetfulEngine) as server:
        assert [cached(server) for _ in range(2)] == [0, 192]
        for salt in range(22):  # 6 blocks each, and there is room for 128
            assert [cached(server, tenant="acme", cache_salt=str(salt)) for _ in range(2)] == [0, 192]
        sleep_and_wake(server)
        assert not server.service._dispatcher._scheduler._prefixes._cached
        settled(server)
        assert cached(server) == 192
        assert cached(server, tenant="acme", cache_salt="0") == 0


def test_a_prefix_that_an_engine_had_to_leave_to_sleep_is_computed_when_it_wakes(tmp_path: Path) -> None:
    (tmp_path / "system.txt").write_text("x" * 1900)
    values = {"public_prompts": "system.txt", "version_directory": tmp_path / "1"}
    with FakeServer(kind=ForgetfulEngine, fake_step_ms=20.0, max_num_batched_tokens=32, **values) as server:
        (engine,) = server.engines
        eventually(lambda: engine.told == ["prefix"])
        sleep_and_wake(server)
        eventually(lambda: engine.told == ["prefix", "cancel", "prefix"])


def test_a_public_prompt_is_there_for_every_tenant_from_the_start_and_what_follows_is_not(
    tmp_path: Path,
) -> None:
    (tmp_path / "system.txt").write_text("You help. " * 20)

    def found(server: FakeServer, question: str, **terms: str) -> int:
        messages = ({"role": "system", "content": "You help. " * 20}, {"role": "user", "content": question})
        request = GenerationRequest(None, messages, Sampling(2), terms=Terms(**terms))
        return server.submit(request).wait().deltas[-1].cached_tokens

    with FakeServer(public_prompts="system.txt", version_directory=tmp_path / "1") as server:
        settled(server)
        assert found(server, "x" * 100, tenant="acme") == 192
        assert found(server, "x" * 100, tenant="acme") == 320
        assert found(server, "x" * 100, tenant="umbrella") == 192
        assert found(server, "x" * 100) == 192
        assert found(server, "x" * 100, tenant="acme", cache_salt="secret") == 0


def test_one_that_the_engine_cannot_hold_ends_the_start_and_the_engine(tmp_path: Path) -> None:
    (tmp_path / "system.txt").write_text("x" * 1900)
    links: list[EngineCoreClient] = []

    def start(settings: LlmSettings) -> EngineCoreClient:
        links.append(start_thread(FakeEngine(settings)))
        return links[-1]

    values = {"public_prompts": "system.txt", "version_directory": tmp_path / "1", "num_kv_blocks": 32}
    with pytest.raises(SettingsError, match=r"system\.txt has 1888 tokens: a prompt may have 1023"):
        FakeServer(start=start, **values)
    assert links[0].receive() is None, "it is closed"


def test_a_request_takes_the_place_of_a_prefix_within_the_step_under_way(tmp_path: Path) -> None:
    (tmp_path / "system.txt").write_text("x" * 1900)
    slow = {"fake_step_ms": 20.0, "max_num_batched_tokens": 32}  # 59 steps for the prefix
    with FakeServer(
        kind=NotedEngine, public_prompts="system.txt", version_directory=tmp_path / "1", **slow
    ) as server:
        (engine,) = server.engines
        eventually(lambda: engine.told == ["prefix"])
        assert server.ask().wait().deltas[-1].completion_tokens == 20
        settled(server)
        told = engine.told
    assert told[:3] == ["prefix", "cancel", "client"], "not one step for the prefix beside the client"
    assert told[3:] == ["prefix"]
