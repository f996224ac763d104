"""`trimodal regress`: a golden set against a running server.

Exit code 0: nothing is worse; 1: something is; 2: it could not run, or times could not be judged.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trimodal.cli import common

if TYPE_CHECKING:
    from trimodal.regress.golden.cases import Case
    from trimodal.regress.run.rounds import Pace
    from trimodal.regress.values import Run, Server


def regress(
    golden: Annotated[Path, typer.Argument(help="Cases, one JSON object a line.")],
    against: Annotated[
        str, typer.Option(envvar="TRIMODAL_URL", help="host:port of the gRPC endpoint.")
    ] = common.URL,
    record: Annotated[bool, typer.Option("--record", help="Write the baseline; compare nothing.")] = False,
    baseline: Annotated[
        Path | None, typer.Option(help="The stored run; GOLDEN.baseline.json by default.")
    ] = None,
    versus: Annotated[
        str | None, typer.Option(help="Second server, asked in turn: compare with it, not with a stored run.")
    ] = None,
    repeat: Annotated[
        int, typer.Option(min=1, max=1000, help="Counted requests a case; one comes before them.")
    ] = 10,
    concurrency: Annotated[int, typer.Option(min=1, max=256, help="Requests at once.")] = 1,
    latency_tolerance: Annotated[
        float, typer.Option(min=0, max=100, help="Share by which times may grow.")
    ] = 0.2,
    min_overlap: Annotated[
        float, typer.Option(min=0, max=1, help="Least likeness of a changed answer; 1: none may change.")
    ] = 1.0,
    timeout: Annotated[float, typer.Option(min=0.1, max=86_400, help="For an answer, seconds.")] = 60.0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Ask a server a golden set and compare with a stored run."""
    from rich.console import Console

    from trimodal.errors import TrimodalError
    from trimodal.regress.compare.compare import check, compare, refusals
    from trimodal.regress.compare.findings import Limits
    from trimodal.regress.golden.cases import read_cases
    from trimodal.regress.report import as_data, print_comparison, print_findings
    from trimodal.regress.run.rounds import Pace
    from trimodal.regress.values import baseline_path, check_writable, read_baseline, write_baseline

    if versus is not None and (record or baseline):
        raise typer.BadParameter("--versus needs no baseline: leave out --record and --baseline")
    console = Console(highlight=False, markup=False, stderr=as_json)
    limits = Limits(latency=latency_tolerance, overlap=min_overlap)
    try:
        cases = read_cases(golden)
        path = baseline or baseline_path(golden)
        if record:
            check_writable(path, golden)
        stored = None if record or versus else read_baseline(path)
        urls = [against] if versus is None else [against, versus]
        after, *others = common.run(_ask(urls, cases, Pace(repeat, concurrency, timeout)))
        before = others[0] if others else stored
        if before is None:
            write_baseline(path, after)
            findings = check(cases, after)
            print_findings(findings, console)
            for refusal in refusals(after):
                console.print(f"refused: {refusal}", soft_wrap=True)
            console.print(f"recorded {len(cases)} cases in {path}", soft_wrap=True)
            if as_json:
                typer.echo(json.dumps({"baseline": str(path), "broken": [one.case for one in findings]}))
            raise typer.Exit(1 if findings else 0)
        comparison = compare(cases, before, after, limits)
    except TrimodalError as error:
        typer.echo(f"trimodal: {common.sentence(error)}", err=True)
        raise typer.Exit(2) from None
    if as_json:
        typer.echo(json.dumps(as_data(comparison, before, after), ensure_ascii=False))
    else:
        print_comparison(comparison, before, after, console, versus or "")
    raise typer.Exit(1 if comparison.worse else 2 if comparison.doubtful else 0)


async def _ask(urls: list[str], cases: list[Case], pace: Pace) -> list[Run]:
    from contextlib import AsyncExitStack

    from trimodal.regress.run.rounds import Side, run_cases

    async with AsyncExitStack() as stack:
        sides = []
        for url in urls:
            client = await stack.enter_async_context(common.connect(url, silence=pace.timeout))
            sides.append(Side(client, partial(identify_server, url, timeout=pace.timeout)))
        return await run_cases(sides, cases, pace, _progress())


async def identify_server(url: str, models: list[tuple[str, str]], timeout: float) -> Server:
    """What serves there; tests put another one here."""
    from trimodal.regress.run.identity import identify

    return await identify(url, models, timeout)


def _progress() -> Callable[[int, int], None]:
    """Shows on a terminal how far it is."""
    if not sys.stderr.isatty():
        return lambda done, of: None

    def tell(done: int, of: int) -> None:
        sys.stderr.write(f"\r{done} of {of} requests" + (" " if done < of else "\r\033[K"))
        sys.stderr.flush()

    return tell
