"""`trimodal demo`: the demo models, asked one act a modality."""

from __future__ import annotations

import typer

NEXT = """Go on with:
  trimodal serve --gateway             a server with OpenAI's API, and a page at http://127.0.0.1:8080/
  trimodal chat ["what is a lambda?"]  an answer, or a conversation
  trimodal classify FILE…              labels of images
  trimodal transcribe --live FILE      words while they are spoken
  trimodal ask --audio FILE            a spoken question, answered"""


def demo(
    keep: bool = typer.Option(False, help="Stay up on the usual ports (8000 to 8002, 8080) until Ctrl-C."),
) -> None:
    """Serve the demo models, ask each modality, and stop; exit code 0 when every answer is right."""
    import signal
    import sys

    from rich.console import Console

    from trimodal.demo.run import ACTS, run

    # A SIGTERM must take the server along, as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    answered = run(Console(highlight=False), keep=keep)
    if not keep:
        typer.echo(NEXT)
    typer.echo(f"demo: {answered} of {len(ACTS)} acts answered")
    raise typer.Exit(0 if answered == len(ACTS) else 1)
