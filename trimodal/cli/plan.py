"""Says what fits on which GPU, how many are needed, and plays replicas: `trimodal plan …`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trimodal.cli.common import is_given, one_sentence, with_settings
from trimodal.plan.memory import KvPrecision, Precision, Runtime

if TYPE_CHECKING:
    from trimodal.plan.architecture import Architecture
    from trimodal.plan.fleet.outcome import Objective, Outcome
    from trimodal.plan.fleet.workload import Arrival, Prefixes
    from trimodal.plan.memory import Deployment, Sizing

_engine = partial(typer.Option, rich_help_panel="Engine")
# Azure's conversations, as `trimodal bench` reads lengths: lognormals with the published medians (Patel et
# al., "Splitwise", ISCA 2024, arXiv:2311.18677), whose spread makes the means of the public trace of 2023.
PROMPT_TOKENS, OUTPUT_TOKENS = "lognormal:1020,0.5", "lognormal:129,0.99"
_made = partial(typer.Option, rich_help_panel="Arrivals that are made")
plan = typer.Typer(help="Say what fits on a GPU, and how many replicas a load needs.", no_args_is_help=True)


@dataclass(frozen=True)
class EngineLimits:
    """Options of `trimodal plan llm`, named as in `Deployment`."""

    precision: Annotated[Precision, _engine(help="Of the weights.")] = "fp16"
    kv_precision: Annotated[KvPrecision, _engine(help="Of the KV cache; auto: 16 bits.")] = "auto"
    tp: Annotated[int, _engine(min=1, help="Tensor parallel GPUs.")] = 1
    pp: Annotated[int, _engine(min=1, help="Pipeline parallel stages.")] = 1
    max_seq_len: Annotated[int, _engine(min=0, help="Prompt and answer; 0: 8192, or the model's most.")] = 0
    max_batch_size: Annotated[int, _engine(min=1, help="Sequences in a step.")] = 256
    max_num_tokens: Annotated[int, _engine(min=1, help="Tokens in a step.")] = 8192
    runtime: Annotated[Runtime, _engine(help="Whose rules for the KV pool apply.")] = "tensorrt_llm"
    memory_fraction: Annotated[
        float, _engine(min=0.01, max=1, help="Of the free memory (tensorrt_llm) or of all memory (vllm).")
    ] = 0.9


@plan.command()
@with_settings(EngineLimits)
def llm(
    settings: EngineLimits,
    source: str = typer.Argument(..., help="config.json, checkpoint directory or hub id."),
    card: list[str] = typer.Option([], help="GPU, as H100, or cpu; repeatable. All known GPUs by default."),
) -> None:
    """Weights, KV cache and sequences of a language model on one GPU or on each known one."""
    from trimodal.build_support import operator_errors
    from trimodal.plan.architecture import find_config, read_architecture
    from trimodal.plan.cards import CARDS, find_card
    from trimodal.plan.memory import Deployment, size

    with operator_errors():
        model = read_architecture(find_config(source))
        length = settings.max_seq_len or min(8192, model.max_positions or 8192)
        limits = vars(replace(settings, max_seq_len=length))
        cards = [find_card(name) for name in card] or CARDS
        deployments = [Deployment(card=each, **limits) for each in cards]
        sizings = [size(model, each) for each in deployments]
    _print_sizings(source, model, deployments, sizings)
    if all(sizing.problems for sizing in sizings):
        raise typer.Exit(1)


def _gib(size: int) -> str:
    return f"{size / 2**30:.2f} GiB"


def _print_sizings(
    source: str, model: Architecture, deployments: Sequence[Deployment], sizings: Sequence[Sizing]
) -> None:
    from trimodal.build_support import report
    from trimodal.plan.advice import advise
    from trimodal.plan.memory import longest

    first, length = deployments[0], deployments[0].max_seq_len
    header = ("GPU", "weights", "KV pool", "left", "sequences", "longest", "stream tok/s ≤", "fits")
    rows = [
        [
            f"{one.gpus} × {one.card.name}",
            *map(_gib, (sizing.weights, sizing.pool, sizing.left)),
            min(sizing.sequences, one.max_batch_size),
            longest(sizing, model),
            f"{sizing.stream_bound:.0f}",
            not sizing.problems,
        ]
        for one, sizing in zip(deployments, sizings, strict=True)
    ]
    title = f"{source}: {model.parameters:,} parameters, {first.precision}, KV {first.kv_precision}"
    title += f" ({sizings[0].kv_token:,} bytes a token), sequences of {length} tokens"
    report(title, rows, header=header)
    for one, sizing in zip(deployments, sizings, strict=True):
        for problem in sizing.problems:
            typer.echo(f"{one.card.name}: {problem}")
        if remedies := advise(model, one):
            typer.echo(f"{one.card.name}: it fits with {' or with '.join(remedies)}")
    if model.window and length > model.window:
        typer.echo(f"Some layers attend to {model.window} tokens only: counted as if they attended to all.")


@dataclass(frozen=True)
class FleetCommand:
    """The options of `trimodal plan fleet`."""

    trace: Annotated[Path | None, typer.Option(help="Azure's LLM inference CSV.")] = None
    rate: Annotated[float, _made(min=0, help="Requests a second, on average; instead of --trace.")] = 0.0
    prompt_tokens: Annotated[str, _made(help="As 64, uniform:32-256 or lognormal:400,0.6.")] = PROMPT_TOKENS
    output_tokens: Annotated[str, _made(help="Of the answers, in the same forms.")] = OUTPUT_TOKENS
    prefixes: Annotated[str, _made(help="Shared beginnings, COUNT:TOKENS[:SHARE[:SKEW]].")] = ""
    seconds: Annotated[float, typer.Option(min=0, help="Of arrivals; 0: 600, or to the trace's end.")] = 0.0
    slo: Annotated[str, typer.Option(help="What a good request keeps.")] = "ttft_ms<=1000,tpot_ms<=100"
    warmup: Annotated[float, typer.Option(min=0, help="Seconds whose requests are not counted.")] = 0.0
    seed: Annotated[int, typer.Option(min=0, help="Of arrivals, lengths and the balancer.")] = 0
    json_: Annotated[bool, typer.Option("--json", help="Machine-readable.")] = False


@plan.command()
@with_settings(FleetCommand)
def fleet(
    context: typer.Context,
    settings: FleetCommand,
    plans: Path = typer.Argument(..., help="TOML file of plans, which are compared."),
) -> None:
    """Simulate replicas behind a balancer: goodput, latencies and cost of several plans."""
    with one_sentence("plan"):
        from trimodal.errors import SettingsError
        from trimodal.plan.fleet.simulation import simulate
        from trimodal.plan.fleet.spec import read_specs
        from trimodal.plan.fleet.workload import read_trace

        if bool(settings.trace) == bool(settings.rate):
            raise SettingsError("--trace FILE or --rate REQUESTS_A_SECOND: one of them is needed")
        made = (name for name in ("prompt_tokens", "output_tokens", "prefixes") if is_given(context, name))
        if settings.trace and (name := next(made, "")):
            option = name.replace("_", "-")
            raise SettingsError(f"--{option} is of arrivals that are made: a trace has its own, leave it out")
        specs, objective = read_specs(plans), _objective(settings.slo)
        if settings.trace:
            arrivals = read_trace(settings.trace)
            if settings.seconds:
                arrivals = [one for one in arrivals if one.at <= settings.seconds]
            workload = f"{settings.trace.name}, {len(arrivals)} requests"
        else:
            arrivals = _generate(settings)
            workload = f"{settings.rate:g} requests/s for {settings.seconds or 600:g} s"
        outcomes = [
            simulate(spec, arrivals, objective, warmup=settings.warmup, seed=settings.seed) for spec in specs
        ]
    if settings.json_:
        facts = {"arrivals": workload, "objective": settings.slo, "seed": str(settings.seed)}
        typer.echo(json.dumps({"facts": facts, "plans": [asdict(one) for one in outcomes]}, indent=2))
    else:
        _print_outcomes(outcomes, workload)


def _generate(settings: FleetCommand) -> list[Arrival]:
    from trimodal.bench.load.lengths import parse_lengths
    from trimodal.plan.fleet.workload import generate

    return generate(
        settings.rate,
        settings.seconds or 600.0,
        parse_lengths(settings.prompt_tokens, "--prompt-tokens"),
        parse_lengths(settings.output_tokens, "--output-tokens"),
        prefixes=_prefixes(settings.prefixes),
        seed=settings.seed,
    )


@plan.command()
def replica(
    bench: list[Path] = typer.Argument(..., help="JSON of `trimodal bench llm`; several: one each length."),
    set_: list[str] = typer.Option(
        [], "--set", help="FIELD=VALUE that no bench measures, as num_kv_blocks=4096."
    ),
) -> None:
    """Print the description of one replica, a TOML file, from what a bench measured of it."""
    with one_sentence("plan"):
        from trimodal.errors import SettingsError
        from trimodal.plan.fleet.from_bench import as_toml, describe_replica, read_points

        points = [point for file in bench for point in read_points(file)]
        given: dict[str, Any] = {}
        for text in set_:
            name, equals, value = text.partition("=")
            if not equals:
                raise SettingsError(f"--set {text}: FIELD=VALUE is needed")
            given[name.strip()] = value.strip()
        figures = describe_replica(points, given, bench[0])
        typer.echo(as_toml(figures, f"Measured: {', '.join(file.name for file in bench)}"), nl=False)


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


def _print_outcomes(outcomes: Sequence[Outcome], workload: str) -> None:
    from trimodal.build_support import report

    # A column a plan: so many figures side by side are wider than a terminal.
    columns = [_figures(one) for one in outcomes]
    rows = [[name, *(column[name] for column in columns)] for name in columns[0]]
    report(workload, rows, header=("", *(one.name for one in outcomes)))


def _figures(one: Outcome) -> dict[str, str]:
    def ms(values: dict[str, float], name: str, places: int = 0) -> str:
        return f"{values[name]:.{places}f}" if name in values else "-"

    paid = one.cost_per_million is not None
    return {
        "replicas": f"{one.replicas}",
        "good": f"{one.attainment:.1%}",
        "goodput /s": f"{one.goodput:.1f}",
        **{f"TTFT {name} (ms)": ms(one.ttft_ms, name) for name in ("p50", "p95", "p99")},
        **{f"TPOT {name} (ms)": ms(one.tpot_ms, name, 1) for name in ("p95", "p99")},
        "e2e p95 (ms)": ms(one.latency_ms, "p95"),
        "prefix hits": f"{one.hit_rate:.1%}",
        "slots": f"{one.utilisation:.0%}",
        "refused": f"{one.refused}",
        "cost": f"{one.cost:.2f}" if paid else "-",
        "a million tokens": f"{one.cost_per_million:.3f}" if paid else "-",
    }
