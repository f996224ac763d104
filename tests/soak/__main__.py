"""Serves this repository's models under mixed load and looks whether anything grows: `scripts/ci/soak`.

The exit status is 1 when a series is not flat or anything ended as it should not, else 0. With --counts it
sends each kind of requests alone to a server of its own, and shows what every process holds after so many.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from tests.chaos.served import PARTS, Gone, Served
from tests.soak.counts import KINDS, count, table
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
    parser.add_argument("--counts", type=_counts, help="of one kind at a time, such as 500,1000,2000")
    parser.add_argument("--only", default=",".join(KINDS), help=f"kinds of --counts: {', '.join(KINDS)}")
    chosen = parser.parse_args(arguments)
    console = Console(width=160)
    if chosen.counts:
        return _count(chosen, console)
    with serving(fake=chosen.fake, log=chosen.log) as (server, gateway):
        console.print(f"soak: {chosen.minutes:g} min, process {server.launcher}, {server.grpc}")
        findings = asyncio.run(_run(server, gateway, chosen))
    if chosen.json:
        write_json(chosen.json, findings.plain())
    print_table(findings.table(), console)
    for fault in findings.faults:
        console.print(f"✗ {fault}", markup=False, soft_wrap=True)
    return 1 if findings.faults else 0


def _counts(text: str) -> list[int]:
    return [int(one) for one in text.split(",")]


def _count(chosen: argparse.Namespace, console: Console) -> int:
    """Counts each kind on a server of its own; prints what one held as soon as it is known."""
    found = []
    for kind in chosen.only.split(","):
        with serving(
            fake=chosen.fake, log=chosen.log, cache="semantic", models=(*PARTS, "judge", "turn")
        ) as (server, gateway):
            counting = count(server, gateway, kind, chosen.counts, fake=chosen.fake)
            found.append(asyncio.run(counting))
        print_table(table(found[-1:]), console)
        for told, times in found[-1].wrong.items():
            console.print(f"✗ {kind}: {times} × {told}", markup=False, soft_wrap=True)
    if chosen.json:
        write_json(chosen.json, [asdict(one) for one in found])
    return 1 if any(one.wrong for one in found) else 0


async def _run(server: Server, gateway: str, chosen: argparse.Namespace) -> Findings:
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client(server.grpc))
        http = HttpLlm(f"{gateway}/v1", listed([]))
        stack.push_async_callback(http.aclose)
        asked, live = kinds(client, http, fake=chosen.fake), live_streams(client, fake=chosen.fake)
        soaked: Soak = await soak(server, asked, live, chosen.minutes, chosen.rate)
        return Findings(soaked, [*asked, live])


@contextmanager
def serving(
    *, fake: bool, log: Path | None = None, cache: str = "exact", models: Sequence[str] = PARTS
) -> Iterator[tuple[Server, str]]:
    """A server of its own, the answer cache on, and its gateway's address.

    Raises: OperatorError: it does not get ready.
    """
    key = secrets.token_urlsafe(16)
    with tempfile.TemporaryDirectory(prefix="trimodal-soak-") as folder:
        try:
            served = Served(
                Path(folder),
                changes={"llm": {"cache": cache, "cache_store": f"{folder}/answers.sqlite"}},
                environment={"TRIMODAL_OPERATOR_KEY": key},
                models=models,
                real=not fake,
                restart=False,
            )
        except Gone as error:
            raise OperatorError(f"trimodal serve does not get ready: {error}") from None
        try:
            grpc, metrics = (f"127.0.0.1:{port}" for port in (served.grpc_port, served.metrics_port))
            files = served.disk / "log", served.temporary
            yield Server(served.process.pid, grpc, metrics, key, *files), served.gateway
        finally:
            served.stop()
            if log:
                shutil.copy(served.disk / "log", log)


if __name__ == "__main__":
    sys.exit(main())
