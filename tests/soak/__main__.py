"""Serves this repository's models under mixed load and looks whether anything grows: `scripts/ci/soak`.

The exit status is 1 when a series is not flat or anything ended as it should not, else 0.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

from rich.console import Console

from tests.chaos.served import Gone, Served
from tests.soak.load import kinds, live_streams
from tests.soak.run import Server, Soak, soak
from tests.soak.show import Findings
from trimodal.bench.report import write_json
from trimodal.bench.targets.http import HttpLlm
from trimodal.bench.targets.questions import listed
from trimodal.client import Client
from trimodal.errors import OperatorError
from trimodal.report.console import print_table


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="scripts/ci/soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=1.0, help="times the usual load, but for live speech")
    parser.add_argument("--fake", action="store_true", help="fake engines: the serving path alone")
    parser.add_argument("--json", type=Path, help="file for figures and series")
    parser.add_argument("--log", type=Path, help="file for the server's log; default: not kept")
    chosen = parser.parse_args(arguments)
    console = Console(width=160)
    with serving(fake=chosen.fake, log=chosen.log) as (server, gateway):
        console.print(f"soak: {chosen.minutes:g} min, process {server.launcher}, {server.grpc}")
        findings = asyncio.run(_run(server, gateway, chosen))
    if chosen.json:
        write_json(chosen.json, findings.plain())
    print_table(findings.table(), console)
    for fault in findings.faults:
        console.print(f"✗ {fault}", markup=False, soft_wrap=True)
    return 1 if findings.faults else 0


async def _run(server: Server, gateway: str, chosen: argparse.Namespace) -> Findings:
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client(server.grpc))
        http = HttpLlm(f"{gateway}/v1", listed([]))
        stack.push_async_callback(http.aclose)
        asked, live = kinds(client, http, fake=chosen.fake), live_streams(client, fake=chosen.fake)
        soaked: Soak = await soak(server, asked, live, chosen.minutes, chosen.rate)
        return Findings(soaked, [*asked, live])


@contextmanager
def serving(*, fake: bool, log: Path | None = None) -> Iterator[tuple[Server, str]]:
    """A server of its own, the answer cache on, and its gateway's address.

    Raises: OperatorError: it does not get ready.
    """
    key = secrets.token_urlsafe(16)
    with tempfile.TemporaryDirectory(prefix="trimodal-soak-") as folder:
        try:
            served = Served(
                Path(folder),
                changes={"llm": {"cache": "exact", "cache_store": f"{folder}/answers.sqlite"}},
                environment={"TRIMODAL_OPERATOR_KEY": key},
                real=not fake,
                restart=False,
            )
        except Gone as error:
            raise OperatorError(f"trimodal serve does not get ready: {error}") from None
        try:
            grpc, metrics = (f"127.0.0.1:{port}" for port in (served.grpc_port, served.metrics_port))
            yield Server(served.process.pid, grpc, metrics, key), served.gateway
        finally:
            served.stop()
            if log:
                shutil.copy(served.disk / "log", log)


if __name__ == "__main__":
    sys.exit(main())
