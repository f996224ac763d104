"""Identical requests share a generation; the cache is asked first; a cancel key ends a request."""

from collections.abc import Iterator

import pytest

from tests.llm.doubles.answers import Answers, ask
from tests.llm.doubles.engine_thread import PlayedEngines
from tests.llm.doubles.sinks import Collector, FakeServer, counts, eventually
from trimodal.errors import Cancelled, InvalidArgument, Unavailable
from trimodal.llm.request.terms import CancelRequest

KEY = "0123456789abcdef"


@pytest.fixture
def answers() -> Answers:
    return Answers()


@pytest.fixture
def engines() -> PlayedEngines:
    return PlayedEngines()


@pytest.fixture
def server(answers: Answers, engines: PlayedEngines) -> Iterator[FakeServer]:
    with FakeServer(answers=answers, start=engines.start, fake_step_ms=2.0) as running:
        yield running


def note(sink: Collector) -> str:
    last = sink.wait().deltas[-1].note
    assert last
    return last.cache


def test_an_answer_is_kept_and_found_again(server: FakeServer, answers: Answers) -> None:
    first = ask(server)
    assert note(first) == ""
    eventually(lambda: answers.kept != [])
    assert answers.kept[0][1:] == (first.text, "length", 30)
    again = ask(server)
    assert note(again) == "exact"
    assert again.text == first.text
    assert (again.deltas[-1].completion_tokens, again.deltas[-1].finish_reason) == (30, "length")
    assert server.value("requests_total", outcome="length") == 2
    assert (server.value("tokens_total", kind="completion"), server.value("tokens_total", kind="saved")) == (
        30,
        30,
    )
    assert counts(server.service) == (0, 0, 0)


def test_32_identical_prompts_are_one_generation_while_one_listens(
    server: FakeServer, answers: Answers, engines: PlayedEngines
) -> None:
    answers.gate.clear()
    sinks = [ask(server, max_tokens=40) for _ in range(32)]
    with engines.paused():
        answers.gate.set()
        eventually(lambda: counts(server.service)[:2] == (1, 0) and server.value("queued_requests") == 0)
        for sink in sinks[:16]:
            sink.cancelled = True
        for sink in sinks[:16]:
            assert isinstance(sink.wait().error, Cancelled)
        assert counts(server.service)[:2] == (1, 0), "the other half still listens"
    texts = {sink.wait().text for sink in sinks[16:]}
    assert len(texts) == 1
    assert {note(sink) for sink in sinks[16:]} <= {"", "coalesced"}
    assert len(answers.kept) == 1
    assert answers.kept[0][1] == texts.pop()


def test_when_all_listeners_leave_it_stops(server: FakeServer, answers: Answers) -> None:
    sinks = [ask(server, max_tokens=5000) for _ in range(8)]
    eventually(lambda: all(sink.deltas for sink in sinks))
    for sink in sinks:
        sink.cancelled = True
    server.nothing_left()
    assert answers.kept == []


def test_who_joins_late_gets_it_from_the_beginning(server: FakeServer, engines: PlayedEngines) -> None:
    early = ask(server, max_tokens=200)
    eventually(lambda: len(early.deltas) > 5)
    with engines.paused():
        late = ask(server, max_tokens=200)
        eventually(lambda: late.deltas != [])
    assert late.wait().text == early.wait().text
    assert note(late) == "coalesced"
    assert late.deltas[-1].completion_tokens == 200


def test_without_a_store_one_generation_is_shared_all_the_same(engines: PlayedEngines) -> None:
    with FakeServer(cache="coalesce", start=engines.start, fake_step_ms=2.0) as server:
        with engines.paused():
            sinks = [ask(server) for _ in range(3)]
            fresh = ask(server, cache_control=frozenset({"no-cache"}))
            eventually(lambda: counts(server.service)[0] == 2)
        assert [note(sink) for sink in sinks] == ["", "coalesced", "coalesced"]
        assert (note(fresh), note(ask(server))) == ("", "")


def test_what_differs_is_not_shared(server: FakeServer, answers: Answers) -> None:
    answers.gate.clear()
    sinks = [
        ask(server, max_tokens=40),
        ask(server, max_tokens=41),
        ask(server, "hello!", max_tokens=40),
        ask(server, max_tokens=40, tenant="acme"),
        ask(server, max_tokens=40, cache_namespace="faq"),
        ask(server, max_tokens=40, temperature=0.7),
        ask(server, max_tokens=40, temperature=0.7),
    ]
    answers.gate.set()
    assert [note(sink) for sink in sinks] == [""] * 7


def test_no_cache_is_generated_for_itself(server: FakeServer, engines: PlayedEngines) -> None:
    with engines.paused():
        running = ask(server, max_tokens=30)
        eventually(lambda: counts(server.service)[0] == 1)
        fresh = ask(server, max_tokens=30, cache_control=frozenset({"no-cache"}))
        eventually(lambda: counts(server.service)[0] == 2)
    assert (note(running), note(fresh)) == ("", "")


