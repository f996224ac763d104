"""Asks a server one case once: the answer and how long it took. A refusal is an answer, too.

Times are the client's: send to first text (TTFT), time per output token, and the whole.
Samples of a recording are read before, so `total` holds no reading of files.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar, cast

from trimodal.client import Answer, AskStream, Client, Message, Prediction, Timeout
from trimodal.client.options import Options
from trimodal.errors import InternalError, RequestError
from trimodal.regress.golden.cases import Case
from trimodal.regress.golden.schema import AssistantInput, EmbeddingInput, LlmInput, SpeechInput, VisionInput
from trimodal.regress.values import Observation, RecordedAnswer

Reply = tuple[RecordedAnswer, Observation]
Values = TypeVar("Values", bound=Sequence[float])
T = TypeVar("T")


async def ask(client: Client, case: Case, timeout: float) -> Reply:
    """Asks once; returns the answer and its observation, whose `answer` and `first` are not known here.

    Args:
        timeout: seconds for the whole answer (speech: for each chunk's).

    Raises:
        ConnectError, ConnectionLost, ProtocolError: the server is not there any more, or is none of ours.
    """
    began = time.perf_counter()
    try:
        return await TASKS[case.line.task](client, case, timeout)
    except RequestError as error:
        answer = RecordedAnswer(text=str(error), error=error.code)
    except Timeout as error:
        answer = RecordedAnswer(text=str(error), error="TIMEOUT")
    return answer, Observation(answer=0, total=_ms_since(began))


async def _llm(client: Client, case: Case, timeout: float) -> Reply:
    asked = cast(LlmInput, case.line.input)
    messages = None
    if asked.messages is not None:
        messages = [Message(role=turn.role, content=turn.content) for turn in asked.messages]
    options = cast(Options, asked.options)
    answer = await client.complete(asked.prompt, messages=messages, timeout=timeout, **options)
    return RecordedAnswer(text=answer.text, finish_reason=answer.finish_reason), observed(answer)


def observed(answer: Answer | AskStream) -> Observation:
    """Makes the observation of a generated answer."""
    timing, usage, note = answer.timing, answer.usage, answer.note
    return Observation(
        answer=0,
        ttft=None if timing.ttft is None else timing.ttft * 1e3,
        tpot=None if timing.tpot is None else timing.tpot * 1e3,
        total=timing.latency * 1e3,
        prompt_tokens=usage.prompt,
        cached_tokens=usage.cached,
        tokens=usage.completion,
        cache=note.cache,
        similarity=round(note.similarity, 4) if math.isfinite(note.similarity) else 0.0,
    )


async def _vision(client: Client, case: Case, timeout: float) -> Reply:
    asked = cast(VisionInput, case.line.input)
    (row,), observation = await _timed(
        client.classify([case.image or b""], top_k=asked.top_k, timeout=timeout)
    )
    return RecordedAnswer(labels=_labels(row)), observation


async def _speech(client: Client, case: Case, timeout: float) -> Reply:
    asked = cast(SpeechInput, case.line.input)
    assert case.audio is not None
    given: dict[str, Any] = asked.model_dump(exclude={"audio"}, exclude_none=True)
    heard, observation = await _timed(client.transcribe(case.audio, timeout=timeout, **given))
    return RecordedAnswer(text=heard.text.strip()), observation


async def _embedding(client: Client, case: Case, timeout: float) -> Reply:
    asked = cast(EmbeddingInput, case.line.input)
    (vector,), observation = await _timed(client.embed([asked.text], timeout=timeout))
    numbers = tuple(round(float(value), 5) for value in vector)
    return RecordedAnswer(vector=_finite("the vector", numbers)), observation


async def _assistant(client: Client, case: Case, timeout: float) -> Reply:
    asked = cast(AssistantInput, case.line.input)
    options = cast(Options, asked.options)
    async with client.ask(
        asked.text, image=case.image, audio=case.audio, timeout=timeout, **options
    ) as stream:
        async for _ in stream:
            pass
    answer = RecordedAnswer(
        text=stream.text,
        heard=stream.heard.strip(),
        finish_reason=stream.finish_reason,
        labels=_labels(stream.labels),
    )
    stages = {name: stream.stages.get(name) for name in ("heard", "saw")}
    return answer, observed(stream).model_copy(update=stages)


async def _timed(answer: Awaitable[T]) -> tuple[T, Observation]:
    began = time.perf_counter()
    return await answer, Observation(answer=0, total=_ms_since(began))


def _labels(row: Sequence[Prediction]) -> tuple[tuple[str, float], ...]:
    _finite("a score", [one.score for one in row])
    return tuple((one.label, round(one.score, 4)) for one in row)


def _finite(what: str, numbers: Values) -> Values:
    """Checks that the numbers are finite; others cannot be stored or compared."""
    if not all(map(math.isfinite, numbers)):
        raise InternalError(f"{what} of the answer is not finite")
    return numbers


def _ms_since(began: float) -> float:
    return (time.perf_counter() - began) * 1e3


TASKS: dict[str, Callable[[Client, Case, float], Awaitable[Reply]]] = {
    "llm": _llm,
    "vision": _vision,
    "speech": _speech,
    "embedding": _embedding,
    "assistant": _assistant,
}
