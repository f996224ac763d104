"""Sends many requests to one stack, and looks after it: right answers meanwhile, nothing lost at the end."""

from __future__ import annotations

import asyncio
import contextlib
import math
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.served import Served
from tests.e2e.bad_input.server import counts
from tests.e2e.fakes import MODELS
from tests.fuzz.served import good
from tests.fuzz.served.generate import request
from tests.fuzz.served.judge import Judge
from tests.fuzz.served.wire import Stack, Wire
from tests.soak import processes

AT_ONCE = 12
LOOK_EVERY = 1000  # requests
IDLE_S = 90.0  # a stream that nobody ends is dropped after 60 s
# What a process may have more at the end than after the first thousand requests.
MOST_DESCRIPTORS, MOST_GROWTH_MIB = 40, 150


@dataclass(frozen=True)
class Usage:
    """What one process holds: descriptors and MiB of memory."""

    name: str
    descriptors: int
    memory: float


async def fuzz(
    stack: Stack,
    first: int,
    count: int,
    judge: Judge,
    pid: int,
    held: dict[int, Usage] | None = None,
    until: float = math.inf,
) -> None:
    """Sends requests `first` … `first + count - 1`, with a look at the stack after every thousand.

    Args:
        pid: of the stack's first process; none below it may be lost.
        held: filled with what each process holds after the first look.
        until: of the monotonic clock; no thousand begins after it.

    Raises:
        AssertionError: a sound request was answered wrongly, or a process was lost.
    """
    wire = Wire(stack)
    try:
        right = await good.answers(wire)
        alive = usage(pid)
        for begin in range(first, first + count, LOOK_EVERY):
            if time.monotonic() > until:
                return
            numbers = iter(range(begin, min(begin + LOOK_EVERY, first + count)))
            await asyncio.gather(*(_worker(wire, numbers, judge) for _ in range(AT_ONCE)))
            await good.end_streams(wire)
            now, left = await good.answers(wire), usage(pid)
            if now != right:
                raise AssertionError(f"after request {begin}: {now}, at first {right}")
            if lost := [one.name for number, one in alive.items() if number not in left]:
                raise AssertionError(f"after request {begin}: lost {lost}")
            if held is not None and not held:
                held |= left
            print(f"{sum(judge.answers.values())} requests, {len(judge.findings)} findings", flush=True)
    finally:
        await wire.aclose()


async def _worker(wire: Wire, numbers: Iterator[int], judge: Judge) -> None:
    for number in numbers:
        asked = request(number)
        judge.running[number] = asked.about
        answer = await asked.send(wire)
        del judge.running[number]
        judge.judge(number, asked.surface, answer, asked.about)


def idle(metrics: str) -> dict[str, float]:
    """What is not zero of the gauges that are zero on an idle server; waits for it."""
    until = time.monotonic() + IDLE_S
    while left := {name: value for name, value in counts(metrics).items() if value}:
        if time.monotonic() > until:
            return left
        time.sleep(0.5)
    return {}


def usage(pid: int) -> dict[int, Usage]:
    """What the process and all below it hold, by pid."""
    found = {}
    for one, name in processes.tree(pid):
        if held := processes.figures(one):
            found[one] = Usage(name, int(held["descriptors"]), held["memory"])
    return found


def _stack(served: Served) -> Stack:
    ports = (served.gateway_port, served.grpc_port, served.http_port, served.metrics_port)
    return Stack(*(f"127.0.0.1:{port}" for port in ports))


def main(count: int, first: int, seconds: float) -> int:
    """Runs all of it on a stack of its own and prints what came of it; returns 1 after a finding."""
    judge = Judge()
    before: dict[int, Usage] = {}
    with tempfile.TemporaryDirectory(prefix="trimodal-fuzz-") as folder, contextlib.ExitStack() as stack:
        served = Served(Path(folder), models=MODELS, restart=False)
        stack.callback(served.kill)  # also after Ctrl-C
        begun = time.monotonic()
        try:
            asyncio.run(
                fuzz(_stack(served), first, count, judge, served.process.pid, before, begun + seconds)
            )
        except Exception as error:
            judge.findings.append(f"{type(error).__name__}: {error}")
            judge.findings += [
                f"under way then: request {number} {about}" for number, about in judge.running.items()
            ]
        taken = time.monotonic() - begun
        try:
            if left := idle(f"127.0.0.1:{served.metrics_port}"):
                judge.findings.append(f"not zero on an idle server: {left}")
        except OSError as error:
            judge.findings.append(f"the server is gone: {error}")
        after = usage(served.process.pid)
    sent = sum(judge.answers.values())
    last = first + sent - 1
    print(f"{sent} requests, numbers {first} to {last}, in {taken:.0f} s: {sent / taken:.0f} a second")
    for name, number in sorted(judge.answers.items()):
        print(f"  {number:7} {name}")
    for one, held in before.items():
        now = after.get(one, Usage(held.name, 0, 0))
        print(
            f"  {held.name:60} descriptors {held.descriptors} -> {now.descriptors}, "
            f"memory {held.memory:.0f} -> {now.memory:.0f} MiB"
        )
        if (
            now.descriptors - held.descriptors > MOST_DESCRIPTORS
            or now.memory - held.memory > MOST_GROWTH_MIB
        ):
            judge.findings.append(f"{held.name} grew: {held} -> {now}")
    print(f"findings: {len(judge.findings)}")
    for finding in judge.findings[:40]:
        print(f"  {finding[:3000]}")
    return int(bool(judge.findings))
