"""Sends many requests to one stack, and looks after it: right answers meanwhile, nothing lost at the end."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.bad_input.server import counts
from tests.e2e.fakes import MODELS, changes
from tests.fuzz.served import good
from tests.fuzz.served.generate import request
from tests.fuzz.served.judge import Judge
from tests.fuzz.served.wire import Stack, Wire
from trimodal.server import ports

AT_ONCE = 12
LOOK_EVERY = 1000  # requests
READY_S, IDLE_S = 120.0, 90.0  # a stream that nobody ends is dropped after 60 s
# What a process may have more at the end than after the first thousand requests.
MOST_DESCRIPTORS, MOST_GROWTH = 40, 150 << 20


@dataclass(frozen=True)
class Usage:
    """What one process holds: descriptors and bytes of memory."""

    name: str
    descriptors: int
    memory: int


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
    found, pending = {}, [pid]
    while pending:
        one = pending.pop()
        with contextlib.suppress(OSError):
            directory = Path(f"/proc/{one}")
            line = (directory / "cmdline").read_bytes().split(b"\0")
            name = " ".join(Path(part.decode(errors="replace")).name for part in line[:8] if part)[:60]
            pages = int((directory / "statm").read_text().split()[1])
            descriptors = len(list((directory / "fd").iterdir()))
            found[one] = Usage(name, descriptors, pages * os.sysconf("SC_PAGE_SIZE"))
            pending += map(int, (directory / "task" / str(one) / "children").read_text().split())
            for task in (directory / "task").iterdir():
                if task.name != str(one):
                    pending += map(int, (task / "children").read_text().split())
    return found


@contextlib.contextmanager
def served() -> Iterator[tuple[Stack, int]]:
    """`trimodal serve --gateway` on fake engines and free ports, and its pid."""
    flags = ("--http-port", "--grpc-port", "--metrics-port", "--health-port", "--gateway-port")
    chosen = ports.choose("127.0.0.1", dict.fromkeys(flags, 0))
    with tempfile.TemporaryDirectory(prefix="trimodal-fuzz-") as folder:
        command = [sys.executable, "-m", "trimodal.cli.app", "serve", "--gateway"]
        command += [part for flag, port in chosen.items() for part in (flag, str(port))]
        command += [part for model in MODELS for part in ("--model", model)]
        for model, values in changes(Path(folder)).items():
            command += [part for name, one in values.items() for part in ("--set", f"{model}.{name}={one}")]
        with open(Path(folder) / "serve.log", "w+b") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
            http, grpc, metrics, _, gateway = (f"127.0.0.1:{port}" for port in chosen.values())
            try:
                _wait(process, f"http://{gateway}/ready", Path(log.name))
                yield Stack(gateway, grpc, http, metrics), process.pid
            finally:
                process.terminate()
                try:
                    process.wait(60)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait(60)


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    until = time.monotonic() + READY_S
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5):
            return
        time.sleep(0.2)
    raise RuntimeError(f"the stack did not start: {log.read_text(errors='replace')[-2000:]}")


def main(count: int, first: int, seconds: float) -> int:
    """Runs all of it on a stack of its own and prints what came of it; returns 1 after a finding."""
    judge = Judge()
    before: dict[int, Usage] = {}
    with served() as (stack, pid):
        begun = time.monotonic()
        try:
            asyncio.run(fuzz(stack, first, count, judge, pid, before, begun + seconds))
        except Exception as error:
            judge.findings.append(f"{type(error).__name__}: {error}")
            judge.findings += [
                f"under way then: request {number} {about}" for number, about in judge.running.items()
            ]
        taken = time.monotonic() - begun
        try:
            if left := idle(stack.metrics):
                judge.findings.append(f"not zero on an idle server: {left}")
        except OSError as error:
            judge.findings.append(f"the server is gone: {error}")
        after = usage(pid)
    sent = sum(judge.answers.values())
    last = first + sent - 1
    print(f"{sent} requests, numbers {first} to {last}, in {taken:.0f} s: {sent / taken:.0f} a second")
    for name, number in sorted(judge.answers.items()):
        print(f"  {number:7} {name}")
    for one, held in before.items():
        now = after.get(one, Usage(held.name, 0, 0))
        print(
            f"  {held.name:60} descriptors {held.descriptors} -> {now.descriptors}, "
            f"memory {held.memory >> 20} -> {now.memory >> 20} MiB"
        )
        if now.descriptors - held.descriptors > MOST_DESCRIPTORS or now.memory - held.memory > MOST_GROWTH:
            judge.findings.append(f"{held.name} grew: {held} -> {now}")
    print(f"findings: {len(judge.findings)}")
    for finding in judge.findings[:40]:
        print(f"  {finding[:3000]}")
    return int(bool(judge.findings))
