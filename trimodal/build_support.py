"""Finds checkpoints, shows progress, prints figures and ends on errors, for every build script.

It imports no runtime, so that a script that is only asked for --help stays fast.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from trimodal.errors import ArtefactError, OperatorError, refused_by_system
from trimodal.host import end_in_order
from trimodal.paths import ENGINES_VARIABLE, HUB_ID, STARTER, expanded
from trimodal.report.console import Table, print_table
from trimodal.starter import fetch_starter

console = Console()
# Enough to build from: weights in one format, configuration, tokenizer, template; model.bin is CTranslate2's.
HUB_FILES = ["*.safetensors", "model.bin", "*.json", "*.jinja", "*.model", "*.txt"]
# Fetched where there are no other weights: torch's pickles, which are loaded as plain weights alone.
OLD_WEIGHTS = ["pytorch_model*.bin"]
STOPPED = 130  # the exit code where Ctrl-C ended it
CLEAN_UP_S = 10.0


def resolve_checkpoint(source: str) -> Path:
    """The directory `source` itself, a checkpoint of the starter set, else the hub's snapshot of that id.

    Raises:
        ArtefactError: there is none, or nobody gave it.
    """
    if source.startswith(STARTER):
        return fetch_starter(source.removeprefix(STARTER))
    directory = expanded(Path(source), "the checkpoint", ArtefactError)
    if directory.is_dir():
        return directory
    if directory.exists():
        raise ArtefactError(f"{source} is a file: name the checkpoint's directory or a hub id")
    if not HUB_ID.fullmatch(source):
        raise ArtefactError(f"no checkpoint at {source}: name an existing directory or a hub id (owner/name)")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # One display: ours.
    import huggingface_hub

    try:
        with progress(f"Fetching {source} from the hub"):
            place = Path(huggingface_hub.snapshot_download(source, allow_patterns=HUB_FILES))
            if not any(place.glob("*.safetensors")) and not (place / "model.bin").is_file():
                huggingface_hub.snapshot_download(source, allow_patterns=OLD_WEIGHTS)
            return place
    except Exception as error:  # The hub's client raises a dozen kinds, from HTTP, sockets and the cache.
        raise ArtefactError(
            f"no directory {source} here, and the hub did not give {source} ({type(error).__name__}): "
            "check the spelling and the connection, or download it and name its directory"
        ) from None


@contextmanager
def progress(description: str, total: float | None = None) -> Iterator[Callable[..., None]]:
    """A bar (a spinner without `total`) with the elapsed time; yields the function that advances it."""
    columns = [
        SpinnerColumn(finished_text="[green]✓"),
        TextColumn("{task.description}", markup=False),
        TimeElapsedColumn(),
    ]
    if total is not None:
        columns.insert(2, BarColumn(bar_width=30))
    with Progress(*columns, console=console, redirect_stdout=False, redirect_stderr=False) as display:
        task = display.add_task(description, total=total)

        def advance(steps: float = 1) -> None:
            display.advance(task, steps)

        yield advance
        display.update(task, total=total or 1, completed=total or 1)


def report(
    title: str, rows: Mapping[str, Any] | Sequence[Sequence[Any]], *, header: Sequence[str] = ()
) -> None:
    """Prints a table: name → value, or rows of equal length under an optional header."""
    body = [list(pair) for pair in rows.items()] if isinstance(rows, Mapping) else [list(row) for row in rows]
    width = len(header) or max((len(row) for row in body), default=1)
    print_table(
        Table(title, header or [""] * width, [[_text(cell) for cell in row] for row in body]), console
    )


def build_command(script: str) -> str:
    """The command that builds this artefact again, and where it lies, for its manifest.

    Not the script itself, TASK_RUNTIME: beside a wheel there is no build/, and engines have their own folder.
    """
    task, _, runtime = script.partition("_")
    engines = os.environ.get(ENGINES_VARIABLE)
    where = ["--engines", engines] if engines else []
    return shlex.join(["trimodal", "build", task, "--runtime", runtime, *where, *sys.argv[1:]])


def run_script(command: Sequence[str], environment: Mapping[str, str] | None = None) -> int:
    """Runs a script in a process of its own; its exit code, STOPPED where Ctrl-C came meanwhile.

    A terminal's Ctrl-C goes to the script, too, which removes what it has written. It is told again if it
    still runs after CLEAN_UP_S, as where the signal was for this process alone, and is killed after twice
    that time, or at a second Ctrl-C. What else ends this process, as SIGTERM does, is told to it at once.
    """
    script: subprocess.Popen[bytes] | None = None
    try:
        with _signals_held_back():
            script = subprocess.Popen(command, env=environment)
        code = script.wait()
    except KeyboardInterrupt:
        _stop(script, None, signal.SIGINT)
        return STOPPED
    except BaseException:  # as where SIGTERM ends this process; a script that heard SIGHUP ignores it
        _stop(script, signal.SIGTERM)
        raise
    return code if code >= 0 else 128 - code


@contextmanager
def _signals_held_back() -> Iterator[None]:
    """Lets Ctrl-C, SIGTERM and SIGHUP wait for the end of the block, where they end this process in order.

    Of a process that is being started nobody has the number yet: it would go on. What is ignored here is by
    what is started as well.
    """
    held: list[int] = []

    def hear() -> None:
        if held:
            signal.raise_signal(held[0])

    with ExitStack() as stack:
        if threading.current_thread() is threading.main_thread():
            stack.callback(hear)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                if callable(before := signal.getsignal(number)):
                    stack.callback(signal.signal, number, before)
                    signal.signal(number, lambda number, _: held.append(number))
        yield


def _stop(script: subprocess.Popen[bytes] | None, *signals: signal.Signals | None) -> None:
    """Sends each of the signals (None: it has one already) and gives the script CLEAN_UP_S after each.

    It is killed then, or at Ctrl-C.
    """
    if script is None:  # it was not started
        return
    try:
        for number in signals:
            if number is not None:
                script.send_signal(number)
            with suppress(subprocess.TimeoutExpired):
                script.wait(CLEAN_UP_S)
                return
    except KeyboardInterrupt:
        pass
    finally:
        script.kill()  # does nothing to one that has ended
        script.wait()


@contextmanager
def operator_errors() -> Iterator[None]:
    """Turns an OperatorError into one red sentence on stderr and exit code 1, Ctrl-C into a word and 130.

    What the machine refuses (a full disk, a file that may not be read) and a package that is not installed
    or does not fit are the operator's to mend as well. SIGTERM ends the block in order, too.
    """
    end_in_order()
    try:
        yield
    except KeyboardInterrupt:
        Console(stderr=True).print("stopped: the build under way replaced nothing", highlight=False)
        raise SystemExit(STOPPED) from None
    except (OperatorError, OSError, ImportError) as error:
        missing = isinstance(error, ModuleNotFoundError)
        hint = ": docs/models.md says what each build needs" if missing else ""
        told = refused_by_system(error) if isinstance(error, OSError) and error.errno else error
        Console(stderr=True).print(
            f"error: {told}{hint}", style="red", markup=False, emoji=False, highlight=False, soft_wrap=True
        )
        raise SystemExit(1) from None


def _text(cell: Any) -> str:
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)
