"""Serves this repository's models under mixed load and looks whether anything grows: `scripts/soak`.

The exit status is 1 when a series is not flat or anything ended as it should not, else 0.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

from rich.console import Console

from tests.e2e import fakes
from tests.soak.load import kinds, live_streams
from tests.soak.run import Server, Soak, soak
from tests.soak.show import Findings
from trimodal.bench.report.console import print_table
from trimodal.bench.report.files import write_json
from trimodal.bench.report.html import write_html
from trimodal.bench.targets.http import HttpLlm
from trimodal.bench.targets.questions import Listed
from trimodal.client import Client
from trimodal.errors import OperatorError
from trimodal.server import ports

READY_S = 300.0
FLAGS = ("--http-port", "--grpc-port", "--metrics-port", "--health-port", "--gateway-port")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="scripts/soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=1.0, help="times the usual load, but for live speech")
    parser.add_argument("--gateway", action="store_true", help="with OpenAI's API in front, and load on it")
    parser.add_argument("--fake", action="store_true", help="fake engines: the serving path alone")
    parser.add_argument("--json", type=Path, help="file for figures and series")
    parser.add_argument("--html", type=Path, help="file for tables and plots")
    parser.add_argument("--log", type=Path, help="file for the server's log; default: not kept")
    chosen = parser.parse_args(arguments)
    console = Console(width=160)
    with serving(fake=chosen.fake, gateway=chosen.gateway, log=chosen.log) as (server, gateway):
        console.print(f"soak: {chosen.minutes:g} min, process {server.launcher}, {server.grpc}")
        findings = asyncio.run(_run(server, gateway, chosen))
    if chosen.json:
        write_json(chosen.json, findings.plain())
    if chosen.html:
        write_html(chosen.html, findings.report())
    for table in (findings.table(), findings.requests()):
        print_table(table, console)
    for fault in findings.faults:
        console.print(f"✗ {fault}", markup=False, soft_wrap=True)
    return 1 if findings.faults else 0


async def _run(server: Server, gateway: str, chosen: argparse.Namespace) -> Findings:
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client(server.grpc))
        http = HttpLlm(f"{gateway}/v1", Listed([])) if gateway else None
        if http:
            stack.push_async_callback(http.aclose)
        asked, live = kinds(client, http, fake=chosen.fake), live_streams(client, fake=chosen.fake)
        soaked: Soak = await soak(server, asked, live, chosen.minutes, chosen.rate)
        return Findings(soaked, [*asked, live])


@contextmanager
def serving(*, fake: bool, gateway: bool, log: Path | None = None) -> Iterator[tuple[Server, str]]:
    """`trimodal serve` in a process of its own, the answer cache on; and the gateway's address, if any.

    Raises: OperatorError: it does not get ready.
    """
    chosen = ports.choose("127.0.0.1", dict.fromkeys(FLAGS, 0))
    _, grpc, metrics, health, front = (f"127.0.0.1:{port}" for port in chosen.values())
    key = secrets.token_urlsafe(16)
    with tempfile.TemporaryDirectory(prefix="trimodal-soak-") as folder:
        changes = fakes.changes(Path(folder)) if fake else {"llm": {}}
        changes["llm"] |= {"cache": "exact", "cache_store": f"{folder}/answers.sqlite"}
        command = [sys.executable, "-m", "trimodal.cli.app", "serve"]
        command += ["--log", str(log or f"{folder}/server.log")]
        command += [part for flag, port in chosen.items() for part in (flag, str(port))]
        command += ["--gateway"] if gateway else []
        for model, parameters in changes.items():
            command += [part for name, to in parameters.items() for part in ("--set", f"{model}.{name}={to}")]
        environment = {**os.environ, "TRIMODAL_OPERATOR_KEY": key}
        with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
            try:
                _wait_ready(process, health)
                yield Server(process.pid, grpc, metrics, key), f"http://{front}" if gateway else ""
            finally:
                process.terminate()
                process.wait(60.0)


def _wait_ready(process: subprocess.Popen[bytes], health: str) -> None:
    until = time.monotonic() + READY_S
    while time.monotonic() < until and process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://{health}/ready", timeout=2.0):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise OperatorError("trimodal serve does not get ready: what it says is above")


if __name__ == "__main__":
    sys.exit(main())
