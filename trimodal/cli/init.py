"""`trimodal init`: writes a model repository to edit, build into and serve."""

from __future__ import annotations

from pathlib import Path

import typer


def init(
    directory: Path = typer.Argument(Path(), help="Gets model_repository/ and samples/."),
) -> None:
    """Copy the model repository, its built engines and the demo's samples to DIRECTORY."""
    import shutil

    from trimodal.paths import data_directory

    source = data_directory()
    repository = directory / "model_repository"
    if repository.exists():
        typer.echo(f"trimodal init: {repository} exists: name another directory", err=True)
        raise typer.Exit(1)
    try:
        # Hidden: builds that have not ended.
        left_out = shutil.ignore_patterns("__pycache__", ".*-*", "timing-cache")
        shutil.copytree(source / "model_repository", repository, ignore=left_out)
        for kind in ("speech", "vision"):
            samples = source / "build" / "demo" / kind / "samples"
            shutil.copytree(samples, directory / "samples" / kind, dirs_exist_ok=True)
    except OSError as error:
        typer.echo(f"trimodal init: {error.filename}: {(error.strerror or '').lower()}", err=True)
        raise typer.Exit(1) from None
    typer.echo(f"copied to {repository}: edit its config files, then")
    where = "" if directory.resolve() == Path.cwd() else f" --model-repository {repository}"
    typer.echo(f"  trimodal serve{where}")
