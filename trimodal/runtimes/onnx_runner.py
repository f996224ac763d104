"""Runs an ONNX graph on arrays of the host; with CUDA one session a batch size.

A session of its own for each batch size, because ONNX Runtime's convolution on CUDA keeps cuDNN's
plan for the last shape alone since 1.20 (its issue 23006): batches of changing sizes in one
session would be planned anew each time, which costs more than running them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from trimodal.errors import ServerError
from trimodal.manifest import Manifest
from trimodal.runtimes.gpu_fit import check_checkpoint
from trimodal.runtimes.onnx_session import Device, OnnxSettings, first_line, open_session

MODEL = "model.onnx"
Array = NDArray[Any]


class Runner(Protocol):
    """A graph that is ready to run; calls may come from several threads."""

    def run(self, inputs: Mapping[str, Array], output: str) -> Array:
        """The named output, an array of the host to keep. Raises: ServerError: the GPU cannot run it."""


def open_model(
    directory: Path,
    manifest: Manifest,
    settings: OnnxSettings,
    sizes: Sequence[int] = (),
    host_rows: int = 0,
) -> Runner:
    """Runs the artefact's `model.onnx` as the settings say; `sizes` and `host_rows` as in `make_runner`.

    Raises ArtefactError: of another checkpoint than is pinned, or refused; ServerError: no CUDA.
    """
    check_checkpoint(directory, manifest, settings.checkpoint_sha256)
    open_one = partial(
        open_session, directory / MODEL, device=settings.device, threads=settings.threads,
        command=manifest.command,
    )  # fmt: skip
    return make_runner(open_one, settings.device, sizes, host_rows)


def make_runner(
    open_one: Callable[[], Any], device: Device, sizes: Sequence[int] = (), host_rows: int = 0
) -> Runner:
    """The best way to run a graph on that device; `open_one` gives a new session.

    `sizes`, of a graph with convolutions, are the batch sizes that are run on CUDA: batches between them are
    filled up, larger ones are parted. Empty: batches of every size in one session. On the processor batches
    of more than `host_rows` are parted; 0: none.
    """
    if device == "cpu":
        return HostRunner(open_one(), host_rows)
    sessions = {size: open_one() for size in sorted(set(sizes))} or {0: open_one()}
    return CudaRunner(sessions)


class HostRunner:
    """Runs a session of the processor, on at most `most` rows at once; 0: on all."""

    def __init__(self, session: Any, most: int = 0) -> None:
        self._session = session
        self._most = most

    def run(self, inputs: Mapping[str, Array], output: str) -> Array:
        rows = len(next(iter(inputs.values())))
        if not self._most or rows <= self._most:
            return self._run(inputs, output)
        parts = [slice(at, at + self._most) for at in range(0, rows, self._most)]
        return np.concatenate(
            [self._run({name: array[part] for name, array in inputs.items()}, output) for part in parts]
        )

    def _run(self, inputs: Mapping[str, Array], output: str) -> Array:
        (outputs,) = self._session.run(
            [output], {name: np.ascontiguousarray(array) for name, array in inputs.items()}
        )
        return np.asarray(outputs)


class CudaRunner:
    """Runs sessions of the GPU, one call after the other: they would take turns there anyway.

    `sessions` is batch size → session, in order of size; 0: every size.
    """

    def __init__(self, sessions: Mapping[int, Any]) -> None:
        self._sessions = sessions
        self._busy = threading.Lock()

    def run(self, inputs: Mapping[str, Array], output: str) -> Array:
        rows = len(next(iter(inputs.values())))
        most = max(self._sessions) or rows
        with self._busy:
            outputs = [
                self._run({name: array[at : at + most] for name, array in inputs.items()}, output)
                for at in range(0, rows, most)
            ]
        return outputs[0] if len(outputs) == 1 else np.concatenate(outputs)

    def _run(self, inputs: Mapping[str, Array], output: str) -> Array:
        rows = len(next(iter(inputs.values())))
        size = 0 if 0 in self._sessions else min(size for size in self._sessions if size >= rows)
        filled = {name: _filled(array, size or rows) for name, array in inputs.items()}
        try:
            (result,) = self._sessions[size].run([output], filled)
        except Exception as error:  # ONNX Runtime has no common base for its errors.
            # cuDNN is looked for at the first convolution, memory at the first batch of a size: in a warm-up.
            raise ServerError(
                f"the GPU fails on a batch of {size or rows} ({first_line(error)}): "
                "`trimodal doctor --profile cuda` tells what is missing"
            ) from error
        return np.asarray(result)[:rows]


def _filled(array: Array, size: int) -> Array:
    """The array, with zeros up to `size` rows."""
    if len(array) == size:
        return np.ascontiguousarray(array)
    filled = np.zeros((size, *array.shape[1:]), array.dtype)
    filled[: len(array)] = array
    return filled
