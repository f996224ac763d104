"""Runs a gateway in a process of its own, and reads the processor time of a process."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from trimodal.errors import ServerError

_LIMIT_S = 30.0
_TICKS = os.sysconf("SC_CLK_TCK")


@asynccontextmanager
async def running_gateway(upstream: str, port: int = 0) -> AsyncIterator[tuple[int, int]]:
    """A gateway on this port, 0 for a free one: port and process id. Raises: ServerError."""
    command = [sys.executable, "-m", "trimodal.cli.app", "gateway", "--port", str(port)]
    with subprocess.Popen([*command, "--upstream", upstream], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            line = await asyncio.wait_for(asyncio.to_thread(process.stdout.readline), _LIMIT_S)
            if not line:
                raise ServerError("the gateway does not start")
            port = int(line.rsplit(":", 1)[1].split("/")[0])
            await _listens(port)
            yield port, process.pid
        finally:
            process.terminate()
            process.wait(_LIMIT_S)


async def _listens(port: int) -> None:
    """Waits until it serves: it has the port before."""
    until = time.monotonic() + _LIMIT_S
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            if time.monotonic() > until:
                raise ServerError("the gateway does not listen") from None
            await asyncio.sleep(0.05)
        else:
            writer.close()
            return


def cpu_s(pid: int) -> float:
    """Processor seconds that a process has used. Raises: ServerError where it is gone."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        raise ServerError(f"process {pid} is gone") from None
    return (int(fields[11]) + int(fields[12])) / _TICKS
