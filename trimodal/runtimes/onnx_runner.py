"""Runs an ONNX graph on arrays of the host; with CUDA through page-locked memory, one session a batch size.

The GPU reads page-locked memory by itself; of other memory the driver makes a copy first.
ONNX Runtime's Python API gives none for CUDA (1.31), so buffers are locked by CUDA's own call.

A session of its own for each batch size, because ONNX Runtime's convolution on CUDA keeps cuDNN's
plan for the last shape alone since 1.20 (its issue 23006): batches of changing sizes in one
session would be planned anew each time, which costs more than running them.
"""

from __future__ import annotations

import ctypes
import logging
import mmap
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from trimodal.errors import ServerError
from trimodal.runtimes.onnx_session import Device, first_line

logger = logging.getLogger(__name__)

Array = NDArray[Any]
_NOT_LOCKED = "memory is not page-locked, copies are slower: %s"
PORTABLE = 1  # cudaHostRegisterPortable: locked for every context of the process


class Runner(Protocol):
    """A graph that is ready to run; calls may come from several threads."""

    def run(self, inputs: Mapping[str, Array], output: str) -> Array:
        """The named output for these inputs: an array of the host that the caller may keep.

        Raises:
            ServerError: the GPU cannot run it.
        """


def make_runner(open_one: Callable[[], Any], device: Device, sizes: Sequence[int] = ()) -> Runner:
    """The best way to run a graph on that device.

    Args:
        open_one: a new session, as `open_session` gives.
        sizes: of a graph with convolutions: the batch sizes that are run on CUDA. Batches between
            them are filled up, larger ones are parted. Empty: batches of every size in one session.
    """
    if device == "cpu":
        return HostRunner(open_one())
    sessions = {size: open_one() for size in sorted(set(sizes))} or {0: open_one()}
    return CudaRunner(sessions, cuda_runtime())


class HostRunner:
    """Runs a session of the processor."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def run(self, inputs: Mapping[str, Array], output: str) -> Array:
        (outputs,) = self._session.run(
            [output], {name: np.ascontiguousarray(array) for name, array in inputs.items()}
        )
        return np.asarray(outputs)


class CudaRunner:
    """Runs sessions of the GPU, one call after the other: they would take turns there anyway.

    Args:
        sessions: batch size → session, in order of size; 0: every size. library: CUDA's runtime, or None.
    """

    def __init__(self, sessions: Mapping[int, Any], library: Any) -> None:
        self._sessions = sessions
        self._library = library
        self._warned = False
        self._buffers: dict[str, PageLocked] = {}
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
        session = self._sessions[size]
        staged = {name: self._staged(name, array, size or rows) for name, array in inputs.items()}
        try:
            binding = session.io_binding()
            for name, array in staged.items():
                binding.bind_cpu_input(name, array)  # copies to the GPU now
            binding.bind_output(output, "cpu")
            session.run_with_iobinding(binding)
            (result,) = binding.copy_outputs_to_cpu()
        except Exception as error:  # ONNX Runtime has no common base for its errors.
            # cuDNN is looked for at the first convolution, memory at the first batch of a size: in a warm-up.
            raise ServerError(
                f"the GPU fails on a batch of {size or rows} ({first_line(error)}): "
                "`trimodal doctor --profile cuda` tells what is missing"
            ) from error
        return np.asarray(result)[:rows]

    def _staged(self, name: str, array: Array, size: int) -> Array:
        """`array` with zeros up to `size` rows, in this input's page-locked buffer, which grows as needed."""
        shape = (size, *array.shape[1:])
        wanted = int(np.prod(shape)) * array.itemsize
        buffer = self._buffers.get(name)
        if buffer is None or buffer.size < wanted:
            buffer = self._buffers[name] = PageLocked(wanted, self._library)
            if buffer.error and not self._warned:
                self._warned = True
                logger.warning(_NOT_LOCKED, f"cudaHostRegister gives CUDA error {buffer.error}")
        staged = buffer.array(shape, array.dtype)
        staged[: len(array)] = array
        staged[len(array) :] = 0
        return staged


def cuda_runtime() -> Any:
    """The CUDA runtime library that ONNX Runtime has loaded; None, and a warning, where there is none."""
    import onnxruntime

    try:
        return ctypes.CDLL(f"libcudart.so.{str(onnxruntime.cuda_version).partition('.')[0]}")
    except OSError as error:
        logger.warning(_NOT_LOCKED, error)
        return None


class PageLocked:
    """Host memory of whole pages, locked by `cudaHostRegister` as long as the object lives.

    Attributes:
        size: bytes that may be used.
        error: CUDA's code where it could not be locked: copies are only slower then.
    """

    def __init__(self, size: int, library: Any) -> None:
        self.size = max(size, 1)
        self.error = 0
        self._library = library
        self._locked = False
        # Anonymous memory of its own: a page that is shared with other objects would be locked under them.
        self._bytes: NDArray[np.uint8] = np.frombuffer(mmap.mmap(-1, self.size), np.uint8)
        if library:
            address, flags = ctypes.c_void_p(self._bytes.ctypes.data), ctypes.c_uint(PORTABLE)
            self.error = library.cudaHostRegister(address, ctypes.c_size_t(self.size), flags)
            self._locked = not self.error
        if self.error:
            library.cudaGetLastError()  # else the next kernel would report it as its own

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """The first bytes as an array; valid until the next `array`."""
        used = int(np.prod(shape)) * dtype.itemsize
        return self._bytes[:used].view(dtype).reshape(shape)

    def __del__(self) -> None:
        if self._locked:
            self._library.cudaHostUnregister(ctypes.c_void_p(self._bytes.ctypes.data))
