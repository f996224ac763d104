from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from pydantic import TypeAdapter

from tests.explain.recorded import (
    ID,
    MS,
    VISION,
    VISION_RECEIVED,
    VISION_SENT,
    asked,
    entry,
    pixels_answer,
    span,
    step,
    text_outputs,
    written,
)
from trimodal import trace
from trimodal.explain.assemble import OTHER_CLOCK, Assembly
from trimodal.explain.exchange import Exchange, Response
from trimodal.explain.requests import Kind
from trimodal.explain.triton_trace import TraceRecord, parse
from trimodal.explain.values import Span, Waterfall, four_parts, overlapping


def ms(waterfall: Waterfall) -> dict[str, tuple[float, float]]:
    """Name → begin and end, ms; of several with one name the first."""
    found: dict[str, tuple[float, float]] = {}
    for one in waterfall.spans:
        found.setdefault(one.name, (round(one.begin * 1e3, 3), round(one.end * 1e3, 3)))
    return found


def one(waterfall: Waterfall, name: str) -> Span:
    (found,) = (one for one in waterfall.spans if one.name == name)
    return found


def built(
    kind: Kind, exchange: Exchange, records: Sequence[TraceRecord] = (), notes: Sequence[str] = ()
) -> Waterfall:
    """The waterfall of a request, whose parts add up."""
    waterfall = Assembly(kind, asked(kind), exchange, records, notes).waterfall()
    assert sum(four_parts(waterfall).values()) == pytest.approx(waterfall.total)
    for span_ in waterfall.spans:
        assert 0 <= span_.begin <= span_.end <= waterfall.total
    return waterfall


def test_a_recorded_ensemble() -> None:
    exchange = pixels_answer(VISION_SENT, VISION_RECEIVED)
    waterfall = built("vision", exchange, parse(VISION))
    names = [(one.place, one.name, one.depth) for one in waterfall.spans]
    assert names[:2] == [("client", "client → server", 0), ("Triton", "server", 0)]
    phases = ["queue", "compute input", "compute", "compute output"]
    for at, model in enumerate(("vision_preprocess", "vision_classify", "vision_rank")):
        mine = names[2 + 5 * at : 7 + 5 * at]
        assert mine == [(model, model, 1), *((model, phase, 2) for phase in phases)]
    assert ms(waterfall)["client → server"] == (0, 0.919)
    # From the response's begin: what the last step still tidies up does not make the client wait.
    assert ms(waterfall)["server → client"] == (3.555, 4.136)
    assert (waterfall.moved, waterfall.notes) == (0.0, [])
    assert waterfall.answer == "seven (75%)"


def test_a_picture_whose_name_is_no_utf_8_is_told_all_the_same() -> None:
    """`--json` failed with a traceback."""
    exchange = pixels_answer(VISION_SENT, VISION_RECEIVED)
    described = replace(asked("vision"), words="b\udcfcd.jpg (9 bytes)")
    waterfall = Assembly("vision", described, exchange, parse(VISION), []).waterfall()
    assert "b\ufffdd.jpg (9 bytes)".encode() in TypeAdapter(Waterfall).dump_json(waterfall)


OWN = [
    span("tokenize", 3, 4),
    span("admission", 4, 5),
    span("queue", 5, 15),
    span("first token", 15, 40),
    span("next tokens", 40, 60),
    span("text", 40, 40, tokens=1),
    span("text", 55, 55, tokens=4),
    span("text", 60, 60, tokens=5),
]
LLM_TIMES = {
    "GRPC_WAITREAD_START": -9 * MS,
    "GRPC_WAITREAD_END": 1 * MS,
    "REQUEST_START": 1 * MS,
    "QUEUE_START": 1 * MS,
    "COMPUTE_START": 2 * MS,
    "COMPUTE_INPUT_END": 2 * MS,
    "COMPUTE_OUTPUT_START": 4 * MS,
    "COMPUTE_END": 4 * MS,
    "REQUEST_END": 4 * MS,
    "GRPC_SEND_START": 62 * MS,
    "GRPC_SEND_END": 63 * MS,
}


