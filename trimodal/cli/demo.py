"""`trimodal demo` shows the starter set, `trimodal init` copies it to edit, build into and serve."""

from __future__ import annotations

from pathlib import Path

import typer

NEXT = """Go on with:
  trimodal serve --gateway                a server with OpenAI's API, and a page at http://127.0.0.1:8080/
  trimodal chat ["Why is the sky blue?"]  an answer, or a conversation
  trimodal classify FILE…                 labels of images
  trimodal transcribe --live FILE         words while they are spoken
  trimodal ask --audio FILE               a spoken question, answered"""


def demo(
    keep: bool = typer.Option(False, help="Stay up on the usual ports (8000 to 8002, 8080) until Ctrl-C."),
) -> None:
    """Build what is missing of the starter set, serve it, ask each modality, and stop.

    The exit code is 0 when every act is right.
    """
    from rich.console import Console

    from trimodal.build_support import operator_errors
    from trimodal.cli.build import build_recipe, put_into
    from trimodal.demo.run import ACTS, run
    from trimodal.paths import default_engines, is_wheel, user_engines

    # A wheel's own files are not written to, whatever lies in the working directory.
    engines = user_engines() if is_wheel() else default_engines()
    put_into(engines)
    with operator_errors():
        _, code = build_recipe("starter", {}, missing=True)
    if code:
        raise typer.Exit(code)
    right = run(Console(highlight=False), engines, keep=keep)
    if right and not keep:
        typer.echo(NEXT)
    if right is not None:
        typer.echo(f"demo: {right} of {len(ACTS)} acts answered")
    raise typer.Exit(0 if right == len(ACTS) else 1)


def init(
    directory: Path = typer.Argument(Path(), help="Gets model_repository/ and samples/."),
) -> None:
    """Copy the model repository, the engines that are built, and the samples to DIRECTORY."""
    import shlex
    import shutil

    from trimodal.cli.common import one_sentence
    from trimodal.errors import OperatorError
    from trimodal.manifest import atomic_directory
    from trimodal.paths import data_directory, is_wheel, user_engines

    source = data_directory()
    repository = directory / "model_repository"
    with one_sentence("trimodal init"):
        if repository.exists():
            raise OperatorError(f"{repository} exists: name another directory")
        try:
            # Hidden: builds that have not ended.
            left_out = shutil.ignore_patterns("__pycache__", ".*-*", "timing-cache")
            with atomic_directory(repository) as work:  # half of one would be served, and bar the next try
                shutil.copytree(source / "model_repository", work, ignore=left_out, dirs_exist_ok=True)
                for engine in sorted(user_engines().glob("*/*")) if is_wheel() else ():
                    place = work / engine.parent.name / "1" / engine.name
                    shutil.copytree(engine, place, ignore=left_out, dirs_exist_ok=True)
                shutil.copytree(source / "samples", directory / "samples", dirs_exist_ok=True)
        except shutil.Error as error:  # of single files, as of a full disk: (place, target, why) of each
            first = error.args[0][0]
            if isinstance(first, tuple):
                raise OperatorError(first[2]) from None
            # Of a file that would be copied to itself it has the letters of a sentence.
            raise OperatorError(f"{directory / 'samples'} leads to what is copied: remove the link") from None
    typer.echo(f"copied to {repository}: edit its config files, then")
    where = "" if directory.resolve() == Path.cwd() else f" --model-repository {shlex.quote(str(repository))}"
    typer.echo(f"  trimodal serve{where}")
