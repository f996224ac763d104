"""`trimodal check`: finds what a server would refuse in a model repository, without one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from trimodal.cli.common import one_sentence

if TYPE_CHECKING:
    from trimodal.check.repository import Repository
    from trimodal.check.version import Release


def check(
    repository: Path | None = typer.Argument(None, help="Model repository; by default ours."),
    profile: list[str] = typer.Option(
        [],
        help="Read configs/NAME.pbtxt where there is one. Repeatable; all profiles if left out.",
    ),
    format_: Literal["text", "json"] = typer.Option("text", "--format", help="Of the findings."),
    select: list[str] = typer.Option([], help="Only rules that begin so, as TRI05. Repeatable."),
    ignore: list[str] = typer.Option([], help="Not the rules that begin so. Repeatable."),
    strict: bool = typer.Option(False, "--strict", help="Warnings count as errors for the exit code."),
    slo_ms: float = typer.Option(0, min=0, help="Time that a request may take: longer delays are found."),
    cores: int = typer.Option(0, min=0, help="CPU cores of the serving machine: more instances are found."),
    gpu_memory: float = typer.Option(0, min=0, max=1e6, help="GiB of one GPU: larger models are found."),
    triton_version: str | None = typer.Option(
        None,
        help="Server to check for, as 24.10 or 2.51. By default the one installed here, else the newest.",
    ),
    deployment: list[Path] = typer.Option(
        [],
        exists=True,
        dir_okay=False,
        help="File with the server's command line: compose, Dockerfile, … Repeatable.",
    ),
) -> None:
    """Find what a server would refuse in a model repository, and what would hurt, without starting one.

    Exit code 1: there are errors (with --strict warnings, too); 2: the command cannot be understood.
    """
    from rich.console import Console

    from trimodal.check.examine import examine
    from trimodal.check.findings import Target
    from trimodal.check.printing import as_json, print_findings
    from trimodal.check.repository import read_repository
    from trimodal.check.rules import select_rules
    from trimodal.paths import default_repository

    console = Console(highlight=False, markup=False)
    with one_sentence("trimodal check"):
        try:
            read = read_repository(repository or default_repository())
            rules = select_rules(tuple(select), tuple(ignore))
            profiles = _profiles(read, profile)
            release = _release(triton_version)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
        target = Target(release, slo_ms, cores, int(gpu_memory * 2**30), tuple(deployment))
        findings = examine(read, profiles, target, rules)
        if format_ == "json":
            typer.echo(as_json(findings, profiles))
        else:
            print_findings(findings, len(read.configs), profiles, console)
    worst = ("error", "warning") if strict else ("error",)
    raise typer.Exit(1 if any(finding.severity in worst for finding in findings) else 0)


def _profiles(repository: Repository, named: list[str]) -> list[str]:
    """Those named, else all. `tensorrt` is config.pbtxt where no file has that name, as in our repository."""
    from trimodal.check.repository import DEFAULT

    known = repository.profiles
    if unknown := [name for name in named if name not in (*known, "tensorrt")]:
        raise ValueError(f"no model has configs/{unknown[0]}.pbtxt: the profiles are {', '.join(known)}")
    return [DEFAULT if name == "tensorrt" and name not in known else name for name in named] or known


def _release(text: str | None) -> Release:
    """Raises: ValueError."""
    from trimodal.check.version import EMBEDDED, NEWEST, of_number, parse_release
    from trimodal.errors import ServerError
    from trimodal.server.installation import find_triton

    if text:
        return parse_release(text)
    try:
        triton = find_triton()
    except ServerError:
        return NEWEST
    if triton.is_wheel:
        return EMBEDDED
    major, minor = triton.release
    return of_number(minor) if major == 2 else NEWEST
