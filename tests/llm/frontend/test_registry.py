"""The books of requests: found by what one looks for, and empty when all have left."""

from __future__ import annotations

import pytest

from tests.llm.frontend.test_request_state import generation_of, stream_of
from trimodal.errors import Cancelled, InvalidArgument
from trimodal.llm.engines.protocol import Sampling
from trimodal.llm.frontend import registry as module
from trimodal.llm.frontend.registry import Book
from trimodal.llm.frontend.request_state import Stream
from trimodal.llm.request.request import GenerationRequest
from trimodal.llm.request.terms import Terms


def keyed(key: str) -> Stream:
    stream = stream_of()
    stream.request = GenerationRequest("hello", None, Sampling(8), terms=Terms(cancel_key=key))
    return stream


def test_who_listens_to_nothing_yet_is_looking() -> None:
    book = Book()
    streams = [stream_of() for _ in range(3)]
    for stream in streams:
        book.enter(stream)
    assert book.looking == 3
    generation = generation_of(streams[0])
    book.add(generation)
    book.join(generation, streams[1])
    assert book.looking == 1
    assert book.leave(streams[0]) is None
    assert book.leave(streams[2]) is None
    assert book.looking == 0
    assert book.leave(streams[1]) is generation
    book.drop(generation)
    assert (book.looking, book.streams, book.generations) == (0, set(), {})


def test_cancelled_keys_are_bounded_and_the_latest_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_REMEMBERED", 3)
    book = Book()
    for key in ("a", "b", "c", "a", "d", "e"):
        assert book.keyed(key) is None
    for key in ("a", "d", "e"):
        with pytest.raises(Cancelled):
            book.enter(keyed(key))
    for key in ("b", "c", "a"):  # a: once only
        book.enter(keyed(key))


def test_a_cancelled_key_is_forgotten_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    book = Book()
    now = 100.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    book.keyed("a")
    now += 10.5
    book.enter(keyed("a"))


def test_a_key_in_use_stays_the_first_ones() -> None:
    book = Book()
    first = keyed("a")
    book.enter(first)
    with pytest.raises(InvalidArgument):
        book.enter(keyed("a"))
    assert book.keyed("a") is first
    assert book.streams == {first}
