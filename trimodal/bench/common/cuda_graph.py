"""Captures torch functions as CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

WARM_UPS = 3  # before a graph is captured: cuDNN and cuBLAS try their algorithms in the first


def graph_of(torch: Any, forward: Callable[[], Any]) -> Callable[[], Any]:
    """Returns a call that replays `forward` as one CUDA graph and gives its result, which stays in place.

    `forward` reads tensors of the GPU that stay in place, too: new values are copied into them.
    """
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UPS):
            forward()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = forward()

    def replay() -> Any:
        graph.replay()
        return result

    return replay