@pytest.mark.parametrize(
    ("terms", "kept"),
    [
        ({"temperature": 0.7}, 0),
        ({"temperature": 0.7, "cache_control": frozenset({"store"})}, 1),
        ({"cache_control": frozenset({"no-store"})}, 0),
        ({"cache_control": frozenset({"no-cache"})}, 1),
    ],
)
def test_the_client_says_what_the_cache_may_do(
    server: FakeServer, answers: Answers, terms: dict[str, object], kept: int
) -> None:
    ask(server, **terms).wait()
    server.service.close()
    assert len(answers.kept) == kept


def test_one_listener_who_wants_nothing_stored_is_enough(
    server: FakeServer, answers: Answers, engines: PlayedEngines
) -> None:
    early = ask(server, max_tokens=300)
    eventually(lambda: early.deltas != [])
    with engines.paused():
        late = ask(server, max_tokens=300, cache_control=frozenset({"no-store"}))
        eventually(lambda: late.deltas != [])
    assert (note(early), note(late)) == ("", "coalesced")
    server.service.close()
    assert answers.kept == []


def test_a_failed_generation_fails_for_all_and_is_not_kept(
    server: FakeServer, answers: Answers, engines: PlayedEngines
) -> None:
    sinks = [ask(server, max_tokens=3000) for _ in range(4)]
    eventually(lambda: all(sink.deltas for sink in sinks))
    engines.lose()
    for sink in sinks:
        assert isinstance(sink.wait().error, Unavailable)
    assert answers.kept == []


def test_a_cache_that_raises_costs_nobody_an_answer(
    server: FakeServer, answers: Answers, caplog: pytest.LogCaptureFixture
) -> None:
    answers.broken = True
    assert note(ask(server)) == ""
    assert "the cache broke its promise" in caplog.text


def test_a_cancel_key_ends_its_request_alone() -> None:
    with FakeServer(fake_step_ms=2.0) as server:
        kept, ended = ask(server, max_tokens=300), ask(server, max_tokens=5000, cancel_key=KEY)
        eventually(lambda: ended.deltas != [])
        told = server.submit(CancelRequest(KEY))
        assert told.wait().deltas[-1].finish_reason == "cancelled"
        assert isinstance(ended.wait().error, Cancelled)
        assert kept.wait().error is None
        again = server.submit(CancelRequest(KEY))
        assert again.wait().deltas[-1].finish_reason == "not_found"


def test_a_cancel_that_overtakes_its_request_still_ends_it() -> None:
    with FakeServer() as server:
        assert not server.service.cancel(KEY)
        with pytest.raises(Cancelled):
            ask(server, cancel_key=KEY)
        ask(server, max_tokens=5, cancel_key=KEY).wait()  # once only
        assert counts(server.service) == (0, 0, 0)


def test_a_key_in_use_is_refused_and_harms_nobody() -> None:
    engines = PlayedEngines()
    with FakeServer(start=engines.start) as server:
        with engines.paused():
            running = ask(server, max_tokens=20, cancel_key=KEY)
            with pytest.raises(InvalidArgument, match="cancel_key is that of another running request"):
                ask(server, cancel_key=KEY)
        assert running.wait().error is None
        ask(server, max_tokens=3, cancel_key=KEY).wait()


def test_cancelling_one_listener_by_key_leaves_the_others(server: FakeServer, engines: PlayedEngines) -> None:
    keyed = ask(server, max_tokens=300, cancel_key=KEY)
    eventually(lambda: keyed.deltas != [])
    with engines.paused():
        other = ask(server, max_tokens=300)
        eventually(lambda: other.deltas != [])
        assert server.service.cancel(KEY)
        assert isinstance(keyed.wait().error, Cancelled)
    assert other.wait().deltas[-1].finish_reason == "length"


def test_who_asks_for_log_probabilities_gets_them_for_every_token_and_shares_with_nobody(
    server: FakeServer, answers: Answers
) -> None:
    plain = ask(server)
    asked = [ask(server, top_logprobs=2), ask(server, top_logprobs=0)]
    assert [note(sink) for sink in asked] == ["", ""]
    assert note(plain) == ""
    eventually(lambda: len(answers.kept) == 1)
    assert note(ask(server, top_logprobs=0)) == ""  # the stored answer has none
    assert len(answers.kept) == 1
    assert {delta.logprobs for delta in plain.deltas} == {None}
    for sink, top in zip(asked, (2, 0), strict=True):
        tokens = [one for delta in sink.deltas for one in delta.logprobs or ()]
        assert len(tokens) == sink.deltas[-1].completion_tokens == 30
        assert b"".join(one.token for one in tokens).decode() == sink.text == plain.text
        assert {len(one.top) for one in tokens} == {top}
        assert all(one.top[:1] == () or one.top[0].token == one.token for one in tokens)
        for delta in sink.deltas:
            assert b"".join(one.token for one in delta.logprobs or ()) == delta.text.encode()
