"""Asks one running server, or two in turn, a golden set: rounds over all cases."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from trimodal.client import Client
from trimodal.errors import OperatorError
from trimodal.regress.ask import ask
from trimodal.regress.cases import Case
from trimodal.regress.values import Observation, Record, RecordedRun, Server


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
                kept[index][case.id].append(await ask(sides[index].client, case, timeout))
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
