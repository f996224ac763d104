"""Captures a decode step as a CUDA graph; where that fails, the step goes on as it is."""

from __future__ import annotations

import logging
from collections.abc import Callable

import torch

Step = Callable[[], None]
logger = logging.getLogger(__name__)


class StepCapture:
    """Captures steps on one stream, in one pool of memory; after the first failure none any more."""

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self._stream = stream
        self._pool = torch.cuda.graph_pool_handle()
        self._failed = False

    def __call__(self, step: Step) -> Step:
        """What replays `step`, or `step` itself. Runs it, too, so what it works on is not kept.

        Raises:
            RuntimeError: the step does not run at all.
        """
        # Run before: libraries make what they keep, TensorRT takes the shapes, none of which may be captured.
        for _ in range(2):
            step()
        if self._failed:
            return step
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
                step()
        except RuntimeError as error:
            # torch 2.13 leaves the pool open after this: the next capture in it would fail, too.
            self._failed = True
            # Refuses a GPU that has failed for good, which torch tells late: graphs are not all there is.
            step()
            self._stream.synchronize()
            cause = error.__context__ or error  # what fails in a capture makes its end fail
            reason = str(cause).strip().split("\n")[0][:200]
            logger.warning(
                "no CUDA graph of a decode step (%s): steps are launched one by one, which is slower", reason
            )
            return step
        replay: Step = graph.replay
        return replay
