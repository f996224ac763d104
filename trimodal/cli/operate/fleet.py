"""Simulates replicas behind a balancer: `trimodal plan fleet` and `trimodal plan replica`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from trimodal.cli.common import one_sentence

if TYPE_CHECKING:
    from trimodal.plan.fleet.plans import Plan
    from trimodal.plan.fleet.tally import Objective, Outcome
    from trimodal.plan.fleet.workload import Prefixes, Workload

_GENERATED, _REPORT = "Arrivals that are made", "Report"


def _made(*names: str, **more: Any) -> Any:
    return typer.Option(*names, rich_help_panel=_GENERATED, **more)


def fleet(
    plans: Path = typer.Argument(..., help="TOML or JSON file of plans, which are compared."),
    trace: Path | None = typer.Option(None, help="Arrivals: this project's, Azure's or BurstGPT's CSV."),
    trace_speed: float = typer.Option(1.0, min=0.001, help="2: in half the time."),
    trace_scale: float = typer.Option(1.0, min=0.001, help="Of the trace's lengths."),
    load: str = _made(default="poisson", help="poisson, gamma or diurnal."),
    rate: float = _made(default=0.0, min=0, help="Requests a second, on average; instead of --trace."),
    seconds: float = _made(default=0.0, min=0, help="Of arrivals; 0: 600, or to the trace's end."),
    lengths: str = _made(
        default="azure-conversation", help="azure-conversation, azure-code, sharegpt or alpaca."
    ),
    prompt_tokens: str = _made(default="", help="Instead: 64, uniform:32-256, lognormal:400,0.6."),
    output_tokens: str = _made(default="", help="Of the answers, in the same forms."),
    prefixes: str = _made(default="", help="Shared beginnings, COUNT:TOKENS[:SHARE[:SKEW]]."),
    burstiness: float = _made(default=1.0, help="Of gamma: 1 is Poisson, less comes in bursts."),
    swing: float = _made(default=0.5, help="Of diurnal: from rate × (1 − swing) to rate × (1 + swing)."),
    period: float = _made(default=86_400.0, help="Of diurnal, seconds."),
    slo: str = typer.Option(
        "ttft_ms<=1000,tpot_ms<=100", help="What a good request keeps.", rich_help_panel=_REPORT
    ),
    warmup: float = typer.Option(0.0, min=0, help="Seconds whose requests are not counted."),
    seed: int = typer.Option(0, min=0, help="Of arrivals, lengths and the balancer."),
    jobs: int = typer.Option(1, min=1, max=64, help="Plans that are simulated at once."),
    json_: bool = typer.Option(False, "--json", help="Machine-readable.", rich_help_panel=_REPORT),
    html: Path | None = typer.Option(None, help="Report with plots, in one file.", rich_help_panel=_REPORT),
    plot: Path | None = typer.Option(None, help="The plots alone, as PNG.", rich_help_panel=_REPORT),
) -> None:
    """Simulate replicas behind a balancer: goodput, latencies and cost of several plans on one trace."""
    with one_sentence("plan"):
        from trimodal.errors import SettingsError
        from trimodal.plan.fleet.plans import read_plans
        from trimodal.plan.fleet.traces import read_trace
        from trimodal.plan.fleet.workload import KINDS, LENGTHS, Generated, Recorded

        if bool(trace) == bool(rate):
            raise SettingsError("--trace FILE or --rate REQUESTS_A_SECOND: one of them is needed")
        for option, path in (("--html", html), ("--plot", plot)):
            if path:
                from trimodal.cli.common import check_writable
                from trimodal.report.plots import check_plots

                check_plots(option)
                check_writable(option, path)
        found = read_plans(plans)
        objective = _objective(slo)
        workload: Workload
        if trace:
            bound = {"seconds": seconds} if seconds else {}
            workload = Recorded(read_trace(trace, speed=trace_speed, scale=trace_scale, **bound))
            asked = f"{trace.name}, {len(workload.arrivals)} requests"
        else:
            from trimodal.bench.load.lengths import parse_lengths

            kind = next((one for one in KINDS if one == load), None)
            if kind is None:
                raise SettingsError(f"--load {load}: known are {', '.join(KINDS)}")
            if lengths not in LENGTHS:
                raise SettingsError(f"--lengths {lengths}: known are {', '.join(LENGTHS)}")
            given, made = LENGTHS[lengths]
            workload = Generated(
                kind,
                rate,
                seconds or 600.0,
                parse_lengths(prompt_tokens or given, "--prompt-tokens"),
                parse_lengths(output_tokens or made, "--output-tokens"),
                burstiness=burstiness,
                swing=swing,
                period=period,
                prefixes=_prefixes(prefixes),
                seed=seed,
            )
            asked = f"{kind}, {rate:g} requests/s for {workload.seconds:g} s"
        outcomes = _simulate(found, workload, objective, warmup, seed, jobs)
        facts = [("arrivals", asked), ("objective", slo), ("seed", str(seed))]
        if html:
            from trimodal.plan.fleet.report import fleet_report
            from trimodal.report.html import write_html

            write_html(html, fleet_report(outcomes, facts))
        if plot:
            from trimodal.plan.fleet.report import save_fleet

            save_fleet(plot, outcomes)
    if json_:
        import json

        plain = {"facts": dict(facts), "plans": [outcome.plain() for outcome in outcomes]}
        typer.echo(json.dumps(plain, indent=2))
    else:
        _print(outcomes, asked)


def replica(
    bench: list[Path] = typer.Argument(
        ..., help="JSON of `trimodal bench llm --load closed`; several: one each length."
    ),
    output: Path | None = typer.Option(None, "--output", "-o", help="TOML file; none: it is printed."),
    set_: list[str] = typer.Option(
        [], "--set", help="FIELD=VALUE that no bench measures, as num_kv_blocks=4096."
    ),
    side: str = typer.Option("served", help="Of the bench: served or bare."),
) -> None:
    """Write the description of one replica from what a bench measured of it."""
    with one_sentence("plan"):
        from trimodal.errors import SettingsError
        from trimodal.plan.fleet.from_bench import as_toml, describe_replica, read_points

        points = [point for file in bench for point in read_points(file, side)]
        given: dict[str, Any] = {}
        for text in set_:
            name, equals, value = text.partition("=")
            if not equals:
                raise SettingsError(f"--set {text}: FIELD=VALUE is needed")
            given[name.strip()] = value.strip()
        figures = describe_replica(points, given, bench[0])
        text = as_toml(figures, f"Measured: {', '.join(file.name for file in bench)}, {side}")
        if output is None:
            typer.echo(text, nl=False)
            return
        try:
            output.write_text(text, encoding="utf-8")
        except OSError as error:
            raise SettingsError(f"--output {output}: cannot be written: {error.strerror}") from None


def _objective(text: str) -> Objective:
    """What a request must keep. Raises: SettingsError: a bound that the simulator does not know."""
    from trimodal.bench.load.slo import parse_slo
    from trimodal.errors import SettingsError
    from trimodal.plan.fleet.tally import Objective

    bounds: dict[str, float] = {}
    for bound in parse_slo(text).bounds:
        if not bound.of_each or bound.metric not in ("ttft", "tpot", "latency"):
            raise SettingsError(
                f"--slo {bound.text}: of each request ttft_ms, tpot_ms and latency_ms are known"
            )
        bounds[bound.metric] = min(bound.limit / 1e3, bounds.get(bound.metric, bound.limit / 1e3))
    return Objective(**bounds)


def _prefixes(text: str) -> Prefixes | None:
    from trimodal.errors import SettingsError
    from trimodal.plan.fleet.workload import Prefixes

    if not text:
        return None
    parts = text.split(":")
    try:
        return Prefixes(int(parts[0]), int(parts[1]), *map(float, parts[2:4]))
    except (ValueError, IndexError):
        raise SettingsError(f"--prefixes {text}: COUNT:TOKENS[:SHARE[:SKEW]] is needed") from None


def _simulate(
    plans: Sequence[Plan], workload: Workload, objective: Objective, warmup: float, seed: int, jobs: int
) -> list[Outcome]:
    from functools import partial

    from trimodal.plan.fleet.simulation import simulate

    one = partial(simulate, workload=workload, objective=objective, warmup=warmup, seed=seed)
    if jobs == 1 or len(plans) == 1:
        return [one(plan) for plan in plans]
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(min(jobs, len(plans))) as pool:
        return list(pool.map(one, plans))


def _print(outcomes: Sequence[Outcome], asked: str) -> None:
    from trimodal.build_support import report
    from trimodal.plan.fleet.report import COLUMNS, row

    # A column a plan: sixteen figures side by side are wider than a terminal.
    (_, *names), *figures = zip(COLUMNS, *(row(one) for one in outcomes), strict=True)
    report(asked, [list(row) for row in figures], header=("", *names))
