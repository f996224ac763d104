"""A double of CUDA graphs on the CPU: records a function's operators once, and replays them alone.

As in a CUDA graph, nothing of the host is asked again: what a replay reads and writes are the tensors that
were there when it was recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# A value of the host becomes a tensor: on a GPU a copy and a wait, which fail the capture.
FROM_HOST = torch.ops.aten.lift_fresh.default


class _Recorder(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert func is not FROM_HOST, "a value of the host in what is captured"
        made = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, made))
        return made

    def replay(self) -> None:
        for func, args, kwargs, made in self.calls:
            for before, now in zip(tree_leaves(made), tree_leaves(func(*args, **kwargs)), strict=True):
                assert isinstance(before, torch.Tensor), f"{func} gives the host {before}"
                if before.data_ptr() != now.data_ptr():
                    before.copy_(now)


def freeze(step: Callable[[], None]) -> Callable[[], None]:
    """Runs it once, and returns what does the same on the same tensors."""
    recorder = _Recorder()
    with recorder:
        step()
    return recorder.replay


class Graphs:
    """torch.cuda's own: the captures, counted from 0, of which `refused` fail.

    Attributes:
        captures, replays: that there were.
        broken: the GPU has failed for good, which a wait for it tells.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, refused: range = range(0)) -> None:
        self.captures = self.replays = 0
        self.broken = False
        self._refused = refused
        monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 1))
        monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: _Graph(self))
        monkeypatch.setattr(torch.cuda, "graph", self._capture)

    def synchronize(self) -> None:
        """As of a stream."""
        if self.broken:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    @contextmanager
    def _capture(self, graph: _Graph, *, pool: object, stream: object) -> Iterator[None]:
        assert (pool, stream) == ((0, 1), self)
        number, self.captures = self.captures, self.captures + 1
        try:
            with graph.recorder:
                yield
            if number in self._refused:
                raise RuntimeError("operation not permitted when stream is capturing\nCompile with ...")
        finally:
            if number in self._refused:
                raise RuntimeError("operation failed due to a previous error during capture")


class _Graph:
    def __init__(self, graphs: Graphs) -> None:
        self.recorder = _Recorder()
        self._graphs = graphs

    def replay(self) -> None:
        self._graphs.replays += 1
        self.recorder.replay()
