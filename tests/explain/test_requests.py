import wave
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from tests.explain.recorded import text_outputs
from trimodal.errors import InvalidArgument
from trimodal.explain.requests import Kind, Question, answer_of, make, traced


@pytest.mark.parametrize("kind", get_args(Kind))
async def test_every_kind_has_a_request_of_its_own_and_the_warm_up_has_another_id(kind) -> None:
    asked, first = await make(Question(kind)), await make(Question(kind), warm_up=True)
    assert asked.request.model == kind
    assert asked.request.inputs
    assert asked.request.id != first.request.id
    assert "trace" not in asked.request.parameters
    told = traced(asked.request)
    assert told.parameters == {**asked.request.parameters, "trace": True}
    assert told.id == asked.request.id


@pytest.mark.parametrize("kind", ["llm", "assistant"])
async def test_a_warm_up_leaves_the_prompt_out_of_every_cache(kind) -> None:
    asked, first = (
        await make(Question(kind, "a question")),
        await make(Question(kind, "a question"), warm_up=True),
    )
    assert asked.request.inputs["text_input"][0] == b"a question"
    assert b"a question" not in first.request.inputs["text_input"][0]


@pytest.mark.parametrize(
    ("question", "told"),
    [
        (Question("llm", image=Path("a.png")), "--image: llm takes none"),
        (Question("vision", audio=Path("a.wav")), "--audio: vision takes none"),
        (Question("speech", "words"), "a text is given: speech takes none"),
        (Question("vision", image=Path("/no/such.png")), "--image /no/such.png: no such file"),
    ],
)
async def test_what_a_kind_does_not_take_is_refused(question, told) -> None:
    with pytest.raises(InvalidArgument, match=told):
        await make(question)


async def test_a_recording_goes_in_one_piece_of_at_most_half_a_minute(tmp_path) -> None:
    with wave.open(str(tmp_path / "long.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(bytes(2 * 16_000 * 40))
    asked = await make(Question("speech", audio=tmp_path / "long.wav"))
    (samples,) = asked.request.inputs.values()
    assert samples.shape == (1, 30 * 16_000)
    flags = {name: asked.request.parameters[name] for name in ("sequence_start", "sequence_end")}
    assert flags == {"sequence_start": True, "sequence_end": True}
    assert asked.words == "long.wav, 30.0 s, in one piece"


def test_what_came_in_words() -> None:
    pieces = [text_outputs("\x1b[2Ja", 1), text_outputs("\nb" * 99, 2)]
    assert answer_of("llm", pieces).startswith("“[2Ja b b")
    assert len(answer_of("llm", pieces)) == 62
    heard = [text_outputs("what was said", 0, stage="heard"), text_outputs("yes", 1, stage="answer")]
    assert answer_of("assistant", heard) == "“yes”"
    assert (
        answer_of("embedding", [{"embedding": np.zeros((1, 384), np.float32)}]) == "a vector of 384 numbers"
    )
    assert answer_of("speech", [{"committed": np.array([[b" a b"]], object)}]) == "“a b”"
