"""The demo's start: nothing that only its acts need stands between the command and the server."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from rich.console import Console

from trimodal.demo import run as module
from trimodal.demo.play import acts_of
from trimodal.demo.run import ACTS
from trimodal.server.launch import Child
from trimodal.server.process import TritonServer


def test_the_acts_are_those_that_are_counted() -> None:
    assert tuple(acts_of(Path("samples"), judged=True)) == ACTS


def test_what_the_acts_import_is_left_for_the_time_in_which_models_load() -> None:
    heavy = "openai, fastapi, uvicorn, websockets, numpy.testing, soundfile"
    code = f"import sys, trimodal.demo.run; print([m for m in '{heavy}'.split(', ') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_demo_that_is_kept_serves_until_it_is_ended(monkeypatch, tmp_path, number) -> None:
    """It died at once: no call waits for infinite milliseconds."""
    children: list[Child] = []

    class Server(TritonServer):
        grpc_url = http_url = "nowhere"

        def start(self, **options) -> None:
            self._child = Child(tmp_path / "log")
            self._child.start(["/bin/sleep", "60"], {}, operator_key="")
            children.append(self._child)
            options["meanwhile"]()

        def stop(self, *_, **__) -> list[str]:
            self.kill()
            return []

    class Play:
        def __init__(self, *_) -> None:
            self.serving = lambda: contextlib.nullcontext("http://nowhere")

        async def run(self, *_, **__) -> int:
            threading.Timer(0.5, os.kill, (os.getpid(), number)).start()
            return 7

    def end(*_) -> None:
        ended.append(number)
        sys.exit(143)

    ended: list[int] = []
    monkeypatch.setattr(module, "TritonServer", Server)
    monkeypatch.setattr(module, "show_summary", lambda *_: None)
    monkeypatch.setattr("trimodal.demo.play.Play", Play)
    console = Console(file=io.StringIO())
    before = signal.signal(signal.SIGTERM, end)  # as the command does
    interrupt = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background
    began = time.monotonic()
    try:
        if number == signal.SIGINT:
            assert module.run(console, None, keep=True) == 7
        else:
            with pytest.raises(SystemExit):
                module.run(console, None, keep=True)
    finally:
        signal.signal(signal.SIGTERM, before)
        signal.signal(signal.SIGINT, interrupt)
    assert time.monotonic() - began < 30, "the server had not ended by itself"
    assert "Still serving at http://nowhere" in console.file.getvalue()
    assert (len(children), bool(ended)) == (1, number == signal.SIGTERM)
    assert children[0].guard.returncode is not None
    assert not children[0].run_directory.exists()
