"""Measures how long lone images wait while a language model decodes on the same GPU, with and without MPS."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

from trimodal.bench.gpu_check.steps import Run, Skipped, Step
from trimodal.errors import ServerError

MPS = "nvidia-cuda-mps-control"
LOAD = "trimodal.bench.gpu_check.load"
_S = 180.0


def _command(kind: str, run: Run) -> list[str]:
    given = {"device": run.device, "seconds": run.seconds, "rounds": run.rounds, "engines": str(run.engines)}
    return [sys.executable, "-m", LOAD, kind, json.dumps(given)]


def images(run: Run, environment: Mapping[str, str]) -> dict[str, Any]:
    """Figures of lone images in a process of its own. Raises ServerError: it failed."""
    asked = subprocess.run(
        _command("vision", run), capture_output=True, text=True, timeout=_S, env=environment
    )
    if asked.returncode:
        raise ServerError(f"the images' process failed: {asked.stderr.strip()[-300:]}")
    found: dict[str, Any] = json.loads(asked.stdout.splitlines()[-1])
    return found


@contextlib.contextmanager
def decoding(run: Run, environment: Mapping[str, str]) -> Iterator[None]:
    """A process that decodes meanwhile. Raises ServerError: it does not start."""
    with subprocess.Popen(
        _command("decode", run), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            if process.stdout.readline() != "READY\n":
                raise ServerError("the decoding process does not start: see above")
            yield
            process.stdin.close()
            process.wait(_S)
        finally:
            process.kill()


def without_mps(run: Run) -> Mapping[str, Any]:
    """Images alone, then beside decoding: two processes take turns on the GPU."""
    environment = dict(os.environ)
    found = {"alone": images(run, environment)}
    with decoding(run, environment):
        found["beside_decoding"] = images(run, environment)
    return {**found, **_times(found)}


def with_mps(run: Run) -> Mapping[str, Any]:
    """The same under NVIDIA's Multi-Process Service: kernels share the GPU; also with half for decoding."""
    if not shutil.which(MPS):
        raise Skipped(f"{MPS} is not installed")
    with tempfile.TemporaryDirectory(prefix="trimodal-mps-") as folder:
        environment = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        started = subprocess.run([MPS, "-d"], env=environment, capture_output=True, text=True, timeout=60)
        if started.returncode:
            raise Skipped(f"{MPS} does not start: {(started.stderr or started.stdout).strip()[:200]}")
        try:
            found = {"alone": images(run, environment)}
            with decoding(run, environment):
                found["beside_decoding"] = images(run, environment)
            half = {**environment, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50"}
            with decoding(run, half):
                found["beside_decoding_on_half"] = images(run, environment)
        finally:
            subprocess.run([MPS], input="quit\n", env=environment, text=True, capture_output=True, timeout=60)
    return {**found, **_times(found)}


def _times(found: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """How many times as long the p99 is as alone."""
    alone = found["alone"]["p99"]
    return {f"p99_ratio_{name}": one["p99"] / alone for name, one in found.items() if name != "alone"}


STEPS = (Step("time_slices", without_mps, ("torch",)), Step("mps", with_mps, ("torch",), gpu=True))
