"""What the cache may not do to a request, however it behaves."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from types import SimpleNamespace
from typing import Any

import pytest

from tests.cache.doubles import FakeEmbedder, ScriptedJudge, ScriptedStore, calibration
from tests.llm.doubles.answers import Answers, ask
from tests.llm.doubles.sinks import FakeServer, counts, eventually
from tests.llm.frontend.test_request_state import state_of
from trimodal.cache.answers import AnswerCache, CacheOptions
from trimodal.cache.metrics import CacheMetrics
from trimodal.cache.values import Entry, Hit
from trimodal.llm.frontend import cache_lookup
from trimodal.llm.frontend.cache_lookup import CacheLookup
from trimodal.llm.rendering import Rendering
from trimodal.llm.settings import LlmSettings
from trimodal.metrics import MemoryMetrics


@pytest.fixture
def answers() -> Answers:
    return Answers()


@pytest.fixture
def server(answers: Answers) -> Iterator[FakeServer]:
    with FakeServer(answers=answers, fake_step_ms=2.0) as running:
        yield running


def test_too_many_to_look_up_still_share_one_generation(server: FakeServer, answers: Answers) -> None:
    answers.gate.clear()
    looking = [ask(server, max_tokens=300) for _ in range(64)]
    past = [ask(server, max_tokens=300) for _ in range(20)]
    eventually(lambda: all(sink.deltas for sink in past))
    assert counts(server.service)[:2] == (1, 0)
    answers.gate.set()
    assert len({sink.wait().text for sink in past + looking}) == 1
    assert len(answers.kept) == 1
    assert server.value("cache_skipped_total") >= 20


def test_who_waited_for_the_lookup_as_long_as_it_may_take_goes_past_it(answers: Answers) -> None:
    with FakeServer(answers=answers, cache_budget_ms=5, cache_embedding_budget_ms=5) as server:
        ask(server, "kept", max_tokens=5).wait()
        eventually(lambda: answers.kept != [])
        answers.gate.clear()
        looking = [ask(server, f"prompt {index}", max_tokens=5) for index in range(8)]
        answers.patience_s = 0.015  # as long as a lookup may wait for a thread: all 8 are taken
        late = ask(server, "kept", max_tokens=5)
        eventually(lambda: server.value("cache_skipped_total") == 1)  # the late one was given up
        answers.gate.set()
        assert [delta.note.cache for delta in late.wait().deltas if delta.note] == [""]
        for sink in looking:
            sink.wait()
        assert server.value("cache_skipped_total") == 1
        assert counts(server.service) == (0, 0, 0)


@pytest.mark.parametrize("layer", ["exact", "semantic"])
@pytest.mark.parametrize("reason", ["", "deadline", "error"])
def test_a_stored_answer_without_an_end_is_none(
    server: FakeServer, answers: Answers, layer: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def poisoned(question: Any) -> Hit:
        return Hit(Entry(question.text, "Poison.", reason, 2, question.max_tokens, 0, 1), "exact")

    monkeypatch.setattr(answers, layer, poisoned)
    sink = ask(server).wait()
    assert "Poison" not in sink.text
    assert sink.deltas[-1].finish_reason == "length"


def key(templated: bool | None = True, dated: bool = False, **request: Any) -> str:
    """Of the question that such a request is."""
    state = state_of()
    state.request = replace(state.request, **request)
    cache = CacheLookup(LlmSettings(engine="fake"), None, "f", templated=templated, dated=dated)
    asked = cache.question(state)
    assert asked
    return asked.key


def test_a_message_that_is_continued_counts_to_its_last_blank() -> None:
    def of_chat(said: str, rendering: Rendering) -> str:
        return key(prompt=None, messages=({"role": "user", "content": said},), rendering=rendering)

    continued = Rendering(add_generation_prompt=False, continue_final_message=True)
    assert of_chat("Once upon ", Rendering()) == of_chat("Once upon", Rendering())
    assert of_chat("Once upon ", continued) != of_chat("Once upon", continued)


@pytest.mark.parametrize(
    ("model", "asked", "verbatim"),
    [(True, None, False), (True, False, True), (False, None, True), (False, True, False), (None, True, True)],
)
def test_a_prompt_that_is_continued_is_another_question_than_one_that_is_answered(
    model: bool | None, asked: bool | None, verbatim: bool
) -> None:
    made, cleaned = (key(model, prompt=prompt, apply_chat_template=asked) for prompt in (" a", "a"))
    assert (made != cleaned) is verbatim


def test_how_a_chat_is_rendered_is_part_of_the_question() -> None:
    thinking = [Rendering(kwargs={"enable_thinking": value}) for value in (True, False)]
    renderings = (Rendering(), Rendering(add_generation_prompt=False), *thinking)
    assert len({key(rendering=one) for one in renderings}) == len(renderings)


@pytest.mark.parametrize(
    ("dated", "asked", "differ"),
    [
        (True, {}, True),
        (True, {"prompt": None, "messages": ({"role": "user", "content": "What day is it?"},)}, True),
        (True, {"apply_chat_template": False}, False),
        (False, {}, False),
    ],
)
def test_where_the_template_writes_the_day_tomorrow_is_another_question(
    monkeypatch: pytest.MonkeyPatch, dated: bool, asked: dict[str, Any], differ: bool
) -> None:
    keys = []
    for day in (27, 27, 28):
        monkeypatch.setattr(cache_lookup, "date", SimpleNamespace(today=lambda day=day: date(2026, 11, day)))
        keys.append(key(dated=dated, **asked))
    assert keys[0] == keys[1]
    assert (keys[1] != keys[2]) is differ


def test_a_long_prompt_is_hashed_before_the_lock_is_taken() -> None:
    cache = CacheLookup(LlmSettings(engine="fake"), None, "0123456789abcdef")
    asked = cache.question(state_of())
    assert asked
    assert "key" in vars(asked), "it is computed when it is first asked for, which would be under the lock"


class Hanging:
    """The real cache; its store or its embedding model hangs until `over`."""

    def __init__(self, what: str) -> None:
        self.over = threading.Event()
        self.store = ScriptedStore()
        embedder = FakeEmbedder()
        if what == "embedder":
            embedder.embed = lambda text: [self.over.wait(60)] and FakeEmbedder().embed(text)  # type: ignore[method-assign]
        else:
            self.store.before = lambda call: self.over.wait(60) and None
        self.counts = MemoryMetrics()
        options = CacheOptions("unused", budget_s=0.02, embedding_budget_s=0.02)
        self.cache = AnswerCache(
            options,
            embedder.embed,
            CacheMetrics(self.counts, "llm"),
            store=self.store,
            same=ScriptedJudge().same,
            calibration=calibration(),
        )

    def timeouts(self) -> float:
        return self.counts.get("trimodal_cache_bypassed_total", {"model": "llm", "reason": "timeout"}).value


@pytest.mark.parametrize("what", ["store", "embedder"])
def test_what_hangs_delays_a_request_by_its_budget_and_takes_no_thread_for_good(what: str) -> None:
    hanging = Hanging(what)
    # The store's budget must not wait for the next look for cancelled requests.
    seldom = {"cancel_poll_ms": 3_600_000}
    with FakeServer(answers=hanging.cache, cache_budget_ms=20, unchecked=seldom) as server:
        sinks = [ask(server, f"prompt {index}", max_tokens=3) for index in range(20)]
        assert all(sink.wait().deltas[-1].finish_reason == "length" for sink in sinks)
        assert hanging.timeouts() >= 1
        hanging.over.set()
        eventually(lambda: hanging.cache.threads.unfinished == 0)
        assert not any(sink.after_end for sink in sinks)
        assert counts(server.service) == (0, 0, 0)


def test_close_does_not_wait_for_what_hangs() -> None:
    hanging = Hanging("store")
    server = FakeServer(answers=hanging.cache)
    ask(server, max_tokens=3).wait()
    closing = threading.Thread(target=server.service.close)
    closing.start()
    closing.join(30)
    assert not closing.is_alive()
    hanging.over.set()


def test_all_threads_of_a_model_with_a_semantic_cache() -> None:
    """What a stub runs beside Triton's own threads and the one that carries metrics over."""
    before = set(threading.enumerate())
    hanging = Hanging("store")
    with FakeServer(answers=hanging.cache) as server:
        sinks = [ask(server, f"prompt {index}", max_tokens=3) for index in range(30)]
        for sink in sinks:
            sink.wait()
        names = Counter(one.name.rstrip("-0123456789") for one in set(threading.enumerate()) - before)
        del names["llm-engine-core"]  # a process in production
        assert names == {
            "llm-engine": 1,
            "llm-engine-writer": 1,
            "llm-monitor": 1,
            "llm-sender": 2,
            "llm-lookup": 8,
            "cache-writer": 1,
        }
        hanging.over.set()
