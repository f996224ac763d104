"""`trimodal bench …`: side-by-side measurements, see trimodal.bench."""

from __future__ import annotations

from pathlib import Path

import typer

bench = typer.Typer(
    help="Measure the served models, side by side with their bare engines.", no_args_is_help=True
)


@bench.callback()
def _group() -> None:
    """Measure the served models, side by side with their bare engines."""


@bench.command()
def llm(
    streams: list[int] = typer.Option([1, 8, 16], help="Concurrent streams; repeatable."),
    prompt_tokens: int = typer.Option(64, min=8, help="Tokens of a prompt."),
    max_tokens: int = typer.Option(64, min=2, help="Tokens of an answer."),
    rounds: int = typer.Option(3, min=1, max=50, help="Counted rounds for each number of streams."),
    bare: bool = typer.Option(False, help="Take turns with the bare engine and print the ratio."),
    prefix: int = typer.Option(0, min=0, help="Also TTFT warm against cold with a shared prefix this long."),
    artefact: Path | None = typer.Option(None, help="Another built engine than the config's."),
    set_: list[str] = typer.Option([], "--set", help="parameter=value of llm's config; repeatable."),
    json_: Path | None = typer.Option(None, "--json", help="Also write the figures to this file."),
) -> None:
    """Throughput, TTFT and ITL of the llm model."""
    import asyncio

    from rich.console import Console

    from trimodal.bench.llm import Plan, measure, write_json
    from trimodal.errors import TrimodalError

    changes = dict(_pair(text) for text in set_)
    if artefact:
        changes["artefact"] = str(artefact.resolve())
    plan = Plan(tuple(streams), prompt_tokens, max_tokens, rounds, bare, prefix, changes)
    try:
        figures = asyncio.run(measure(plan, Console()))
    except TrimodalError as error:
        typer.echo(f"bench: {error}", err=True)
        raise typer.Exit(1) from None
    if json_:
        write_json(json_, figures)


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"--set {text}: parameter=value is needed")
    return key, value