def answered(ahead: int = 0) -> Exchange:
    """An answer in three pieces, each 2 ms on its way; the server's clock is `ahead` ns."""
    own = [{**one, "begin": one["begin"] + ahead, "end": one["end"] + ahead} for one in OWN]
    pieces = [("A", 1, 42, None), ("bcd", 4, 57, None), ("e", 5, 64, own)]
    return Exchange(
        0, [Response(at * MS, text_outputs(text, tokens, spans)) for text, tokens, at, spans in pieces]
    )


def llm_record() -> list[TraceRecord]:
    return parse(written(entry(1, "llm", LLM_TIMES, request_id=ID)))


def test_a_streamed_answer_with_the_model_s_own_times() -> None:
    waterfall = built("llm", answered(), llm_record())
    assert ms(waterfall) == {
        "client → server": (0, 1),
        "server": (1, 62),
        "queue": (1, 2),
        "hand over to the model": (2, 3),
        "tokenize": (3, 4),
        "cache lookup, admission": (4, 5),
        "wait for the engine": (5, 15),
        "prefill, first token": (15, 40),
        "4 more tokens": (40, 60),
        "hand back to Triton": (60, 62),
        "server → client": (62, 64),
    }
    parts = {"network": 1, "queue": 11, "processing": 48, "response": 4}
    assert {part: round(seconds * 1e3, 6) for part, seconds in four_parts(waterfall).items()} == parts
    assert [(piece.text, piece.made, piece.received) for piece in waterfall.pieces] == [
        ("A", 0.040, 0.042),
        ("bcd", 0.055, 0.057),
        ("e", 0.060, 0.064),
    ]
    assert waterfall.first_text == 0.042
    assert waterfall.answer == "“Abcde”"


def test_another_machine_s_clock_leaves_how_long_each_step_took() -> None:
    waterfall = built("llm", answered(86_400_000 * MS), notes=["no key"])
    assert waterfall.notes == ["no key", OTHER_CLOCK]
    prefill = one(waterfall, "prefill, first token")
    assert prefill.seconds == pytest.approx(0.025), "what one clock measures does not change"
    assert prefill.begin == pytest.approx(0.019), "4 ms later than it was: the answer's way back is before it"
    assert waterfall.moved == 0


def test_without_triton_s_trace_the_model_s_own_times_remain() -> None:
    waterfall = built("llm", answered(), notes=["no key"])
    found = ms(waterfall)
    assert found["client → server"] == (0, 3)
    assert found["wait for the engine"] == (5, 15)
    assert found["server → client"] == (60, 64)
    assert waterfall.notes == ["no key"]


def test_a_trace_that_lacks_its_ends_is_used_as_far_as_it_goes() -> None:
    times = {name: at for name, at in LLM_TIMES.items() if name in ("REQUEST_START", "QUEUE_START")}
    waterfall = built("llm", answered(), parse(written(entry(1, "llm", times, request_id=ID))))
    assert "queue" not in ms(waterfall)
    assert ms(waterfall)["wait for the engine"] == (5, 15)
    unended = step(1, "embedding", 1 * MS, MS, 5 * MS, parent=0)[:4]  # until COMPUTE_START
    unended[0]["request_id"] = ID
    vector = Exchange(0, [Response(9 * MS, {"embedding": np.zeros((1, 384), np.float32)})])
    waterfall = built("embedding", vector, parse(written(unended)))
    assert ms(waterfall)["queue"] == (1, 2)
    assert ms(waterfall)["server"] == (1, 9)
    assert "lacks its begin or its end" in waterfall.notes[0]


def test_an_answer_from_the_cache_has_neither_queue_nor_engine() -> None:
    own = [
        span("tokenize", 3, 4),
        span("answer of another request", 4, 6),
        span("next tokens", 6, 6),
        span("text", 6, 6, tokens=5),
    ]
    exchange = Exchange(0, [Response(8 * MS, text_outputs("whole", 5, own))])
    waterfall = built("llm", exchange)
    assert ms(waterfall)["from the cache"] == (4, 6)
    assert four_parts(waterfall)["queue"] == 0


