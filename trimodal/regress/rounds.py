"""Asks one running server, or two in turn, a golden set: rounds over all cases. A refusal is an answer, too.

Times are the client's: send to first text (TTFT), time per output token, and the whole. Samples of a
recording are read before, so `total` holds no reading of files.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import cast

from trimodal.client import Answer, AskStream, Client, Message, Prediction, Timeout
from trimodal.client.options import Options
from trimodal.errors import InternalError, OperatorError, RequestError
from trimodal.regress.cases import Case
from trimodal.regress.schema import AssistantInput, EmbeddingInput, LlmInput, SpeechInput, VisionInput
from trimodal.regress.values import Observation, Record, RecordedAnswer, RecordedRun, Server


@dataclass(frozen=True)
class Side:
    """A server to ask. `identify` says what serves there, for (name, version) of each ready model."""

    client: Client
    identify: Callable[[list[tuple[str, str]]], Awaitable[Server]]


async def run_cases(
    sides: Sequence[Side],
    cases: Sequence[Case],
    repeat: int,
    timeout: float,
    tell: Callable[[int, int], None] = lambda done, of: None,
) -> list[RecordedRun]:
    """Asks all cases, `repeat` + 1 times each, on every side; a run a side.

    A case's first request opens connections and fills caches: its times do not count, its answer
    and cache outcome do. Round after round goes over all cases, so that a slow minute of the
    machine harms all of them a little and none of them wholly. Sides are asked the same case one
    after the other, each of them first every other time: such a minute harms all of them alike.

    Args:
        timeout: seconds for an answer.
        tell: called after each request with how many are done, and of how many.

    Raises:
        OperatorError: a model is missing; names it and who needs it.
        TransportError: the server is not there, or goes away.
    """
    servers = [await _server(side, cases) for side in sides]
    kept: list[dict[str, list[Observation]]] = [{case.id: [] for case in cases} for _ in sides]
    of, done = len(sides) * len(cases) * (repeat + 1), 0
    for turn in range(repeat + 1):
        for case in cases:
            for place in range(len(sides)):
                index = (place + turn) % len(sides)
                kept[index][case.id].append(await _ask(sides[index].client, case, timeout))
                done += 1
                tell(done, of)
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    runs = []
    for server, found in zip(servers, kept, strict=True):
        records = {
            case.id: Record(task=case.line.task, digest=case.digest, observations=tuple(found[case.id]))
            for case in cases
        }
        runs.append(RecordedRun(schema_version=2, recorded_at=now, server=server, cases=records))
    return runs


async def _server(side: Side, cases: Sequence[Case]) -> Server:
    """What serves there, if all that the cases need is ready."""
    models = await side.client.models()
    ready = {model.name for model in models}
    for case in cases:
        if case.line.task not in ready:
            who = f"line {case.number} ({case.id})"
            raise OperatorError(f"the server has no model '{case.line.task}' ready, which {who} needs")
    return await side.identify([(model.name, model.version) for model in models])


async def _ask(client: Client, case: Case, timeout: float) -> Observation:
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
