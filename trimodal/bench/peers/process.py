"""Starts a peer in a process of its own, and ends it: also when the bench fails or is interrupted."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from trimodal.bench.peers.client import Peer
from trimodal.errors import OperatorError, ServerError

PeerName = Literal["", "fastapi"]
Task = Literal["llm", "vision", "speech"]
# Importable name → what pip calls it.
EVERY = {"fastapi": "fastapi", "uvicorn": "uvicorn", "httpx": "httpx"}
LIBRARIES: Mapping[Task, Mapping[str, str]] = {
    "llm": {**EVERY, "torch": "torch", "transformers": "transformers"},
    "vision": {**EVERY, "torch": "torch", "PIL": "pillow"},
    "speech": {**EVERY, "faster_whisper": "faster-whisper"},
}
START_S = 300.0  # torch's import and 2 GB of weights from a slow disk
END_S = 5.0


def check_libraries(task: Task) -> None:
    """Raises: OperatorError: one is not installed; says how to get it."""
    missing = [package for name, package in LIBRARIES[task].items() if find_spec(name) is None]
    if missing:
        needed = " ".join(missing)
        raise OperatorError(f"--peer fastapi needs {', '.join(missing)}: pip install {needed}")


@asynccontextmanager
async def running_peer(name: str, module: str, options: Mapping[str, Any]) -> AsyncIterator[Peer]:
    """A peer that answers on a free port of 127.0.0.1, and is gone after the block.

    Args:
        name: for sentences about it.
        module: whose `make_app(**options)` is served; the options are carried as JSON.

    Raises:
        ServerError: it does not start; the sentence ends with what it wrote last.
    """
    with tempfile.NamedTemporaryFile(prefix="trimodal-peer-", suffix=".log") as log:
        command = [sys.executable, "-m", "trimodal.bench.peers", module, json.dumps(options)]
        # A session of its own: Ctrl-C reaches the bench alone, which then ends the peer.
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True
        )
        try:
            port = await _port(process, name, Path(log.name))
            async with Peer(name, f"http://127.0.0.1:{port}", lambda: last_line(Path(log.name))) as peer:
                peer.pid = process.pid
                yield peer
        finally:
            end(process)


async def _port(process: subprocess.Popen[bytes], name: str, log: Path) -> int:
    assert process.stdout
    try:
        line = await asyncio.wait_for(asyncio.to_thread(process.stdout.readline), START_S)
    except asyncio.TimeoutError:
        raise ServerError(f"the {name} did not start within {START_S:g} s: {last_line(log)}") from None
    if not line:
        raise ServerError(f"the {name} did not start: {last_line(log)}")
    return int(line)


def last_line(log: Path) -> str:
    """Returns the last line with text of what the peer wrote."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else "it wrote nothing"


def end(process: subprocess.Popen[bytes]) -> None:
    """Ends the process: it leaves when its stdin closes, and is killed when it has not after END_S."""
    assert process.stdin
    assert process.stdout
    process.stdin.close()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()
