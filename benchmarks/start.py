"""Measures how long a start takes: seconds from the command to the first text of an answer.

    python -m benchmarks.start demo --times 5

`demo` is `trimodal demo`; `serve` is `trimodal serve --gateway` on free ports, and a chat as soon as it says
that it is ready. Beside it what the server says of its own start, which begins when the command is imported.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from statistics import median
from typing import Annotated, Literal

import httpx
import typer
from rich.console import Console

from benchmarks.common import run_command
from benchmarks.tables import make_table
from trimodal.errors import ServerError

PORTS = ("--http-port", "--grpc-port", "--metrics-port", "--health-port", "--gateway-port")
COMMANDS = {"demo": ["demo"], "serve": ["serve", "--gateway", *(f"{port}=0" for port in PORTS)]}
# In what they print: from here on there is text, or may be asked for some.
MARKS = {"demo": r"answer {4}\S", "serve": r"Ready\. "}
OWN = r"ready   after ([\d.]+) s: ([\d.]+) s until tritonserver started, ([\d.]+) s"
QUESTION = {"role": "user", "content": "What is the capital of Japan?"}
CHAT = {"model": "llm", "stream": True, "max_tokens": 20, "messages": [QUESTION]}


def measure(what: str) -> list[float]:
    """Seconds to the first text, and the server's own: in all, until it was started, until all was there."""
    began = time.monotonic()
    command = [sys.executable, "-m", "trimodal.cli.app", *COMMANDS[what]]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout
            printed = ""
            while not re.search(MARKS[what], printed):
                block = os.read(process.stdout.fileno(), 65536)
                if not block:
                    raise ServerError(f"{' '.join(command)} ended:\n{printed}")
                printed += block.decode(errors="replace")
            if what == "serve":
                ask(printed)
            took = time.monotonic() - began
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate()
    own = re.search(OWN, printed)
    assert own
    return [took, *map(float, own.groups())]


def ask(printed: str) -> None:
    """Waits for the first text of an answer of the gateway that `printed` names."""
    found = re.search(r"OpenAI  (http\S+?),? ", printed)
    assert found
    with httpx.stream("POST", f"{found.group(1)}/chat/completions", json=CHAT, timeout=60) as answer:
        for line in answer.iter_lines():
            if re.search(r'"content":"[^"]', line):
                return
    raise ServerError(f"no text came: {answer.status_code}")


def main(what: Literal["demo", "serve"], times: Annotated[int, typer.Option(min=1)] = 5) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background a shell lets it be ignored
    runs = [measure(what) for _ in range(times)]
    table = make_table(f"{what}: seconds", "run|to first text|server|until tritonserver|until models")
    for name, run in [*enumerate(runs, 1), ("median", list(map(median, zip(*runs, strict=True))))]:
        table.add_row(str(name), *(f"{one:.1f}" for one in run))
    Console().print(table)


if __name__ == "__main__":
    run_command(main)
