"""The thread that looks for clients that left and answers that are too late."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.llm.doubles.answers import Answers, ask
from tests.llm.doubles.engine_thread import PlayedEngines
from tests.llm.doubles.sinks import Collector, FakeServer, counts, eventually
from trimodal.errors import Cancelled, Unavailable
from trimodal.llm.frontend.dispatcher import Dispatcher
from trimodal.llm.request.outputs import Note


@pytest.fixture
def engines() -> PlayedEngines:
    return PlayedEngines()


def held(server: FakeServer) -> None:
    """The engine's only slot is taken, as long as it is paused."""
    ask(server, "holds the engine", max_tokens=5, cache_control=frozenset({"no-cache"}))
    eventually(lambda: counts(server.service)[0] == 1)


def note(sink: Collector) -> Note:
    last = sink.wait().deltas[-1].note
    assert last
    return last


def test_who_has_less_time_than_the_others_is_told_so_alone(engines: PlayedEngines) -> None:
    with FakeServer(answers=Answers(), max_num_seqs=1, start=engines.start) as server:
        with engines.paused():
            held(server)
            patient = ask(server, max_tokens=5)
            eventually(lambda: counts(server.service)[1] == 1)
            hasty = ask(server, max_tokens=5, ttft_deadline_ms=100)
            assert isinstance(hasty.wait().error, Unavailable)
            assert "ttft_deadline_ms cannot be kept" in str(hasty.error)
            assert hasty.error.retry_after_s
            assert not patient.ended.is_set()
        assert patient.wait().deltas[-1].finish_reason == "length"
        eventually(lambda: counts(server.service) == (0, 0, 0))


def test_who_has_less_time_leaves_when_the_patient_one_has_gone(engines: PlayedEngines) -> None:
    with FakeServer(answers=Answers(), max_num_seqs=1, start=engines.start) as server, engines.paused():
        held(server)
        patient = ask(server, max_tokens=5, ttft_deadline_ms=3_000_000)
        eventually(lambda: counts(server.service)[1] == 1)
        hasty = ask(server, max_tokens=5, ttft_deadline_ms=150)
        patient.cancelled = True
        assert isinstance(patient.wait().error, Cancelled)
        assert isinstance(hasty.wait().error, Unavailable)
        assert counts(server.service)[:2] == (1, 0), "nobody waits for it: it is not generated"


def test_who_waits_for_a_busy_engine_is_told_and_for_one_that_stands_still_is_not(
    engines: PlayedEngines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trimodal.llm.frontend.request_state._QUIET_S", 0.02)
    with FakeServer(max_num_seqs=1, start=engines.start, fake_step_ms=2.0) as server:
        with engines.paused():
            busy = ask(server, max_tokens=900)
            waiting = ask(server, max_tokens=5)
            eventually(lambda: counts(server.service)[:2] == (1, 1))
        eventually(lambda: waiting.deltas != [])
        assert {(delta.text, delta.finish_reason) for delta in waiting.deltas} == {("", "")}
        with engines.paused():
            told = []
            eventually(lambda: told.append(len(waiting.deltas)) or len(told) > 60 and told[-1] == told[-30])  # type: ignore[func-returns-value]
        busy.cancelled = True
        assert waiting.wait().deltas[-1].finish_reason == "length"


def test_a_fault_does_not_end_the_watch(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(self: Dispatcher) -> None:
        raise RuntimeError("no figures")

    monkeypatch.setattr(Dispatcher, "report", broken)
    with FakeServer() as server:
        eventually(lambda: "no figures" in caplog.text)
        leaving = ask(server, max_tokens=100_000 // 128)
        leaving.cancelled = True
        assert isinstance(leaving.wait().error, Cancelled)


def test_a_premium_request_does_not_wait_behind_the_share_of_batch(
    tmp_path: Path, engines: PlayedEngines
) -> None:
    tiers = tmp_path / "tiers.toml"
    tiers.write_text("[tier.standard]\n[tier.batch]\nkv_share = 0.3\npriority = -10\n")
    values = {"tiers": str(tiers), "num_kv_blocks": 32, "max_num_seqs": 8}
    with FakeServer(answers=Answers(), start=engines.start, **values) as server:
        with engines.paused():
            ask(server, "fills the share", max_tokens=250, tier="batch")
            eventually(lambda: counts(server.service)[0] == 1)
            batch = ask(server, max_tokens=200, tier="batch")
            eventually(lambda: counts(server.service)[1] == 1)
            standard = ask(server, max_tokens=200)
            eventually(lambda: counts(server.service)[:2] == (2, 1))
        assert batch.wait().text == standard.wait().text
        assert (note(batch).cache, note(standard).cache) == ("", ""), "each has a generation of its own"


def test_a_deadline_passes_while_the_cache_is_asked() -> None:
    answers = Answers()
    with FakeServer(answers=answers) as server:
        answers.gate.clear()
        sink = ask(server, deadline_ms=30)
        assert isinstance(sink.wait().error, Unavailable)
        assert "deadline_ms passed: no text yet" in str(sink.error)
        answers.gate.set()
        server.nothing_left()
        assert not sink.after_end


def test_a_listeners_deadline_is_its_own(engines: PlayedEngines) -> None:
    with FakeServer(answers=Answers(), start=engines.start, fake_step_ms=2.0) as server:
        patient = ask(server, max_tokens=200)
        eventually(lambda: patient.deltas != [])
        with engines.paused():
            hasty = ask(server, max_tokens=200, deadline_ms=100)
            assert hasty.wait().deltas[-1].finish_reason == "deadline"
        assert patient.wait().deltas[-1].finish_reason == "length"
        assert patient.text.startswith(hasty.text)
        assert hasty.text
