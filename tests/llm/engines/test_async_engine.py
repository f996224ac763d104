"""An asyncio library as an engine: the real core loop and client on streams that the test plays."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.llm.doubles.sinks import eventually
from tests.llm.engines.async_rig import INFO, Chunk, PlayedRuntime, Rig, engine_of, request
from trimodal.llm.engine_core import core
from trimodal.llm.engines import async_engine
from trimodal.llm.engines.async_runtime import Refused, finish_reason
from trimodal.llm.engines.protocol import EngineLost


@pytest.fixture
def rig() -> Iterator[Rig]:
    started = Rig()
    yield started
    started.link.close()
    assert started.runtime.closed


def test_a_burst_comes_out_whole_and_in_order(rig: Rig) -> None:
    rig.link.add(request(1, max_tokens=500))
    rig.runtime.say(1, *[Chunk([token]) for token in range(400)], Chunk([400], "length"))
    eventually(lambda: rig.ends(1) == "length")
    assert rig.tokens(1) == list(range(401))


def test_what_arrives_between_two_steps_is_there_for_the_next() -> None:
    """The library's loop runs while nobody steps: TensorRT-LLM's thread wakes no loop that stands still."""
    runtime = PlayedRuntime()
    engine = engine_of(runtime)
    engine.add(request(1))
    runtime.say(1, Chunk([5]), Chunk([6], "stop"))
    eventually(lambda: runtime.ended == [1])  # nobody steps
    assert [output.token_ids for output in engine.step()] == [[5], [6]]
    assert not engine.has_work()
    engine.close()


def test_a_step_without_output_returns_soon_and_is_nobodys_news(rig: Rig) -> None:
    rig.link.add(request(1))
    eventually(lambda: bool(rig.runtime.requests))
    rig.runtime.say(1, Chunk([1]))
    eventually(lambda: rig.tokens(1) == [1])
    before = len(rig.steps)
    time.sleep(0.1)  # some fifty steps
    assert len(rig.steps) == before
    rig.link.cancel(1)
    eventually(lambda: rig.runtime.aborted == [1])


def test_cached_tokens_stay_known_when_later_chunks_do_not_say_them(rig: Rig) -> None:
    rig.link.add(request(1))
    rig.runtime.say(1, Chunk([1], cached_tokens=0), Chunk([2], cached_tokens=8), Chunk([3], "stop"))
    eventually(lambda: rig.ends(1) == "stop")
    assert [output.cached_tokens for output in rig.outputs(1)] == [0, 8, 8]


def test_a_cancelled_sequence_is_aborted_and_says_no_more(rig: Rig) -> None:
    rig.link.add(request(1))
    rig.link.add(request(2))
    rig.runtime.say(1, Chunk([1]))
    eventually(lambda: rig.tokens(1) == [1])
    assert rig.stats.kv_usage == 0.5
    rig.link.cancel(1)
    eventually(lambda: rig.runtime.aborted == [1])
    rig.runtime.say(1, Chunk([9]))  # what was on its way
    rig.runtime.say(2, Chunk([2], "length"))
    eventually(lambda: rig.ends(2) == "length")
    assert rig.tokens(1) == [1]
    assert (rig.steps[-1].working, rig.stats.kv_usage) == (False, 0.0)


def test_a_chunk_that_waits_for_its_step_is_not_told_after_a_cancel() -> None:
    runtime = PlayedRuntime()
    engine = engine_of(runtime)
    engine.add(request(1))
    runtime.say(1, Chunk([1]), Chunk([2]))
    engine.cancel(1)
    assert engine.step() == []
    assert not engine.has_work()
    engine.add(request(1))  # the number is free again, and its new owner is not taken for the old one
    eventually(lambda: runtime.aborted == [1] and len(runtime.requests) == 2)
    runtime.say(1, Chunk([3], "stop"))
    eventually(lambda: [output.token_ids for output in engine.step()] == [[3]])
    engine.close()


def test_cancelled_before_it_began_it_never_reaches_the_library() -> None:
    runtime = PlayedRuntime()
    engine = engine_of(runtime)
    hold = threading.Event()
    runtime.loop.loop.call_soon_threadsafe(hold.wait, 5)
    engine.add(request(1))
    engine.cancel(1)
    hold.set()
    runtime.loop.run(_nothing(), 5)
    assert runtime.requests == []
    engine.cancel(77)  # unknown: ignored
    engine.close()


async def _nothing() -> None:
    pass


def test_a_failing_request_fails_alone(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    for id in (1, 2, 3):
        rig.link.add(request(id))
    rig.runtime.say(1, Chunk([1]), RuntimeError("secret"))
    rig.runtime.say(2, Chunk([2]), None)
    rig.runtime.say(3, Chunk([3], "error"))
    eventually(lambda: all(rig.ends(id) == "error" for id in (1, 2, 3)))
    assert rig.outputs(1)[-1].error == "the engine failed on this request"
    assert rig.outputs(2)[-1].error == "the engine ended this request before its end"
    assert rig.outputs(3)[-1].error == "the engine failed on this request"
    assert "secret" in caplog.text
    rig.link.add(request(4))
    rig.runtime.say(4, Chunk([4], "stop"))
    eventually(lambda: rig.ends(4) == "stop")
    assert not rig.died.is_set()


@pytest.mark.parametrize("reason", ["abort", "error", "repetition", "timeout", "cancelled"])
def test_an_end_of_a_library_that_nobody_asked_for_is_an_error(reason: str) -> None:
    assert finish_reason(reason) == "error"
    assert [finish_reason(known) for known in (None, "stop", "length")] == [None, "stop", "length"]


def test_what_an_engine_made_before_it_was_lost_is_told() -> None:
    runtime = PlayedRuntime()
    engine = engine_of(runtime)
    for id in (1, 2):
        engine.add(request(id))
    runtime.say(1, Chunk([1]), Chunk([2], "stop"))
    runtime.say(2, Chunk([3]))
    eventually(lambda: runtime.ended == [1])
    runtime.dead = True
    runtime.say(2, RuntimeError("gone"))
    eventually(lambda: runtime.ended == [1, 2])
    runtime.loop.run(_nothing(), 5)  # that it was lost is in the queue, too
    assert sorted(output.token_ids[0] for output in engine.step()) == [1, 2, 3]
    for _ in range(2):
        with pytest.raises(EngineLost, match="ended during a request: gone"):
            engine.step()
    engine.close()


def test_more_than_the_engine_takes_is_refused(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.link.add(request(1, max_tokens=991))
    eventually(lambda: rig.ends(1) == "refused")
    assert (
        rig.outputs(1)[-1].error == "the engine refused this request: 1001 tokens, and the engine takes 1000"
    )
    assert "1001 tokens, and the engine takes 1000" in caplog.text
    rig.link.add(request(2))
    rig.runtime.say(2, Chunk([2], "stop"))
    eventually(lambda: rig.ends(2) == "stop")
    assert [one.id for one in rig.runtime.requests] == [2]


def test_a_step_ends_for_an_output_or_a_command_and_is_not_repeated_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A look every 2 ms woke the process 500 times a second, on cores that compute the next token."""
    monkeypatch.setattr(async_engine, "_ALIVE_SECONDS", 60.0)
    runtime = PlayedRuntime()
    engine = engine_of(runtime)
    reading, writing = os.pipe()
    engine.watch(reading)
    engine.add(request(1))
    steps: queue.SimpleQueue[list[Any]] = queue.SimpleQueue()

    def step() -> None:
        steps.put(engine.step())

    stepping = threading.Thread(target=step)
    stepping.start()
    os.write(writing, b"a command")
    assert steps.get(timeout=10) == []
    os.read(reading, 100)
    stepping.join(10)
    stepping = threading.Thread(target=step)
    stepping.start()
    runtime.say(1, Chunk([5], "stop"))
    assert [output.token_ids for output in steps.get(timeout=10)] == [[5]]
    stepping.join(10)
    engine.close()
    os.close(reading)
    os.close(writing)