def test_with_nothing_known_there_is_but_the_server() -> None:
    waterfall = built("vision", pixels_answer(0, 16 * MS))
    assert ms(waterfall) == {"server": (0, 16)}
    assert "only Triton's trace tells them apart" in waterfall.notes[0]


def heard(spans: list[trace.Span], received: int) -> Exchange:
    outputs = {"committed": np.array([[b" two words"]], object)}
    outputs |= {name: array[None] for name, array in trace.column(spans).items()}
    return Exchange(0, [Response(received, outputs)])


WINDOWS = [
    span("take audio in", 2, 4),
    span("window waits", 4, 5),
    span("window", 5, 25, audio_s=4.0),
    span("take words in", 25, 26),
    span("window", 27, 47, audio_s=1.5),
    span("take words in", 47, 48),
]


def test_windows_of_speech() -> None:
    waterfall = built("speech", heard(WINDOWS, 50 * MS))
    inside = [one.name for one in waterfall.spans if one.place == "speech"]
    assert inside == [
        "find speech in the audio",
        "wait for a thread",
        "recognise 4.0 s",
        "merge the words",
        "recognise 1.5 s",
        "merge the words",
    ]
    assert four_parts(waterfall)["queue"] == pytest.approx(0.001)


def halved(one: trace.Span) -> trace.Span:
    """Its times as if the llm had been asked 25 ms later and been twice as fast."""
    return {name: one[name] // 2 + 25 * MS for name in ("begin", "end")}


def test_the_assistant_hears_and_sees_at_once_and_each_model_tells_its_part() -> None:
    own = [
        span("saw", 2.5, 12),
        span("take audio in", 3, 4, of="heard"),
        span("window", 4, 20, audio_s=2.0, of="heard"),
        span("heard", 2, 22),
        span("text", 50, 50),
        span("answer", 22, 60),
        *({**one, **halved(one), "of": "answer"} for one in OWN),
    ]
    exchange = Exchange(
        0,
        [
            Response(13 * MS, text_outputs("", 0, stage="saw")),
            Response(23 * MS, text_outputs("words", 0, stage="heard")),
            Response(52 * MS, text_outputs("An ", 1, stage="answer")),
            Response(64 * MS, text_outputs("answer", 5, own, stage="answer")),
        ],
    )
    called = {name: at // 4 + 23 * MS for name, at in LLM_TIMES.items()}
    records = parse(
        written(
            entry(1, "assistant", LLM_TIMES, request_id=ID),
            entry(2, "llm", called, request_id=ID),
            entry(3, "llm", LLM_TIMES, request_id="another client's"),
        )
    )
    waterfall = built("assistant", exchange, records)
    tree = [(one.depth, one.place, one.name) for one in waterfall.spans if one.depth in (1, 2)]
    assert tree == [
        (1, "assistant", "queue"),
        (1, "assistant", "hear"),
        (2, "speech", "find speech in the audio"),
        (2, "speech", "recognise 2.0 s"),
        (1, "assistant", "see"),
        (1, "assistant", "answer"),
        (2, "assistant", "prompt, call of llm"),
        (2, "llm", "queue"),
        (2, "llm", "hand over to the model"),
        (2, "llm", "tokenize"),
        (2, "llm", "cache lookup, admission"),
        (2, "llm", "wait for the engine"),
        (2, "llm", "prefill, first token"),
        (2, "llm", "4 more tokens"),
        (1, "assistant", "hand back to Triton"),
    ]
    beside = [one.name for one, yes in zip(waterfall.spans, overlapping(waterfall.spans), strict=True) if yes]
    assert beside == ["hear", "see"]
    assert [(piece.text, piece.made) for piece in waterfall.pieces] == [
        ("", None),
        ("", None),
        ("An ", 0.045),
        ("answer", 0.055),
    ]
    # Without the llm's trace its call begins with the stage.
    fewer = built("assistant", exchange, [one for one in records if one.id != 2])
    names = [one.name for one in fewer.spans]
    assert names.count("queue") == len([one for one in waterfall.spans if one.name == "queue"]) - 1
    assert "prompt, call of llm" in names
