"""Asks a server one case once: the answer and how long it took. A refusal is an answer, too.

Times are the client's: send to first text (TTFT), time per output token, and the whole.
Samples of a recording are read before, so `total` holds no reading of files.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import cast

from trimodal.client import Answer, AskStream, Client, Message, Prediction, Timeout
from trimodal.client.options import Options
from trimodal.errors import InternalError, RequestError
from trimodal.regress.cases import Case
from trimodal.regress.schema import AssistantInput, EmbeddingInput, LlmInput, SpeechInput, VisionInput
from trimodal.regress.values import Observation, RecordedAnswer


async def ask(client: Client, case: Case, timeout: float) -> Observation:
    """Asks once.

    Args:
        timeout: seconds for the whole answer (speech: for each chunk's).

    Raises:
        ConnectError, ConnectionLost, ProtocolError: the server is not there any more, or is none of ours.
    """
    began = time.perf_counter()
    try:
        if isinstance(case.line.input, LlmInput):
            return await _llm(client, case.line.input, timeout)
        if isinstance(case.line.input, AssistantInput):
            return await _assistant(client, case, case.line.input, timeout)
        answer = await _answer(client, case, timeout)
    except RequestError as error:
        answer = RecordedAnswer(text=str(error), error=error.code)
    except Timeout as error:
        answer = RecordedAnswer(text=str(error), error="TIMEOUT")
    return Observation(answer=answer, total=(time.perf_counter() - began) * 1e3)


async def _llm(client: Client, given: LlmInput, timeout: float) -> Observation:
    messages = None
    if given.messages is not None:
        messages = [Message(role=turn.role, content=turn.content) for turn in given.messages]
    options = cast(Options, given.options)
    return _generated(await client.complete(given.prompt, messages=messages, timeout=timeout, **options))


async def _assistant(client: Client, case: Case, given: AssistantInput, timeout: float) -> Observation:
    options = cast(Options, given.options)
    async with client.ask(
        given.text, image=case.image, audio=case.audio, timeout=timeout, **options
    ) as stream:
        async for _ in stream:
            pass
    return _generated(stream, _labels(stream.labels))


def _generated(answer: Answer | AskStream, labels: tuple[tuple[str, float], ...] = ()) -> Observation:
    timing = answer.timing
    return Observation(
        answer=RecordedAnswer(text=answer.text, finish_reason=answer.finish_reason, labels=labels),
        ttft=None if timing.ttft is None else timing.ttft * 1e3,
        tpot=None if timing.tpot is None else timing.tpot * 1e3,
        total=timing.latency * 1e3,
        tokens=answer.usage.completion,
        cache=answer.note.cache,
    )


async def _answer(client: Client, case: Case, timeout: float) -> RecordedAnswer:
    """The answer to a case whose only time is the whole."""
    given = case.line.input
    if isinstance(given, VisionInput):
        (row,) = await client.classify([case.image or b""], top_k=given.top_k, timeout=timeout)
        return RecordedAnswer(labels=_labels(row))
    if isinstance(given, SpeechInput):
        assert case.audio is not None
        options = given.model_dump(exclude={"audio"}, exclude_none=True)
        heard = await client.transcribe(case.audio, timeout=timeout, **options)
        return RecordedAnswer(text=heard.text.strip())
    assert isinstance(given, EmbeddingInput)
    (vector,) = await client.embed([given.text], timeout=timeout)
    numbers = tuple(round(float(value), 5) for value in vector)
    _check_finite("the vector", numbers)
    return RecordedAnswer(vector=numbers)


def _labels(row: Sequence[Prediction]) -> tuple[tuple[str, float], ...]:
    _check_finite("a score", [one.score for one in row])
    return tuple((one.label, round(one.score, 4)) for one in row)


def _check_finite(what: str, numbers: Sequence[float]) -> None:
    """Checks that the numbers are finite; others cannot be stored or compared."""
    if not all(map(math.isfinite, numbers)):
        raise InternalError(f"{what} of the answer is not finite")
