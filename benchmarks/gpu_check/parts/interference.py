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
from dataclasses import asdict
from typing import Any

from benchmarks.gpu_check.steps import Options, Skipped, Step
from trimodal.errors import ServerError

MPS = "nvidia-cuda-mps-control"
LIMIT_S = 180.0
MODELS = (sys.executable, "-m", "benchmarks.gpu_check.models")


def images(options: Options, environment: Mapping[str, str]) -> dict[str, Any]:
    """Figures of lone images in a process of its own. Raises ServerError: it failed."""
    command = [*MODELS, "vision", json.dumps(asdict(options))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, env=environment)
    if done.returncode:
        raise ServerError(f"the images' process failed: {done.stderr.strip()[-300:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@contextlib.contextmanager
def decoding(options: Options, environment: Mapping[str, str]) -> Iterator[None]:
    """A process that decodes meanwhile. Raises ServerError: it does not start."""
    command = [*MODELS, "decode", json.dumps(asdict(options))]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline() != "READY\n":
                raise ServerError("the decoding process does not start: see above")
            yield
        finally:
            process.kill()


def beside_decoding(options: Options, environment: Mapping[str, str], share: str = "") -> dict[str, Any]:
    """Images alone, then beside decoding, under MPS once more where it gets this share of the GPU."""
    found = {"alone": images(options, environment)}
    for name in ("beside_decoding", *(["beside_decoding_on_a_share"] if share else [])):
        limit = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": share} if name.endswith("share") else {}
        with decoding(options, {**environment, **limit}):
            found[name] = images(options, environment)
        found[name]["p99_ratio"] = found[name]["p99"] / found["alone"]["p99"]
    return found


def without_mps(options: Options) -> Mapping[str, Any]:
    """Two processes take turns on the GPU."""
    return beside_decoding(options, os.environ)


def with_mps(options: Options) -> Mapping[str, Any]:
    """Under NVIDIA's Multi-Process Service kernels share the GPU; also with half of it for decoding."""
    if not shutil.which(MPS):
        raise Skipped(f"{MPS} is not installed")
    with tempfile.TemporaryDirectory(prefix="trimodal-mps-") as folder:
        environment = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        started = subprocess.run([MPS, "-d"], env=environment, capture_output=True, text=True, timeout=60)
        if started.returncode:
            raise Skipped(f"{MPS} does not start: {(started.stderr or started.stdout).strip()[:200]}")
        try:
            return beside_decoding(options, environment, share="50")
        finally:
            subprocess.run([MPS], input="quit\n", env=environment, text=True, capture_output=True, timeout=60)


STEPS = (Step("time_slices", without_mps, ("torch",)), Step("mps", with_mps, ("torch",), gpu=True))
