"""Measures three servers behind HAProxy (deploy/haproxy/fleet.cfg): python -m trimodal.bench.balancer.

All servers run on this machine, on fake engines with set step times, so that its cores are not the limit: it
shows how the balancer spreads, not what an engine computes.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from trimodal.bench.affinity import Way
from trimodal.bench.balancer import parts
from trimodal.bench.balancer.load import clients
from trimodal.bench.balancer.parts import Disturbed, Served
from trimodal.bench.balancer.proxy import running
from trimodal.bench.balancer.servers import Fleet, fleet
from trimodal.bench.common.closed_loop import milliseconds
from trimodal.errors import OperatorError
from trimodal.report.console import make_table

PARTS = ("scale", "prefix", "restart", "kill")


@dataclass
class Report:
    """What was measured; parts that were not asked for are empty."""

    served: list[Served] = field(default_factory=list)
    ways: list[Way] = field(default_factory=list)
    disturbed: list[Disturbed] = field(default_factory=list)

    def ratios(self) -> dict[str, float]:
        """Three servers against one, and hits by prefix against none."""
        found = {}
        if len(self.served) == 2:
            one, three = self.served
            for name in ("tokens_per_s", "images_per_s", "streams"):
                found[name] = getattr(three, name) / (getattr(one, name) or float("nan"))
        if len(self.ways) == 2 and self.ways[0].hit_rate:
            found["prefix_hits"] = self.ways[1].hit_rate / self.ways[0].hit_rate
        return found

    def plain(self) -> dict[str, Any]:
        """As JSON takes it."""
        return {
            "served": [asdict(one) for one in self.served],
            "prefix": [
                {"way": way.name, "prompts": len(way.ttft), "hit_rate": way.hit_rate} for way in self.ways
            ],
            "disturbed": [one.plain() for one in self.disturbed],
            "ratios": self.ratios(),
        }


async def measure(started: Fleet, folder: Path, wanted: tuple[str, ...], seconds: float) -> Report:
    """Raises: OperatorError, TrimodalError: what cannot be measured."""
    report = Report()
    if "scale" in wanted:
        with running(folder, started.addresses(1)) as proxy:
            await asyncio.to_thread(proxy.settle, 1)
            async with clients(proxy.grpc) as at:
                report.served.append(await parts.serve(at, proxy, 1, seconds))
    with running(folder, started.addresses()) as proxy:
        await asyncio.to_thread(proxy.settle, len(started.servers))
        async with clients(proxy.grpc) as at:
            if "scale" in wanted:
                report.served.append(await parts.serve(at, proxy, 3, seconds))
            if "prefix" in wanted:
                for seed, name in enumerate(("in turn", "by prefix")):
                    report.ways.append(await parts.talk(at, Way(name), seed))
            if "restart" in wanted:
                report.disturbed.append(await parts.restart_all(at, proxy, started))
            if "kill" in wanted:
                report.disturbed.append(await parts.kill_one(at, proxy, started))
    return report


def show(report: Report, console: Console) -> None:
    """Prints a table of each part."""
    ratios = report.ratios()
    if report.served:
        table = make_table(
            "behind the balancer", "servers|tokens/s|images/s|live streams|lag p50 (s)|requests of each"
        )
        for one in report.served:
            share = " ".join(str(count) for count in one.share.values())
            rates = (f"{one.tokens_per_s:.1f}", f"{one.images_per_s:.1f}")
            table.add_row(str(one.servers), *rates, str(one.streams), f"{one.lag_s:.2f}", share)
        names = ("tokens_per_s", "images_per_s", "streams")
        table.add_row("times", *(f"{ratios[name]:.2f}" for name in names if name in ratios), "", "")
        console.print(table)
    if report.ways:
        table = make_table("prefix cache of three servers", "server chosen|prompts|hit rate|TTFT p50 (ms)")
        for way in report.ways:
            median = milliseconds(way.ttft, 50)
            table.add_row(way.name, str(len(way.ttft)), f"{way.hit_rate:.1%}", f"{median:.0f}")
        console.print(table)
        console.print(f"hit rate: {ratios.get('prefix_hits', 0):.2f} times that in turn")
    if report.disturbed:
        table = make_table(
            "under a steady load", "what|texts|pictures|streams|failed|words|lost|begun again|took (s)"
        )
        for each in report.disturbed:
            tally = each.tally
            counts = (str(tally.done[kind]) for kind in ("text", "picture", "speech"))
            took = " ".join(f"{one:.0f}" for one in each.seconds)
            failed = str(sum(tally.failed.values()))
            row_ = (failed, str(tally.said), str(tally.lost), str(tally.begun_again), took)
            table.add_row(each.name, *counts, *row_)
        console.print(table)
        for each in report.disturbed:
            console.print(f"{each.name}: failed {_counts(each.tally.failed)}")
            for sentence in sorted(each.tally.sentences):
                console.print(f"  {sentence}")
            if each.at_the_server:
                console.print(f"  {each.at_the_server} requests were on it")


def _counts(failed: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(failed.items())) or "nothing"


def main(
    seconds: Annotated[float, typer.Option(min=1, help="of each rate")] = 10.0,
    part: Annotated[list[str] | None, typer.Option(help=f"of {', '.join(PARTS)}; repeatable")] = None,
    file: Annotated[Path | None, typer.Option("--json", help="write the figures there")] = None,
) -> None:
    """Measures three servers behind HAProxy against one, prefix affinity, a rolling restart and a kill."""
    if unknown := set(part or ()) - set(PARTS):
        raise typer.BadParameter(f"{unknown.pop()}: {', '.join(PARTS)} are known", param_hint="--part")
    try:
        with tempfile.TemporaryDirectory(prefix="trimodal-fleet-") as name, fleet(Path(name)) as started:
            report = asyncio.run(measure(started, Path(name), tuple(part or PARTS), seconds))
    except OperatorError as error:
        typer.echo(f"trimodal.bench.balancer: {error}", err=True)
        raise typer.Exit(1) from None
    show(report, Console(highlight=False))
    if file:
        file.write_text(json.dumps(report.plain(), indent=2) + "\n")


if __name__ == "__main__":
    typer.run(main)
