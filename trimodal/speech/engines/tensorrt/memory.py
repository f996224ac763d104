"""Allocates once the torch tensors that TensorRT plans read and write, and holds the stream of all runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from trimodal.manifest import Shape

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class View:
    """The first elements of a flat tensor, taken as `shape`.

    TensorRT wants an address of every input, of empty ones too, and torch names none for an empty tensor:
    so the address is the block's. torch aligns blocks of its own to 512 bytes; TensorRT wants 256.
    """

    block: torch.Tensor
    shape: Shape

    @property
    def address(self) -> int:
        return self.block.data_ptr()

    @property
    def tensor(self) -> torch.Tensor:
        """The same elements, in the shape."""
        return self.block[: prod(self.shape)].view(self.shape)


class Memory:
    """Allocates and copies on one device, in order with the runs on `stream`."""

    def __init__(self, device: str) -> None:
        """`device` is torch's name: cuda, or cpu where a test stands in for TensorRT."""
        import torch

        self._device = torch.device(device)
        # Not the default stream: TensorRT would synchronise the whole device around every run.
        stream: Callable[[torch.device], torch.cuda.Stream] = torch.cuda.Stream
        self._stream = stream(self._device) if self._device.type == "cuda" else None

    @property
    def stream(self) -> int:
        """The stream's handle, as execute_async_v3 takes it."""
        return self._stream.cuda_stream if self._stream else 0

    def used(self) -> AbstractContextManager[Any]:
        """Inside, what torch does is in order with the plans' runs."""
        import torch

        return torch.cuda.stream(self._stream) if self._stream else nullcontext()

    def block(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """A flat tensor of at least one element."""
        import torch

        return torch.empty(max(count, 1), dtype=dtype, device=self._device)

    def put(self, block: torch.Tensor, values: NDArray[Any]) -> View:
        """Copies values, converted to its type, to the beginning of a block."""
        import torch

        view = View(block, values.shape)
        view.tensor.copy_(torch.from_numpy(values))
        return view

    def fetch(self, *views: View) -> list[NDArray[Any]]:
        """Copies to the host and waits for all that was asked before; pinned where the device is a GPU."""
        import torch

        copies = []
        for view in views:
            dtype = view.block.dtype
            host = torch.empty(view.shape, dtype=dtype, pin_memory=self._stream is not None)
            copies.append(host.copy_(view.tensor, non_blocking=True))
        if self._stream:
            self._stream.synchronize()
        return [copy.numpy() for copy in copies]

    def take(self, view: View, rows: Sequence[int], into: torch.Tensor) -> View:
        """These rows of `view` at the beginning of a block, which may be its own."""
        import torch

        taken = View(into, (len(rows), *view.shape[1:]))
        index = torch.tensor(rows, dtype=torch.int64, device=self._device)
        if into is view.block:
            taken.tensor.copy_(torch.index_select(view.tensor, 0, index))
        else:
            torch.index_select(view.tensor, 0, index, out=taken.tensor)
        return taken
