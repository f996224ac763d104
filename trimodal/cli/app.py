"""The `trimodal` command: lists its commands, each of which is a module of its own.

A command's module imports nothing but typer at its top and the rest inside the
function, so that `trimodal --help` answers at once.
"""

from __future__ import annotations

import codecs
import json
import os
import sys
from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperGroup

from trimodal.cli.bench.app import bench
from trimodal.cli.build import build
from trimodal.cli.cache import cache
from trimodal.cli.client.ask import ask
from trimodal.cli.client.chat import chat
from trimodal.cli.client.classify import classify
from trimodal.cli.client.explain import explain
from trimodal.cli.client.transcribe import transcribe
from trimodal.cli.common import one_sentence
from trimodal.cli.demo import demo, init
from trimodal.cli.doctor import doctor
from trimodal.cli.gateway import gateway
from trimodal.cli.keys import keys
from trimodal.cli.operate.check import check
from trimodal.cli.operate.top import top
from trimodal.cli.operate.tune import tune
from trimodal.cli.operate.versions import reload, route, versions
from trimodal.cli.plan import plan
from trimodal.cli.regress import regress
from trimodal.cli.serve import serve


class Commands(TyperGroup):
    """Ends any command with a sentence where the system refuses a path, as one with too long a name."""

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        # From here a TimeoutError of asyncio, which is an OSError since Python 3.11, is a bug of ours.
        with one_sentence(of_libraries=False):
            return super().invoke(ctx)


app = typer.Typer(
    cls=Commands,
    help="Text, images and live audio on NVIDIA Triton.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)
PANELS: dict[str, dict[str, Callable[..., None] | typer.Typer]] = {
    "Serve": {"demo": demo, "serve": serve, "gateway": gateway, "keys": keys, "top": top, "cache": cache},
    "Change a running server": {"versions": versions, "route": route, "reload": reload},
    "Ask a running server": {"chat": chat, "ask": ask, "classify": classify, "transcribe": transcribe},
    "Prepare": {"init": init, "build": build, "doctor": doctor, "check": check, "plan": plan},
    "Measure": {"explain": explain, "bench": bench, "regress": regress, "tune": tune},
}
for panel, commands in PANELS.items():
    for name, command in commands.items():
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, rich_help_panel=panel)
        else:
            app.command(name, rich_help_panel=panel)(command)


@app.callback()
def main() -> None:
    """Text, images and live audio on NVIDIA Triton."""
    from trimodal import logs
    from trimodal.host import end_in_order, exempt_loopback

    end_in_order()
    logs.configure()
    exempt_loopback(os.environ)
    if hasattr(sys.stdout, "reconfigure"):
        # What a terminal cannot show, or a file's name that is no UTF-8, must not end an answer.
        codecs.register_error("escape_as_json", _escape_as_json)
        sys.stdout.reconfigure(errors="escape_as_json")


def _escape_as_json(error: UnicodeError) -> tuple[str, int]:
    r"""Python's own escapes, such as \xfc, would be no JSON where JSON is printed."""
    assert isinstance(error, UnicodeEncodeError)
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


if __name__ == "__main__":
    app()
