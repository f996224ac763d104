"""The service on an asyncio engine: text, usage, cancellation, errors and a new engine for a lost one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.llm.doubles.engine_thread import start_thread
from tests.llm.doubles.sinks import Collector, counts, eventually
from tests.llm.engines.async_rig import INFO, Chunk, PlayedRuntime, engine_of
from trimodal.errors import Cancelled, Unavailable
from trimodal.llm.engine_core import core
from trimodal.llm.engine_core.client import EngineCoreClient
from trimodal.llm.engines.protocol import Output, Sampling
from trimodal.llm.frontend.metrics import LlmMetrics
from trimodal.llm.request.request import GenerationRequest
from trimodal.llm.service import LlmService
from trimodal.llm.settings import LlmSettings
from trimodal.metrics import MemoryMetrics


class Played:
    """A service whose engines the test plays, one after the other."""

    def __init__(self) -> None:
        self.runtimes: list[PlayedRuntime] = []
        self.info = INFO
        self.metrics = MemoryMetrics()
        settings = LlmSettings(engine="fake", cancel_poll_ms=2, max_queue=8)  # "fake": bytes for tokens
        self.service = LlmService(settings, LlmMetrics(self.metrics, "llm"), self.start)

    def start(self, settings: LlmSettings) -> EngineCoreClient:
        self.runtimes.append(PlayedRuntime())
        return start_thread(engine_of(self.runtimes[-1], self.info))

    @property
    def runtime(self) -> PlayedRuntime:
        return self.runtimes[-1]

    def ask(self, prompt: str = "hello", max_tokens: int = 20, stops: tuple[str, ...] = ()) -> Collector:
        sink = Collector()
        self.service.submit(GenerationRequest(prompt, None, Sampling(max_tokens), stops), sink)
        return sink

    def value(self, name: str, **labels: str) -> float:
        return self.metrics.get(f"trimodal_llm_{name}", {"model": "llm", **labels}).value

    def running(self, count: int) -> None:
        eventually(lambda: len(self.runtime.requests) == count)


@pytest.fixture
def played() -> Iterator[Played]:
    made = Played()
    yield made
    made.service.close()


def text(words: str, finish: str | None = None, cached: int = 0) -> Output:
    return Chunk(list(words.encode()), finish, cached)


def test_text_and_usage_reach_the_client(played: Played) -> None:
    answer = played.ask("hello", max_tokens=20)
    played.running(1)
    played.runtime.say(1, text("na"), text("ï"), text("ve", cached=4), text("!", "stop"))
    answer.wait()
    assert answer.text == "naïve!"
    last = answer.deltas[-1]
    assert (last.finish_reason, last.cached_tokens, last.completion_tokens) == ("stop", 4, 7)
    assert last.prompt_tokens == len("user: hello\nassistant: ")
    eventually(lambda: counts(played.service) == (0, 0, 0))
    eventually(lambda: played.value("kv_usage_ratio") == 0.0)
    assert played.value("prefix_cache_hits_total") == 1


def test_a_stop_string_aborts_the_sequence_in_the_library(played: Played) -> None:
    answer = played.ask(stops=("STOP",))
    played.running(1)
    played.runtime.say(1, text("so far STOP and on"))
    assert answer.wait().text == "so far "
    eventually(lambda: played.runtime.aborted == [1])
    assert counts(played.service) == (0, 0, 0)


def test_a_client_that_leaves_frees_its_place_for_the_next(played: Played) -> None:
    answers = [played.ask() for _ in range(INFO.max_num_seqs)]
    waiting = played.ask()
    played.running(INFO.max_num_seqs)
    assert counts(played.service)[:2] == (INFO.max_num_seqs, 1)
    played.runtime.say(2, text("x"))
    answers[1].cancelled = True
    assert isinstance(answers[1].wait().error, Cancelled)
    played.running(INFO.max_num_seqs + 1)
    eventually(lambda: played.runtime.aborted == [2])
    played.runtime.say(5, text("here", "stop"))
    assert waiting.wait().text == "here"
    for id in (1, 3, 4):
        played.runtime.say(id, text("too", "length"))
    assert [answers[at].wait().text for at in (0, 2, 3)] == ["too"] * 3
    eventually(lambda: counts(played.service) == (0, 0, 0))
    eventually(lambda: played.runtime.open_streams == [])


def test_a_failing_request_is_one_clients_affair(played: Played, caplog: pytest.LogCaptureFixture) -> None:
    bad, good = played.ask(), played.ask()
    played.running(2)
    played.runtime.say(1, text("a"), ValueError("no such layer"))
    played.runtime.say(2, text("fine", "stop"))
    assert str(bad.wait().error) == "the engine failed on this request"
    assert good.wait().text == "fine"
    assert "no such layer" in caplog.text
    assert len(played.runtimes) == 1


def test_a_lost_engine_fails_its_requests_and_a_new_one_answers_who_waits(
    played: Played, caplog: pytest.LogCaptureFixture
) -> None:
    running = [played.ask() for _ in range(INFO.max_num_seqs)]
    waiting = played.ask()
    played.running(INFO.max_num_seqs)
    old = played.runtime
    old.dead = True
    old.say(3, RuntimeError("CUDA error: an illegal memory access was encountered"))
    for answer in running:
        assert isinstance(answer.wait().error, Unavailable)
        assert "illegal" not in str(answer.error)
    eventually(lambda: len(played.runtimes) == 2)
    played.running(1)
    played.runtime.say(5, text("again", "stop"))
    assert waiting.wait().text == "again"
    assert old.closed
    assert played.value("engine_restarts_total") == 1
    assert "illegal memory access" in caplog.text


def test_a_new_engine_with_less_memory_refuses_who_fits_it_no_more(
    played: Played, caplog: pytest.LogCaptureFixture
) -> None:
    """A pool that is as large as memory allows need not be the same the second time."""
    running = [played.ask() for _ in range(INFO.max_num_seqs)]
    large, small = played.ask(max_tokens=900), played.ask(max_tokens=20)
    played.running(INFO.max_num_seqs)
    played.info = replace(INFO, num_kv_blocks=4)
    played.runtime.dead = True
    played.runtime.say(1, RuntimeError("gone"))
    for answer in running:
        assert isinstance(answer.wait().error, Unavailable)
    assert str(large.wait().error) == "the engine was opened anew with less memory than this needs"
    eventually(lambda: len(played.runtimes) == 2)
    played.running(1)
    played.runtime.say(6, text("fits", "stop"))
    assert small.wait().text == "fits"
    assert "gone" in caplog.text


def test_an_engine_lost_while_idle_is_replaced_before_anyone_asks(
    played: Played, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(core, "_CHECK_SECONDS", 0.01)
    answer = played.ask()
    played.running(1)
    played.runtime.say(1, text("one", "stop"))
    answer.wait()
    played.runtime.dead = True
    eventually(lambda: len(played.runtimes) == 2)
    answer = None  # type: ignore[assignment]
    while answer is None:
        try:
            answer = played.ask()
        except Unavailable:
            threading.Event().wait(0.01)
    played.running(1)
    played.runtime.say(2, text("two", "stop"))
    assert answer.wait().text == "two"
    assert "played has ended" in caplog.text
