"""Measures this machine's GPU in parts: facts, vision, embedding, speech, llm, interference.

    scripts/ci/gpu_check                               with a GPU: makes an environment for itself
    scripts/ci/gpu_check --device cpu                  a rehearsal: the same steps and files, small numbers
    TRIMODAL_NO_VENV=1 scripts/ci/gpu_check            with this machine's python3 and what it has
    TRIMODAL_SITE=DIR:DIR scripts/ci/gpu_check         likewise, and with wheels unpacked into these folders
    scripts/ci/gpu_check --parts facts,llm --limit-s 300

Each part runs in a process of its own and is ended at its time limit; what it had measured stays. A step
whose library or file is missing is skipped, with the reason; weights are random where no checkpoint is
given. JSON and Markdown are written after each part. Engines' answers are compared with the processor's
first. Where Triton can serve, each model is served beside its bare engine; else the bare engines alone are
measured.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from trimodal.bench.gpu_check.artefacts import NAMES, artefacts
from trimodal.bench.gpu_check.part import PARTS
from trimodal.bench.gpu_check.process import adopt_orphans, run_limited
from trimodal.bench.gpu_check.report import machine, write
from trimodal.errors import OperatorError

MODULE = "trimodal.bench.gpu_check.part"


def measure_part(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """The steps of a part, as far as it came, and `error` when its process did not end well."""
    result = options.out / f".{name}.json"
    given = {
        "device": options.device,
        "seconds": options.seconds,
        "rounds": options.rounds,
        "engines": str(options.engines),
        "given": options.artefact,
        "whisper": options.whisper,
    }
    print(f"== {name}", flush=True)
    began = time.monotonic()
    problem = run_limited(
        [sys.executable, "-m", MODULE, name, str(result), json.dumps(given)], options.limit_s
    )
    found: dict[str, Any] = json.loads(result.read_text()) if result.exists() else {"steps": {}}
    result.unlink(missing_ok=True)
    if problem:
        print(f"{name}: {problem}", flush=True)
        found["error"] = problem
    return {**found, "seconds": round(time.monotonic() - began, 1)}


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="gpu_check", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu: a rehearsal")
    parser.add_argument("--parts", default=",".join(PARTS), metavar="LIST", help=f"of {','.join(PARTS)}; all")
    parser.add_argument("--limit-s", type=float, default=480.0, help="seconds that one part may take (480)")
    parser.add_argument(
        "--out", type=Path, default=Path("artefacts/gpu_check"), help="for gpu_check.json, .md"
    )
    parser.add_argument("--engines", type=Path, help="for what is built; OUT/engines")
    parser.add_argument(
        "--artefact", action="append", default=[], metavar="NAME=DIR",
        help=f"one that is built already; names: {', '.join(NAMES)}",
    )  # fmt: skip
    parser.add_argument(
        "--whisper", default="", help="checkpoint of speech, or a shape of build/random_checkpoint.py"
    )
    parser.add_argument("--seconds", type=float, help="of each case in each round; 1, rehearsal 0.05")
    parser.add_argument("--rounds", type=int, help="counted rounds; 3, rehearsal 1")
    options = parser.parse_args(given)
    options.parts = list(dict.fromkeys(name for name in options.parts.split(",") if name))
    unknown = [name for name in options.parts if name not in PARTS]
    if unknown or not options.parts:
        parser.error(f"--parts {','.join(unknown)}: known are {', '.join(PARTS)}")
    seconds, rounds = (1.0, 3) if options.device == "cuda" else (0.05, 1)
    options.seconds = seconds if options.seconds is None else options.seconds
    options.rounds = rounds if options.rounds is None else options.rounds
    if not (0 < options.seconds <= 3600 and options.rounds > 0):
        parser.error("--seconds must be above 0, at most 3600, and --rounds at least 1")
    if not 0 < options.limit_s <= 86_400:
        parser.error("--limit-s must be above 0, at most 86400")
    options.engines = options.engines or options.out / "engines"
    return options


def main(given: list[str] | None = None) -> int:
    """0 when no step and no part failed; what was skipped is no failure."""
    options = arguments(given)
    try:
        artefacts(options.device, options.whisper, options.artefact)  # a wrong name is told now
        about = machine(options.device)
        write(options.out, about, {})  # not being able to is told before anything is measured
    except (OperatorError, OSError) as error:
        print(f"gpu_check: {error} (--device cpu rehearses without a GPU)", file=sys.stderr)
        return 1
    adopt_orphans()
    parts: dict[str, Any] = {}
    for name in options.parts:
        parts[name] = measure_part(name, options)
        write(options.out, about, parts)  # after each part: a run that is cut off leaves what it has
    print(f"written: {options.out / 'gpu_check.json'}, {options.out / 'gpu_check.md'}")
    steps = [step for part in parts.values() for step in part["steps"].values()]
    return int(any("error" in one for one in [*parts.values(), *steps]))


if __name__ == "__main__":
    raise SystemExit(main())
