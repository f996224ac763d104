"""Answers that a grammar holds only in part: held back, checked when whole, made again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.llm.doubles.sinks import Collector, FakeServer
from trimodal.errors import InvalidArgument
from trimodal.llm.engines.fake import FakeEngine
from trimodal.llm.engines.protocol import EngineRequest, Output, Sampling
from trimodal.llm.request.request import GenerationRequest
from trimodal.llm.settings import LlmSettings
from trimodal.llm.structured.form import Check, Form

FORM = Form(answer=Check("response_format", {"type": "array", "uniqueItems": True}))
BROKEN = "response_format: the answer broke 'uniqueItems' at its root, in every attempt"


class Writer(FakeEngine):
    """Writes these answers, one a request, and ends each by itself."""

    def __init__(self, settings: LlmSettings, answers: list[str]) -> None:
        super().__init__(settings)
        self._answers = answers
        self.asked: list[Sampling] = []

    def add(self, request: EngineRequest) -> None:
        self._script = list(self._answers[len(self.asked)].encode())
        self.asked.append(request.sampling)
        super().add(request)

    def _advance(self, sequence: object) -> Output:
        output = super()._advance(sequence)  # type: ignore[arg-type]
        place = len(sequence.made) - 1  # type: ignore[attr-defined]
        ended = "stop" if place + 1 == len(self._script) else output.finish_reason
        if ended == "stop":
            self.cancel(output.id)
        return Output(output.id, [self._script[place]], ended, 0)


@contextmanager
def served(*answers: str, **settings: object) -> Iterator[tuple[FakeServer, list[Writer]]]:
    with FakeServer(kind=lambda settings: Writer(settings, list(answers)), **settings) as server:
        yield server, server.engines
        server.nothing_left()


def ask(server: FakeServer, sampling: Sampling, form: Form = FORM, stops: tuple[str, ...] = ()) -> Collector:
    return server.submit(GenerationRequest("hello", None, sampling, stops, form=form)).wait()


def test_what_breaks_the_form_is_made_again_and_never_sent() -> None:
    with served("[1,1]", "[2,2]", "[1,2,3]") as (server, (writer, *_)):
        answer = ask(server, Sampling(50, 0.7, seed=6))
        assert (answer.text, answer.deltas[-1].finish_reason) == ("[1,2,3]", "stop")
        assert answer.deltas[-1].completion_tokens == len("[1,1][2,2][1,2,3]"), "each attempt is used"
        assert writer.asked[0].seed == 6
        again = [one.seed for one in writer.asked[1:]]
        assert len({seed % 2**32 for seed in again if seed is not None and abs(seed - 6) > 1000}) == 2
        assert all(not delta.text for delta in answer.deltas[:-1])


def test_a_greedy_answer_is_drawn_the_next_time() -> None:
    with served("[1,1]", "[1]") as (server, (writer, *_)):
        assert ask(server, Sampling(50)).text == "[1]"
        assert [one.temperature for one in writer.asked] == [0.0, 1.0]


def test_three_times_wrong_is_told_by_the_keyword() -> None:
    with served("[1,1]", "[2,2]", "[3,3]") as (server, (writer, *_)):
        answer = ask(server, Sampling(50))
        assert isinstance(answer.error, InvalidArgument)
        assert str(answer.error) == BROKEN
        assert len(writer.asked) == 3
        assert answer.text == ""


def test_thoughts_are_those_of_the_answer_that_is_sent() -> None:
    """Those of attempts that were given up stood before them."""
    with served("<think>a</think>[1,1]", "<think>b</think>[1]", reasoning_parser="qwen3") as (server, _):
        messages = ({"role": "user", "content": "hello"},)
        sink = server.submit(GenerationRequest(None, messages, Sampling(50), form=FORM))
        assert sink.wait().text == "[1]"
        assert "".join(delta.reasoning for delta in sink.deltas) == "b"


def test_what_is_cut_is_sent_as_it_is() -> None:
    with served("[1,1]", "[1,1]") as (server, _):
        cut = ask(server, Sampling(3))
        assert (cut.text, cut.deltas[-1].finish_reason) == ("[1,", "length")
        stopped = ask(server, Sampling(50), stops=(",",))
        assert (stopped.text, stopped.deltas[-1].finish_reason) == ("[1", "stop")


def test_the_arguments_of_each_call_are_checked() -> None:
    call = '<tool_call>\n{"name": "f", "arguments": {"a": %s}}\n</tool_call>'
    schema = {"properties": {"a": {"uniqueItems": True}}}
    form = Form(calls={"f": Check("tools[0].function.parameters", schema)})
    good, other = call % "[1, 2]", call.replace('"f"', '"g"') % "[1, 1]"
    wrong = call % '["</tool_call>", "</tool_call>"]'
    assert form.problem(f"Free text <.\n{good}\n{other}") == ""
    assert "broke 'uniqueItems' at a" in form.problem(f"{good}\n{wrong}")
    assert form.problem('{"a": "<tool_call> and <tool_call>\\n"}') == ""  # a text, beside calls that may be
    with served(wrong, good) as (server, _):
        assert ask(server, Sampling(200), form).text == good
