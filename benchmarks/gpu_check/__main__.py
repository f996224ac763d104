"""Measures this machine's GPU in parts: facts, vision, embedding, speech, llm.

    scripts/ci/gpu_check                       with a GPU: makes an environment for itself
    scripts/ci/gpu_check --device cpu          a rehearsal: the same steps and files, small numbers
    TRIMODAL_NO_VENV=1 scripts/ci/gpu_check    with this machine's python3 and what is installed for it
    TRIMODAL_SITE=DIR:DIR scripts/ci/gpu_check  likewise, and with wheels unpacked into these folders
    scripts/ci/gpu_check --parts facts,llm --limit-s 300

Each part runs in a process of its own and is ended at its time limit; what it had measured stays. A step
whose library or file is missing is skipped, with the reason; weights are random where no checkpoint is
given. JSON and text are written after each part. Engines' answers are
compared with the processor's first. What serving adds: `trimodal bench llm --bare --profile cuda`, or vision.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.gpu_check.report import machine, write
from benchmarks.gpu_check.steps import PARTS, Options
from trimodal.errors import OperatorError
from trimodal.server.supervision.stubs import children

MODULE = "benchmarks.gpu_check.steps"
PR_SET_CHILD_SUBREAPER = 36


def measure_part(name: str, options: Options, out: Path, limit_s: float) -> dict[str, Any]:
    """The steps of a part, as far as it came, and `error` when its process did not end well."""
    result = out / f".{name}.json"
    print(f"== {name}", flush=True)
    began = time.monotonic()
    result.unlink(missing_ok=True)  # of a run that was interrupted
    command = [sys.executable, "-m", MODULE, name, str(result), json.dumps(asdict(options))]
    problem = run_limited(command, limit_s)
    found: dict[str, Any] = json.loads(result.read_text()) if result.exists() else {"steps": {}}
    result.unlink(missing_ok=True)
    if problem:
        print(f"{name}: {problem}", flush=True)
        found["error"] = problem
    return {**found, "seconds": round(time.monotonic() - began, 1)}


def run_limited(command: Sequence[str], seconds: float) -> str:
    """Runs the command, and ends it and all its descendants; empty when it ended well, else a sentence."""
    # A descendant whose parent dies becomes this process's child: servers have sessions of their own.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    others = set(children(os.getpid()))
    process = subprocess.Popen(command, start_new_session=True, stdin=subprocess.DEVNULL)
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        return f"ended at its time limit of {seconds:g} s (--limit-s)"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        while orphans := set(children(os.getpid())) - others:
            for pid in orphans:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
    if code < 0:
        return f"its process was ended by {signal.Signals(-code).name}"
    return f"its process ended with code {code}" if code else ""


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="gpu_check", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--device", choices=["cuda", "cpu"], default="cuda", help="cpu: a rehearsal")
    add("--parts", default=",".join(PARTS), metavar="LIST", help=f"of {','.join(PARTS)}; all")
    add("--limit-s", type=float, default=480.0, help="seconds that one part may take (480)")
    add("--out", type=Path, default=Path("artefacts/gpu_check"), help="for gpu_check.json, .txt")
    add("--engines", type=Path, help="for what is built, or is already; OUT/engines")
    add("--whisper", default="", help="checkpoint of speech, or a shape of build/random_checkpoint.py")
    add("--llm", default="", help="checkpoint of the llm that build/llm_place.py has put in place")
    add("--seconds", type=float, help="of each case in each round; 1, rehearsal 0.05")
    add("--rounds", type=int, help="counted rounds; 3, rehearsal 1")
    asked = parser.parse_args(given)
    asked.parts = list(dict.fromkeys(name for name in asked.parts.split(",") if name))
    if not asked.parts or set(asked.parts) - set(PARTS):
        parser.error(f"--parts: known are {', '.join(PARTS)}")
    seconds, rounds = (1.0, 3) if asked.device == "cuda" else (0.05, 1)
    asked.seconds = seconds if asked.seconds is None else asked.seconds
    asked.rounds = rounds if asked.rounds is None else asked.rounds
    if not (0 < asked.seconds <= 3600 and asked.rounds > 0 and 0 < asked.limit_s <= 86_400):
        parser.error("--seconds (at most 3600), --rounds and --limit-s (at most 86400) must be above 0")
    return asked


def main(given: list[str] | None = None) -> int:
    """0 when no step and no part failed; what was skipped is no failure."""
    asked = arguments(given)
    engines = str(asked.engines or asked.out / "engines")
    options = Options(asked.device, asked.seconds, asked.rounds, engines, asked.whisper, asked.llm)
    try:
        about = machine(options.device)
        write(asked.out, about, {})  # where it cannot be written nothing is measured
    except (OperatorError, OSError) as error:
        print(f"gpu_check: {error} (--device cpu rehearses without a GPU)", file=sys.stderr)
        return 1
    parts: dict[str, Any] = {}
    for name in asked.parts:
        parts[name] = measure_part(name, options, asked.out, asked.limit_s)
        write(asked.out, about, parts)  # after each part: a run that is cut off leaves what it has
    print(f"written: {asked.out / 'gpu_check.json'}, {asked.out / 'gpu_check.txt'}")
    steps = [step for part in parts.values() for step in part["steps"].values()]
    return int(any("error" in one for one in [*parts.values(), *steps]))


if __name__ == "__main__":
    raise SystemExit(main())
