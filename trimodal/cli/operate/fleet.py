"""Simulates replicas behind a balancer: `trimodal plan fleet` and `trimodal plan replica`."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from os.path import commonprefix
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from trimodal.cli.common import one_sentence

if TYPE_CHECKING:
    from trimodal.plan.fleet.outcome import Objective, Outcome
    from trimodal.plan.fleet.workload import Arrival, Prefixes

_TRACE, _GENERATED = "Arrivals of a trace", "Arrivals that are made"
COLUMNS = (
    "plan",
    "replicas",
    "good",
    "goodput /s",
    "TTFT p50 (ms)",
    "p95",
    "p99",
    "ITL p95",
    "p99",
    "e2e p95 (s)",
    "prefix hits",
    "slots",
    "refused",
    "cost",
    "a million tokens",
)


def _of_trace(*names: str, **more: Any) -> Any:
    return typer.Option(*names, rich_help_panel=_TRACE, **more)


def _made(*names: str, **more: Any) -> Any:
    return typer.Option(*names, rich_help_panel=_GENERATED, **more)


def fleet(
    plans: Path = typer.Argument(..., help="TOML file of plans, which are compared."),
    trace: Path | None = typer.Option(
        None, help="Azure's CSV or Mooncake's JSON lines.", rich_help_panel=_TRACE
    ),
    trace_speed: float = _of_trace(default=1.0, min=0.001, help="2: in half the time."),
    trace_scale: float = _of_trace(default=1.0, min=0.001, help="Of the trace's lengths."),
    rate: float = _made(default=0.0, min=0, help="Requests a second, on average; instead of --trace."),
    burstiness: float = _made(default=1.0, help="1 is Poisson, less comes in bursts."),
    lengths: str = _made(default="azure-conversation", help="azure-conversation or azure-code."),
    prompt_tokens: str = _made(default="", help="Instead: 64, uniform:32-256, lognormal:400,0.6."),
    output_tokens: str = _made(default="", help="Of the answers, in the same forms."),
    prefixes: str = _made(default="", help="Shared beginnings, COUNT:TOKENS[:SHARE[:SKEW]]."),
    seconds: float = typer.Option(0.0, min=0, help="Of arrivals; 0: 600, or to the trace's end."),
    slo: str = typer.Option("ttft_ms<=1000,tpot_ms<=100", help="What a good request keeps."),
    warmup: float = typer.Option(0.0, min=0, help="Seconds whose requests are not counted."),
    seed: int = typer.Option(0, min=0, help="Of arrivals, lengths and the balancer."),
    json_: bool = typer.Option(False, "--json", help="Machine-readable."),
) -> None:
    """Simulate replicas behind a balancer: goodput, latencies and cost of several plans."""
    with one_sentence("plan"):
        from trimodal.errors import SettingsError
        from trimodal.plan.fleet.simulation import simulate
        from trimodal.plan.fleet.spec import read_specs
        from trimodal.plan.fleet.workload import LENGTHS, generate

        if bool(trace) == bool(rate):
            raise SettingsError("--trace FILE or --rate REQUESTS_A_SECOND: one of them is needed")
        specs, objective = read_specs(plans), _objective(slo)
        if trace:
            arrivals = _read(trace, trace_speed, trace_scale, seconds or float("inf"))
            asked = f"{trace.name}, {len(arrivals)} requests"
        else:
            from trimodal.bench.load.lengths import parse_lengths

            if lengths not in LENGTHS:
                raise SettingsError(f"--lengths {lengths}: known are {', '.join(LENGTHS)}")
            given, made = LENGTHS[lengths]
            arrivals = generate(
                rate,
                seconds or 600.0,
                parse_lengths(prompt_tokens or given, "--prompt-tokens"),
                parse_lengths(output_tokens or made, "--output-tokens"),
                burstiness=burstiness,
                prefixes=_prefixes(prefixes),
                seed=seed,
            )
            asked = f"{rate:g} requests/s for {seconds or 600:g} s"
        outcomes = [simulate(spec, arrivals, objective, warmup=warmup, seed=seed) for spec in specs]
    if json_:
        facts = {"arrivals": asked, "objective": slo, "seed": str(seed)}
        typer.echo(json.dumps({"facts": facts, "plans": [asdict(one) for one in outcomes]}, indent=2))
    else:
        _print(outcomes, asked)


def _read(trace: Path, speed: float, scale: float, seconds: float) -> list[Arrival]:
    """The requests of a trace; where it names prompts' blocks, those that begin alike share a prefix."""
    from trimodal.bench.load.traces import BLOCK_TOKENS, read_trace
    from trimodal.plan.fleet.workload import Arrival

    traced = [one for one in read_trace(trace, speed, scale) if one.at <= seconds]
    alike: dict[int, list[tuple[int, ...]]] = defaultdict(list)
    for one in traced:
        if one.blocks:
            alike[one.blocks[0]].append(one.blocks)
    shared = {first: len(commonprefix(blocks)) for first, blocks in alike.items()}
    return [
        Arrival(
            one.at,
            one.input_tokens,
            one.output_tokens,
            one.blocks[0] if one.blocks else None,
            round(scale * BLOCK_TOKENS * shared[one.blocks[0]]) if one.blocks else 0,
        )
        for one in traced
    ]


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
    from trimodal.plan.fleet.outcome import Objective

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


def _print(outcomes: Sequence[Outcome], asked: str) -> None:
    from trimodal.build_support import report

    # A column a plan: so many figures side by side are wider than a terminal.
    (_, *names), *figures = zip(COLUMNS, *(_row(one) for one in outcomes), strict=True)
    report(asked, [list(row) for row in figures], header=("", *names))


def _row(one: Outcome) -> list[str]:
    """A plan's figures as `COLUMNS` names them."""

    def ms(values: dict[str, float], name: str, places: int = 0, by: float = 1.0) -> str:
        return f"{values[name] / by:.{places}f}" if name in values else "-"

    return [
        one.name,
        f"{one.replicas}",
        f"{one.attainment:.1%}",
        f"{one.goodput:.1f}",
        *(ms(one.ttft_ms, name) for name in ("p50", "p95", "p99")),
        *(ms(one.itl_ms, name, 1) for name in ("p95", "p99")),
        ms(one.latency_ms, "p95", 1, 1e3),
        f"{one.hit_rate:.1%}",
        f"{one.utilisation:.0%}",
        f"{one.refused}",
        f"{one.cost:.2f}" if one.cost_per_million is not None else "-",
        f"{one.cost_per_million:.3f}" if one.cost_per_million is not None else "-",
    ]
