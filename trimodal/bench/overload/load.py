"""Sends open-loop load: requests go out when a Poisson process says so, however many are unanswered.

A closed loop asks less as soon as the server slows down, and so hides what it measures.
Here every time counts from the moment at which a request was due, not from when it was
sent, so that a client that fell behind makes figures worse, never better.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from trimodal.client.errors import Timeout
from trimodal.client.streams.answer import AnswerStream
from trimodal.errors import TrimodalError, Unavailable

# open: under way · answered: whole · refused: UNAVAILABLE at once · expired: UNAVAILABLE after a wait
# failed: any other error · gave_up: the client's patience or the level ended · unsent: too many were open
Outcome = Literal["open", "answered", "refused", "expired", "failed", "gave_up", "unsent"]

_EXPIRED = "cannot be kept any more"  # the server's words for a refusal after a wait in its queue

_LEAD_S = 0.05  # until the first request is due
_LOOK_S = 0.05  # how often it is looked, at the end, who can still make it


@dataclass(frozen=True)
class Asked:
    """One request and when it is due, in seconds after its level's begin.

    Attributes:
        ttft_bound: seconds; without any text by then the request has failed. inf: no such bound.
    """

    at: float
    tier: str
    prompt: str
    max_tokens: int
    stop: str = ""
    ttft_bound: float = math.inf


@dataclass
class Result:
    """What one request came to. Seconds, from when it was due where nothing else is said; nan: never.

    Attributes:
        lag: until it was really sent.
        ttft: until the first text, or the end of an answer without any.
        gap: the longest between two deltas; 0 with less than two.
        total: until it was over.
        predicted: TTFT as the server foresaw it at admission, from when it was sent.
        retry_after: what a refusal told.
    """

    asked: Asked
    outcome: Outcome = "open"
    lag: float = math.nan
    ttft: float = math.nan
    gap: float = 0.0
    total: float = math.nan
    predicted: float = math.nan
    retry_after: float = math.nan
    error: str = ""


Send = Callable[[Asked], AnswerStream]


def poisson(
    rate: float,
    seconds: float,
    mix: Mapping[str, float],
    make: Callable[[float, str, random.Random], Asked],
    seed: int,
) -> Iterator[Asked]:
    """Arrivals of a Poisson process, the same for the same seed.

    Args:
        rate: requests a second, on average.
        seconds: how long they arrive.
        mix: tier → weight.
        make: of the time, the tier and a source of chance.
    """
    rng = random.Random(seed)
    tiers, weights = list(mix), list(mix.values())
    at = rng.expovariate(rate)
    while at < seconds:
        yield make(at, rng.choices(tiers, weights)[0], rng)
        at += rng.expovariate(rate)


async def run_load(send: Send, arrivals: Sequence[Asked], *, patience: float, most_open: int) -> list[Result]:
    """Sends every arrival when it is due; their results, in order.

    After the last one it waits for those that are still answered and for those that can still
    meet their bound; the others are cancelled.

    Args:
        send: gives the stream of one request's answer. It ends by itself, at the latest, some time
            after `patience`: a client of a real user gives up as well.
        patience: seconds that the end of the level waits for answers.
        most_open: requests that may be open together; more are `unsent`, which the figures must tell.
    """
    results: list[Result] = []
    faults: list[BaseException] = []  # of this module, not of a request
    tasks: dict[asyncio.Task[None], Result] = {}

    def ended(task: asyncio.Task[None]) -> None:
        tasks.pop(task, None)
        if not task.cancelled() and (fault := task.exception()):
            faults.append(fault)

    began = time.perf_counter() + _LEAD_S
    try:
        for asked in arrivals:
            # Sleeps even when it is late already: without a pause no answer would be read.
            await asyncio.sleep(max(0.0, began + asked.at - time.perf_counter()))
            result = Result(asked)
            results.append(result)
            if len(tasks) >= most_open:
                result.outcome = "unsent"
                continue
            task = asyncio.create_task(_follow(send, result, began + asked.at))
            tasks[task] = result
            task.add_done_callback(ended)
        await _settle(tasks, began, time.perf_counter() + patience)
    finally:
        for task in tasks:
            task.cancel()
    if faults:
        raise faults[0]
    return results


async def _settle(tasks: dict[asyncio.Task[None], Result], began: float, until: float) -> None:
    """Waits for the rest; ends at once what has no text and is beyond its bound, and all at `until`."""
    while tasks:
        now = time.perf_counter()
        for task, result in tasks.items():
            late = math.isnan(result.ttft) and now > began + result.asked.at + result.asked.ttft_bound
            if late or now > until:
                task.cancel()
        await asyncio.wait(list(tasks), timeout=_LOOK_S)


async def _follow(send: Send, result: Result, due: float) -> None:
    """One request from its sending to its end."""
    stream = send(result.asked)
    result.lag = time.perf_counter() - due
    last = math.nan
    try:
        async for _ in stream:
            now = time.perf_counter()
            if math.isnan(last):
                result.ttft = now - due
            else:
                result.gap = max(result.gap, now - last)
            last = now
        result.outcome = "answered"
        result.predicted = stream.note.predicted_ttft_ms / 1e3
    except Unavailable as error:
        result.outcome = "expired" if _EXPIRED in str(error) else "refused"
        result.error = str(error)
        if error.retry_after_s is not None:
            result.retry_after = error.retry_after_s
    except (Timeout, asyncio.CancelledError):
        # Only `_settle` cancels. A task of thousands that ends in silence is what is wanted.
        result.outcome = "gave_up"
    except TrimodalError as error:
        result.outcome, result.error = "failed", f"{type(error).__name__}: {error}"
    finally:
        stream.cancel()
        result.total = time.perf_counter() - due
