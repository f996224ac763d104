"""Fuzzes one target under atheris, guided by the lines it reaches, and says which lines of ours were reached.

The corpus that grows stays in the user's cache, so that the next run goes on from it; the seeds beside this
file are copied in first. atheris and coverage are of the extra `fuzz`.
"""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from tests.fuzz.targets.table import NAMES, target
from trimodal.paths import cache_directory

SEEDS = Path(__file__).parent / "corpus"
_HANG_S, _MEMORY_MB, _MOST_BYTES = 20, 4096, 4096
_MOST_KEPT = 1500  # bytes of a committed input
# What atheris' child runs: our modules are instrumented as they are imported.
_CHILD = """
import logging, sys, atheris
logging.disable(logging.CRITICAL)
name, arguments = sys.argv[1], sys.argv[2:]
with atheris.instrument_imports(include=["trimodal"]):
    from tests.fuzz.targets.table import target
    run = target(name).run
atheris.Setup([name, *arguments], run)
atheris.Fuzz()
"""


@dataclass(frozen=True)
class Reached:
    """Lines of one module that the corpus reaches, of those that could be."""

    module: str
    lines: int
    of: int
    missing: str

    def __str__(self) -> str:
        return f"{self.module:48} {self.lines:4} of {self.of:4}  {self.lines / self.of:4.0%}  {self.missing}"


def seeds(name: str) -> list[bytes]:
    """The committed corpus of a target, an input in base64 a line."""
    return [base64.b64decode(line) for line in (SEEDS / f"{name}.txt").read_text().splitlines()]


def keep(name: str) -> int:
    """Replaces the committed corpus by a few inputs of the one that grew; returns how many.

    Each reaches lines that those before it do not. Shorter inputs go first.
    """
    module, kept, known = target(name), [], set[tuple[str, int]]()
    found = {*seeds(name), *(file.read_bytes() for file in (cache_directory() / "fuzz" / name).glob("*"))}
    for one in sorted(found, key=lambda data: (len(data), data)):
        lines = _lines(module.run, one)
        if len(one) <= _MOST_KEPT and not lines <= known:
            known |= lines
            kept.append(one)
    (SEEDS / f"{name}.txt").write_text("".join(f"{base64.b64encode(one).decode()}\n" for one in kept))
    return len(kept)


def _lines(run: Callable[[bytes], None], data: bytes) -> set[tuple[str, int]]:
    """Lines of our package that an input reaches."""
    package, reached = str(_root() / "trimodal"), set()

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        file = frame.f_code.co_filename
        if not file.startswith(package):
            return None
        reached.add((file, frame.f_lineno))
        return trace

    sys.settrace(trace)
    try:
        run(data)
    finally:
        sys.settrace(None)
    return reached


def fuzz(name: str, seconds: int) -> int:
    """Runs atheris; returns its exit code: 0 where nothing was found. The input of a finding is kept."""
    corpus = cache_directory() / "fuzz" / name
    corpus.mkdir(parents=True, exist_ok=True)
    for seed in seeds(name):
        (corpus / hashlib.sha1(seed, usedforsecurity=False).hexdigest()).write_bytes(seed)
    limits = (
        f"-timeout={_HANG_S}",
        f"-rss_limit_mb={_MEMORY_MB}",
        f"-max_len={_MOST_BYTES}",
        f"-max_total_time={seconds}",
        f"-artifact_prefix={corpus.parent}/found-{name}-",
        "-print_final_stats=1",
        "-reload=0",
    )
    command = [sys.executable, "-c", _CHILD, name, *limits, str(corpus)]
    told = subprocess.run(command, capture_output=True, timeout=seconds * 2 + 120, cwd=_root(), env=_path())
    lines = (
        told.stderr.decode(errors="replace").splitlines() + told.stdout.decode(errors="replace").splitlines()
    )
    wanted = ("DONE", "Done", "INITED", "stat::number_of_executed", "stat::peak", "found-", "Broken", "Error")
    for line in lines:
        if any(word in line for word in wanted) and "warning" not in line.lower():
            print(line[:400])
    return told.returncode


def reached(name: str) -> list[Reached]:
    """Replays the corpus and measures which lines of the target's modules it reaches."""
    corpus = cache_directory() / "fuzz" / name
    code = f"from tests.fuzz.coverage import replay; replay({name!r}, {str(corpus)!r})"
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=_root(), env=_path()
    )
    if told.returncode:
        raise RuntimeError(told.stderr[-2000:])
    found = []
    for line in told.stdout.splitlines():
        if line.startswith("reached\t"):
            _, module, lines, of, missing = line.split("\t")
            found.append(Reached(module, int(lines), int(of), missing))
    return found


def replay(name: str, corpus: str) -> None:
    """In a process of its own: measures from before the imports."""
    import coverage

    measured = coverage.Coverage(data_file=None, include=[f"{_root()}/trimodal/*"], messages=False)
    measured.start()
    module = target(name)
    for file in sorted(Path(corpus).glob("*")):
        module.run(file.read_bytes())
    measured.stop()
    for one in module.MODULES:
        source = str(_root() / (one.replace(".", "/") + ".py"))
        _, statements, _, missing, shown = measured.analysis2(source)
        print("reached", one, len(statements) - len(missing), len(statements), shown, sep="\t")


def run(names: list[str], seconds: int) -> int:
    """Fuzzes each target for so long and prints what was reached; returns 1 where something was found."""
    failed = 0
    for name in names or list(NAMES):
        begun = time.monotonic()
        print(f"== {name}")
        code = fuzz(name, seconds)
        failed |= code != 0
        for one in reached(name):
            print(one)
        print(f"{name}: {time.monotonic() - begun:.0f} s, {'a finding' if code else 'nothing found'}")
    return int(bool(failed))


def _root() -> Path:
    return Path(__file__).parents[2]


def _path() -> dict[str, str]:
    paths = [str(_root()), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
