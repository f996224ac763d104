import math

import pytest

from tests.llm.sinks import Collector
from trimodal.cache.values import Entry, Hit
from trimodal.errors import Cancelled
from trimodal.llm.engine import Sampling
from trimodal.llm.request import GenerationRequest
from trimodal.llm.stream import Delta, Stream


def make(trimmed: str = "") -> Stream:
    return Stream(GenerationRequest("hi", None, Sampling(10)), [1, 2, 3], Collector(), trimmed=trimmed)


def test_what_piles_up_is_one_delta() -> None:
    stream = make()
    stream.push("ab", 2, "")
    stream.push("c", 1, "")
    assert stream.take() == Delta("abc", "", 3, 0, 3, 3)
    assert stream.take() is None


def test_the_end_comes_even_without_text_and_has_the_note() -> None:
    stream = make(trimmed='{"messages": 2}')
    stream.push("", 0, "length")
    assert stream.ended
    taken = stream.take()
    assert isinstance(taken, Delta)
    assert (taken.text, taken.finish_reason, taken.tokens) == ("", "length", 0)
    assert taken.note
    assert (taken.note.cache, taken.note.similarity, taken.note.queue_s) == ("", 0.0, 0.0)
    assert taken.note.trimmed == '{"messages": 2}'
    assert math.isnan(taken.note.predicted_ttft_s)
    assert stream.take() is None


@pytest.mark.parametrize(("kind", "similarity"), [("exact", 1.0), ("semantic", 0.93)])
def test_a_hit_is_an_answer_like_any_other(kind: str, similarity: float) -> None:
    stream = make()
    stream.answer(Hit(Entry("hi", "Hello.", "stop", 4, 10, 0.0, 1.0), kind, similarity))  # type: ignore[arg-type]
    taken = stream.take()
    assert isinstance(taken, Delta)
    assert (taken.text, taken.finish_reason) == ("Hello.", "stop")
    assert (taken.prompt_tokens, taken.cached_tokens, taken.completion_tokens) == (3, 0, 4)
    assert taken.note
    assert (taken.note.cache, taken.note.similarity) == (kind, similarity)


def test_after_an_error_nothing_else_is_sent() -> None:
    stream = make()
    stream.push("waiting", 7, "")
    error = Cancelled("gone")
    stream.fail(error)
    assert stream.take() is error
    assert stream.take() is None