def test_a_request_that_the_library_refuses_says_why_on_one_line(rig: Rig, caplog: Any) -> None:
    rig.link.add(request(1))
    rig.runtime.say(1, Refused("Failed to parse the grammar"))
    eventually(lambda: rig.ends(1) == "refused")
    assert rig.outputs(1)[-1].error == "the engine refused this request: Failed to parse the grammar"
    (line,) = [record for record in caplog.records if "refused" in record.message]
    assert not line.exc_info


def test_figures_of_a_library_that_tells_its_drafts_count_tokens_not_outputs(rig: Rig) -> None:
    """vLLM joins outputs that wait: three of them may be one, without any speculation."""
    rig.runtime.drafted = (0, 0)
    rig.link.add(request(1))
    rig.runtime.say(1, Chunk([1]), Chunk([2, 3, 4]))
    eventually(lambda: rig.tokens(1) == [1, 2, 3, 4])
    assert (rig.stats.decode_slots, rig.stats.decoded_tokens) == (3, 3)
    rig.runtime.drafted = (4, 2)
    rig.runtime.say(1, Chunk([5, 6, 7], "stop"))
    eventually(lambda: rig.ends(1) == "stop")
    stats = rig.stats
    assert (stats.decode_slots, stats.decoded_tokens) == (4, 6)
    assert (stats.drafted_tokens, stats.accepted_tokens) == (4, 2)


def test_figures_count_tokens_and_slots(rig: Rig) -> None:
    rig.link.add(request(1))
    rig.runtime.say(1, Chunk([1]), Chunk([2, 3]), Chunk([4]), Chunk([], "stop"))
    eventually(lambda: rig.ends(1) == "stop")
    # The first token is the prompt's; then two steps made three.
    assert (rig.stats.decode_slots, rig.stats.decoded_tokens) == (2, 3)
    assert not rig.stats.speculating
    assert rig.link.info == INFO


@pytest.mark.parametrize("waiting", [True, False])
def test_an_engine_that_dies_unseen_is_lost_whether_sequences_wait_or_none(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, waiting: bool
) -> None:
    monkeypatch.setattr(async_engine, "_ALIVE_SECONDS", 0.01)
    monkeypatch.setattr(core, "_CHECK_SECONDS", 0.01)
    rig = Rig()
    if waiting:
        rig.link.add(request(1))
    rig.runtime.dead = True
    assert rig.died.wait(10)
    assert "played has ended" in caplog.text
    rig.link.close()


def test_close_ends_the_loop_and_what_runs_on_it() -> None:
    threads = set(threading.enumerate())
    rig = Rig()
    rig.link.add(request(1))
    eventually(lambda: bool(rig.runtime.requests))
    rig.link.close()
    eventually(lambda: set(threading.enumerate()) <= threads)
    assert rig.runtime.closed
    assert rig.runtime.aborted == [1]


def test_a_library_that_does_not_end_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(async_engine, "_CLOSE_SECONDS", 0.05)
    runtime, hang = PlayedRuntime(), threading.Event()
    monkeypatch.setattr(runtime, "close", lambda: hang.wait(20))
    closing = threading.Thread(target=engine_of(runtime).close, daemon=True)
    closing.start()
    closing.join(10)
    assert not closing.is_alive()
    hang.set()
    eventually(lambda: not runtime.loop.loop.is_running())
