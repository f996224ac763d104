"""Asks one running server, or two in turn, a golden set: rounds over all cases."""

from __future__ import annotations

import asyncio
import hashlib
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone

import numpy as np

from trimodal.client import Client
from trimodal.errors import OperatorError
from trimodal.regress.golden.cases import Case
from trimodal.regress.run.ask import Reply, ask
from trimodal.regress.values import Observation, Record, RecordedAnswer, RecordedRun, Server

_HASHED_BYTES = 4 << 20
_CONTROLS = 10  # a round, when no request is under way

Identify = Callable[[list[tuple[str, str]]], Awaitable[Server]]


@dataclass(frozen=True)
class Pace:
    """How a golden set is asked.

    Attributes:
        repeat: counted requests a case, unless its line says otherwise; one more comes before them.
        concurrency: requests under way at once.
        timeout: seconds for an answer.
    """

    repeat: int = 10
    concurrency: int = 1
    timeout: float = 60.0


@dataclass(frozen=True)
class Side:
    """A server to ask. `identify` says what serves there, for (name, version) of each ready model."""

    client: Client
    identify: Identify


@dataclass
class _Kept:
    """Replies of one case as they come; equal answers are kept once."""

    answers: dict[RecordedAnswer, int] = field(default_factory=dict)
    observations: list[Observation] = field(default_factory=list)

    def add(self, reply: Reply) -> None:
        answer, observation = reply
        index = self.answers.setdefault(answer, len(self.answers))
        update = {"answer": index, "first": not self.observations}
        self.observations.append(observation.model_copy(update=update))


async def run_cases(
    sides: Sequence[Side],
    cases: Sequence[Case],
    pace: Pace,
    tell: Callable[[int, int], None] = lambda done, of: None,
) -> list[RecordedRun]:
    """Asks all cases, `pace.repeat` + 1 times each, on every side; a run a side.

    A case's first request opens connections and fills caches: its times do not count, its answer
    and cache outcome do. Round after round goes over all cases, so that a slow minute of the
    machine harms all of them a little and none of them wholly. Sides are asked the same case one
    after the other, each of them first every other time: such a minute harms all of them alike.

    Args:
        tell: called after each request with how many are done, and of how many.

    Raises:
        OperatorError: a model is missing; names it and who needs it.
        TransportError: the server is not there, or goes away.
    """
    servers = [await _server(side, cases) for side in sides]
    kept = [{case.id: _Kept() for case in cases} for _ in sides]
    rounds = {case.id: 1 + (case.line.repeat or pace.repeat) for case in cases}
    of, done = len(sides) * sum(rounds.values()), 0
    control: list[float] = []
    for number in range(max(rounds.values())):

        async def one(case: Case, turn: int = number) -> None:
            nonlocal done
            for place in range(len(sides)):
                side = (place + turn) % len(sides)
                kept[side][case.id].add(await ask(sides[side].client, case, pace.timeout))
                done += 1
                tell(done, of)

        control += [await _control(sides[0].client) for _ in range(_CONTROLS)]
        await _at_once([case for case in cases if number < rounds[case.id]], one, pace.concurrency)
    runs = []
    for side, server, found in zip(sides, servers, kept, strict=True):
        records = {
            case.id: Record(
                task=case.line.task,
                digest=case.digest,
                answers=await _with_cosines(side.client, case, list(found[case.id].answers), pace.timeout),
                observations=tuple(found[case.id].observations),
            )
            for case in cases
        }
        run = RecordedRun(
            schema_version=1,
            recorded_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            concurrency=pace.concurrency,
            control=tuple(control),
            server=server,
            cases=records,
        )
        runs.append(run)
    return runs


async def _control(client: Client) -> float:
    """Milliseconds of work without any model: a bare round trip, and a hash on this machine."""
    began = time.perf_counter()
    await client.ready()
    hashlib.sha256(bytes(_HASHED_BYTES)).digest()
    return (time.perf_counter() - began) * 1e3


async def _server(side: Side, cases: Sequence[Case]) -> Server:
    """What serves there, if all that the cases need is ready."""
    models = await side.client.models()
    ready = {model.name for model in models}
    for case in cases:
        for model in sorted(case.models - ready):
            raise OperatorError(
                f"the server has no model '{model}' ready, which line {case.number} ({case.id}) needs"
            )
    return await side.identify([(model.name, model.version) for model in models])


async def _at_once(cases: Sequence[Case], work: Callable[[Case], Awaitable[None]], most: int) -> None:
    """Each case once, in their order; the first failure ends the others."""
    left = iter(cases)

    async def worker() -> None:
        for case in left:
            await work(case)

    tasks = [asyncio.ensure_future(worker()) for _ in range(min(most, len(cases)))]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _with_cosines(
    client: Client, case: Case, answers: list[RecordedAnswer], timeout: float
) -> tuple[RecordedAnswer, ...]:
    """Completes the answers with their cosine to `expect.text`, where the case asks for it."""
    if case.expect.similarity_min is None:
        return tuple(answers)
    # After the rounds, so that it disturbs no measured request; an empty text has no vector.
    texts = [answer.text for answer in answers if answer.text.strip() and not answer.error]
    reference, *vectors = await client.embed([case.expect.text or "", *texts], timeout=timeout)
    of_texts = dict(zip(texts, vectors, strict=True))
    found = []
    for answer in answers:
        vector = np.asarray(answer.vector, np.float32) if answer.vector else of_texts.get(answer.text)
        cosine = math.nan if vector is None else float(reference @ vector)
        found.append(
            answer.model_copy(update={"cosine": round(cosine, 4) if math.isfinite(cosine) else None})
        )
    return tuple(found)
