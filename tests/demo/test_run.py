"""The demo's start: nothing that only its acts need stands between the command and the server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from trimodal.demo.play import acts_of
from trimodal.demo.run import ACTS


def test_the_acts_are_those_that_are_counted() -> None:
    assert tuple(acts_of(Path("samples"), judged=True)) == ACTS


def test_what_the_acts_import_is_left_for_the_time_in_which_models_load() -> None:
    heavy = "openai, fastapi, uvicorn, websockets, numpy.testing, soundfile"
    code = f"import sys, trimodal.demo.run; print([m for m in '{heavy}'.split(', ') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
