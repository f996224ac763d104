"""`trimodal regress`: a golden set against a running server.

Exit code 0: nothing is worse; 1: something is; 2: it could not run.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from trimodal.cli import common

if TYPE_CHECKING:
    from trimodal.regress.cases import Case
    from trimodal.regress.values import RecordedRun


def regress(
    golden: Path = typer.Argument(..., help="Cases, one JSON object a line."),
    against: common.Url = common.URL,
    record: bool = typer.Option(False, "--record", help="Write the baseline; compare nothing."),
    baseline: Path | None = typer.Option(None, help="The stored run; GOLDEN.baseline.json by default."),
    versus: str | None = typer.Option(
        None, help="Second server, asked in turn: compare with it, not with a stored run."
    ),
    repeat: int = typer.Option(10, min=1, max=1000, help="Counted requests a case; one comes before them."),
    latency_tolerance: float = typer.Option(0.2, min=0, max=100, help="Share by which times may grow."),
    min_overlap: float = typer.Option(
        1.0, min=0, max=1, help="Least likeness of a changed answer; 1: none may change."
    ),
    timeout: float = typer.Option(60.0, min=0.1, max=86_400, help="For an answer, seconds."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on stdout."),
) -> None:
    """Ask a server a golden set and compare with a stored run."""
    from rich.console import Console

    from trimodal.regress.cases import read_cases
    from trimodal.regress.compare import check, compare, refusals
    from trimodal.regress.latencies import require_scipy
    from trimodal.regress.report import print_comparison, print_findings
    from trimodal.regress.values import read_baseline, write_baseline

    if versus is not None and (record or baseline):
        raise typer.BadParameter("--versus needs no baseline: leave out --record and --baseline")
    console = Console(highlight=False, markup=False, stderr=as_json)
    with common.one_sentence(code=2):
        cases = read_cases(golden)
        path = baseline or golden.with_name(f"{golden.stem}.baseline.json")
        if record:
            if path.exists() and path.samefile(golden):
                raise typer.BadParameter(f"--baseline {path}: it is the golden set itself")
            common.check_writable("--baseline", path)
        else:
            require_scipy()
        stored = None if record or versus else read_baseline(path)
        urls = [against] if versus is None else [against, versus]
        after, *others = common.run(_ask(urls, cases, repeat, timeout))
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
        comparison = compare(cases, before, after, latency_tolerance, min_overlap)
    if as_json:
        typer.echo(json.dumps({"worse": comparison.worse, **asdict(comparison)}, ensure_ascii=False))
    else:
        print_comparison(comparison, before, after, console, versus or "")
    raise typer.Exit(1 if comparison.worse else 0)


async def _ask(urls: list[str], cases: list[Case], repeat: int, timeout: float) -> list[RecordedRun]:
    from contextlib import AsyncExitStack

    from rich.console import Console

    from trimodal.regress import identity
    from trimodal.regress.rounds import Side, run_cases

    async with AsyncExitStack() as stack:
        sides = []
        for url in urls:
            client = await stack.enter_async_context(common.connect(url, silence=timeout))
            sides.append(Side(client, partial(identity.identify, url, timeout=timeout)))
        status = stack.enter_context(Console(stderr=True).status("asking …"))  # on a terminal only
        return await run_cases(
            sides, cases, repeat, timeout, lambda done, of: status.update(f"{done} of {of} requests")
        )
