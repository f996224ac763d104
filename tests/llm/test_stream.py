from tests.llm.sinks import Collector
from trimodal.errors import Cancelled
from trimodal.llm.detokenize import TextStream
from trimodal.llm.engine import Sampling
from trimodal.llm.request import GenerationRequest
from trimodal.llm.stream import Delta, Stream
from trimodal.llm.tokenizer import ByteTokenizer


def make(stops: tuple[str, ...] = ()) -> Stream:
    request = GenerationRequest("hi", None, Sampling(10), stops)
    return Stream(1, request, [1, 2, 3], TextStream(ByteTokenizer(), stops), Collector())


def test_what_piles_up_is_one_delta() -> None:
    stream = make()
    stream.push(list(b"ab"), None)
    stream.push(list(b"c"), None)
    assert stream.take() == Delta("abc", "", 3, 0, 3, 3)
    assert stream.take() is None


def test_the_end_comes_even_without_text() -> None:
    stream = make()
    assert stream.push([], "length")
    assert stream.take() == Delta("", "length", 3, 0, 0, 0)
    assert stream.take() is None


def test_a_stop_string_ends_the_answer() -> None:
    stream = make(stops=("b",))
    assert stream.push(list(b"abc"), None)
    taken = stream.take()
    assert isinstance(taken, Delta)
    assert (taken.text, taken.finish_reason) == ("a", "stop")


def test_after_an_error_nothing_else_is_sent() -> None:
    stream = make()
    stream.push(list(b"waiting"), None)
    error = Cancelled("gone")
    stream.fail(error)
    assert stream.take() is error
    assert stream.take() is None
