"""What goes over gRPC, against functions in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from tests.doubles.virtual_clock import run_virtually
from trimodal.audio.values import SAMPLE_RATE, Word
from trimodal.bench.load.records import Record
from trimodal.bench.targets.llm import GrpcLlm
from trimodal.bench.targets.media import embedding, speech
from trimodal.bench.targets.questions import Question, listed
from trimodal.bench.targets.taking import check
from trimodal.client import Client
from trimodal.client.transports.base import Request
from trimodal.client.transports.fake import FakeTransport, llm_outputs
from trimodal.errors import InternalError, ServerError, Unavailable


async def three_pieces(request: Request) -> AsyncIterator[Any]:
    yield llm_outputs("a", "")
    yield llm_outputs("b", "")
    yield llm_outputs("c", "stop", prompt_tokens=7, completion_tokens=3)


def asked(question: Question, model: Any = three_pieces, **options: Any) -> tuple[Record, FakeTransport]:
    transport = FakeTransport(llm=model)
    target = GrpcLlm(Client(transport=transport), listed([question]), **options)
    return run_virtually(target.send(0)), transport


def test_pieces_and_tokens_of_an_answer_are_kept() -> None:
    record, transport = asked(Question("why?", 3), options={"stop": ".", "tier": "premium"})
    assert (record.outcome, len(record.pieces)) == ("ok", 3)
    assert (record.input_tokens, record.output_tokens) == (7, 3)
    inputs = transport.requests[0].inputs
    assert inputs["tier"][0] == b"premium"
    assert inputs["stop"][0] == b"."


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(Unavailable("full"), "unavailable"), (InternalError("the engine stopped"), "internal")],
)
async def test_refusals_are_outcomes_and_end_a_check(error: Exception, outcome: str) -> None:
    async def model(request: Request) -> AsyncIterator[Any]:
        raise error
        yield

    target = GrpcLlm(Client(transport=FakeTransport(llm=model)), listed([Question("why?", 3)]))
    record = await target.send(0)
    assert (record.outcome, record.error) == (outcome, str(error))
    with pytest.raises(ServerError, match=str(error)):
        await check(target.send)


async def test_a_vector_is_one_piece() -> None:
    transport = FakeTransport(embedding=lambda request: {"embedding": np.ones((1, 3), np.float32)})
    send = embedding(Client(transport=transport), listed([Question("a text", 1)]))
    record = await send(0)
    assert (record.outcome, len(record.pieces), record.items) == ("ok", 1, 1)


async def test_each_request_of_a_batch_has_texts_of_its_own() -> None:
    """`--batch` sent one text."""
    asked: list[list[bytes]] = []

    def model(request: Request) -> dict[str, Any]:
        asked.append(request.inputs["text_input"].ravel().tolist())
        return {"embedding": np.ones((len(asked[-1]), 3), np.float32)}

    texts = listed([Question(str(number), 1) for number in range(9)])
    send = embedding(Client(transport=FakeTransport(embedding=model)), texts, batch=3)
    assert [(await send(number)).items for number in range(2)] == [3, 3]
    assert asked == [[b"0", b"1", b"2"], [b"3", b"4", b"5"]]


@dataclass
class Update:
    committed: tuple[Word, ...] = ()
    tentative: str = ""


@dataclass
class Stream:
    """Answers chunk n with `answers[n]`, and the end with the last one."""

    answers: dict[int, Update]
    sent: list[int] = field(default_factory=list)
    text: str = ""

    def listen(self, **options: Any) -> Stream:
        return self

    async def __aenter__(self) -> Stream:
        return self

    async def __aexit__(self, *error: object) -> None:
        return None

    async def send(self, chunk: Any) -> Update:
        self.sent.append(len(chunk))
        return self._told(self.answers.get(len(self.sent), Update()))

    async def end(self) -> Update:
        return self._told(self.answers[-1])

    def _told(self, update: Update) -> Update:
        self.text += "".join(word.text for word in update.committed)
        return update


@pytest.mark.parametrize(("pace", "lags"), [(1.0, (0.3, 0.6)), (2.0, (0.15, 0.3)), (0.0, ())])
def test_a_words_lag_counts_from_when_its_end_was_spoken(pace: float, lags: tuple[float, ...]) -> None:
    one, two = Word(" one", 0.1, 0.5, 1.0), Word(" two", 0.5, 0.4, 1.0)
    stream = Stream({3: Update(tentative=" o"), 8: Update((one,), " tw"), -1: Update((two,))})
    send = speech(stream, [np.zeros(SAMPLE_RATE, np.float32)], pace=pace)  # type: ignore[arg-type]
    record = run_virtually(send(0))
    assert stream.sent == [1600] * 10
    assert record.lags == pytest.approx(lags)
    assert (record.outcome, record.audio_s, record.output_tokens) == ("ok", 1.0, 2)
    assert record.text == " one two"
    if pace:
        assert record.ttft == pytest.approx(0.3 / pace)


async def test_a_question_is_made_before_its_record_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts of 2,000 words take 0.1 ms to make, which is no latency of the server."""
    order: list[str] = []
    begun = Record.begun
    monkeypatch.setattr(Record, "begun", staticmethod(lambda *of: (order.append("begun"), begun(*of))[1]))

    def question(number: int) -> Question:
        order.append("question")
        return Question("a text", 1)

    transport = FakeTransport(embedding=lambda request: {"embedding": np.ones((1, 3), np.float32)})
    await embedding(Client(transport=transport), question)(0)
    assert order == ["question", "begun"]
