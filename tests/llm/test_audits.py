"""The service beside its audits: what is audited, and that no client's request ever waits for one."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

from tests.llm.doubles.answers import Answers, ask
from tests.llm.doubles.audits import STORED, PlayedAudits
from tests.llm.doubles.sinks import FakeServer, counts, eventually
from trimodal.cache.values import Hit
from trimodal.llm.engines.fake import FakeEngine
from trimodal.llm.engines.protocol import EngineRequest, Output
from trimodal.llm.frontend import idle_audits
from trimodal.llm.request.operator import OperatorCall
from trimodal.llm.settings import LlmSettings

NEAR = Hit(STORED, "semantic", 0.95)
AUDITED = "near"


class WatchedEngine(FakeEngine):
    """Notes each step's sequences, an audit's as "audit": what is asked with the prompt of a hit."""

    def __init__(self, settings: LlmSettings) -> None:
        super().__init__(settings)
        self.steps: list[list[str]] = []
        self.names: dict[int, str] = {}

    def add(self, request: EngineRequest) -> None:
        self.names[request.id] = "audit" if bytes(request.prompt_ids) == AUDITED.encode() else "client"
        super().add(request)

    def step(self) -> list[Output]:
        ids = [*self._running, *(sequence.request.id for sequence in self._waiting)]
        self.steps.append([self.names[id] for id in ids])
        return super().step()


@pytest.fixture
def answers() -> Answers:
    """Every semantic lookup is a hit, as long as `near` says so."""
    found = Answers()
    found.audits = PlayedAudits()
    return found


def near(answers: Answers, *, hit: bool) -> None:
    answers.near = NEAR if hit else None


def audits(answers: Answers) -> PlayedAudits:
    assert isinstance(answers.audits, PlayedAudits)
    return answers.audits


def test_a_hit_is_answered_at_once_and_generated_when_the_server_is_idle(answers: Answers) -> None:
    with FakeServer(answers=answers) as server:
        near(answers, hit=True)
        asked = ask(server, AUDITED, max_tokens=20).wait()
        assert asked.text == "Near."
        eventually(lambda: audits(answers).finished != [])
        (_, answer, finish_reason) = audits(answers).finished[0]
        fresh = ask(server, AUDITED, max_tokens=20, cache_control=frozenset({"no-cache"})).wait().text
        assert (answer, finish_reason) == (fresh, "length")
        assert server.value("requests_total", outcome="length") == 1, "an audit is no request"
        assert counts(server.service) == (0, 0, 0)


def test_a_sleeping_engine_is_left_alone(answers: Answers) -> None:
    """It took an audit and stood still with it, until it was given up."""
    with FakeServer(answers=answers, kind=WatchedEngine) as server:
        near(answers, hit=True)
        for call in ("sleep", "wake_up"):
            server.submit(OperatorCall(call)).wait()  # type: ignore[arg-type]
            if call == "sleep":
                assert ask(server, AUDITED, max_tokens=20).wait().text == "Near."
                time.sleep(3 * idle_audits.IDLE_S)
                assert server.engines[0].names == {}
        eventually(lambda: audits(answers).finished != [])
    assert len(server.engines[0].names) == 1


@pytest.mark.parametrize("control", ["no-store", "no-cache"])
def test_who_wants_nothing_kept_is_not_audited(answers: Answers, control: str) -> None:
    with FakeServer(answers=answers) as server:
        near(answers, hit=True)
        ask(server, AUDITED, cache_control=frozenset({control})).wait()
        with server.service._lock:
            assert server.service._idle_audits
            assert not server.service._idle_audits._waiting


def test_a_broken_audit_harms_no_request(answers: Answers) -> None:
    def broken(*arguments: Any) -> Any:
        raise RuntimeError("broken")

    audits(answers).draws = broken  # type: ignore[method-assign]
    with FakeServer(answers=answers) as server:
        near(answers, hit=True)
        assert ask(server, AUDITED).wait().text == "Near."


def _drive(answers: Answers, seed: int, requests: int, monkeypatch: pytest.MonkeyPatch) -> WatchedEngine:
    """Clients that come and go before an engine that would always have an audit to do."""
    monkeypatch.setattr(idle_audits, "IDLE_S", 0.0)
    draw = random.Random(seed)
    with FakeServer(answers=answers, kind=WatchedEngine, apply_chat_template=False) as server:
        for index in range(requests):
            if draw.random() < 0.5:
                near(answers, hit=True)
                ask(server, AUDITED, max_tokens=30).wait()
                time.sleep(draw.choice([0.0, 0.005, 0.02]))
            near(answers, hit=False)
            batch = [
                ask(server, f"client {index} {one}", max_tokens=12) for one in range(draw.choice([1, 3]))
            ]
            for sink in batch:
                assert sink.wait().error is None
            time.sleep(draw.choice([0.0, 0.01, 0.06]))
    (engine,) = server.engines
    assert isinstance(engine, WatchedEngine)
    return engine


@pytest.mark.parametrize(
    ("seed", "requests"), [(1, 12), *(pytest.param(seed, 150, marks=pytest.mark.slow) for seed in (2, 3))]
)
def test_no_step_has_an_audit_beside_a_client(
    answers: Answers, seed: int, requests: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counts the order of execution, not times: an audit never runs while a client's request is there."""
    engine = _drive(answers, seed, requests, monkeypatch)
    audited = sum("audit" in step for step in engine.steps)
    assert audited > 0
    assert sum("client" in step for step in engine.steps) > 0
    assert not [step for step in engine.steps if "audit" in step and len(step) > 1]
    played = audits(answers)
    assert played.finished or played.reasons
