"""Makes load on a GPU, in a process of its own: steps as a language model decodes, or single images.

    python -m trimodal.bench.gpu_check.load decode|vision RUN.json

`decode` says READY and goes on until its input closes; `vision` measures and prints one line of JSON.
"""

from __future__ import annotations

import json
import select
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimodal.bench.common.cuda_graph import graph_of
from trimodal.bench.gpu_check.steps import Run
from trimodal.bench.gpu_check.timing import synchronise, timed


@dataclass(frozen=True)
class Shape:
    """Dimensions of a decoder's matrices."""

    hidden: int
    ffn: int
    kv: int
    layers: int
    vocabulary: int

    @property
    def parameters(self) -> int:
        attention = 2 * self.hidden * (self.hidden + self.kv)
        return self.layers * (attention + 3 * self.hidden * self.ffn) + self.hidden * self.vocabulary


LLAMA_8B = Shape(4096, 14336, 1024, 32, 128256)
TINY = Shape(64, 128, 32, 2, 512)


def fitting(shape: Shape, free_bytes: int) -> Shape:
    """The shape with as many layers as take half of the free memory in 16 bits."""
    layers = shape.layers
    while (
        layers > 1
        and 2 * Shape(shape.hidden, shape.ffn, shape.kv, layers, shape.vocabulary).parameters
        > free_bytes // 2
    ):
        layers -= 1
    return Shape(shape.hidden, shape.ffn, shape.kv, layers, shape.vocabulary)


class DecodeSteps:
    """The matrices of a decoder with random weights.

    A step multiplies them all, as decoding one token of each of `batch` streams does; attention and
    sampling are left out.
    """

    def __init__(self, run: Run) -> None:
        import torch

        self.shape = TINY
        if run.full:
            self.shape = fitting(LLAMA_8B, torch.cuda.mem_get_info()[0])
        self._device, dtype = run.device, torch.bfloat16 if run.full else torch.float32

        def matrix(rows: int, columns: int) -> torch.Tensor:
            return torch.empty(rows, columns, device=run.device, dtype=dtype).normal_(0, rows**-0.5)

        one = self.shape
        self._layers = [
            (
                matrix(one.hidden, one.hidden + 2 * one.kv),
                matrix(one.hidden, one.hidden),
                matrix(one.hidden, 2 * one.ffn),
                matrix(one.ffn, one.hidden),
            )
            for _ in range(one.layers)
        ]
        self._head = matrix(one.hidden, one.vocabulary)
        self._dtype = dtype

    @property
    def bytes(self) -> int:
        """Read in each step."""
        return self.shape.parameters * self._head.element_size()

    def step(self, batch: int) -> Callable[[], object]:
        """A call that computes one step and waits for it; as a CUDA graph on a GPU."""
        import torch

        hidden = self.shape.hidden
        rows = torch.randn(batch, hidden, device=self._device, dtype=self._dtype)

        def forward() -> torch.Tensor:
            x = rows
            for qkv, out, up, down in self._layers:
                x = torch.nn.functional.rms_norm(x + (x @ qkv)[:, :hidden] @ out, (hidden,))
                gate, value = (x @ up).chunk(2, dim=1)
                x = torch.nn.functional.rms_norm(
                    x + (torch.nn.functional.silu(gate) * value) @ down, (hidden,)
                )
            return (x @ self._head).argmax(1)

        once = graph_of(torch, forward) if self._device == "cuda" else forward

        def call() -> object:
            found = once()
            synchronise(self._device)
            return found

        return call


def decode(run: Run) -> None:
    """Decodes for 32 streams until the input closes."""
    import torch

    with torch.inference_mode():
        step = DecodeSteps(run).step(32 if run.full else 2)
        step()
        print("READY", flush=True)
        while not select.select([sys.stdin], [], [], 0)[0]:
            step()


def vision(run: Run) -> None:
    """Prints the latency of lone images, one after the other."""
    import torch

    from trimodal.bench.gpu_check.networks import network, open_torch

    model, side = network(run)
    dtype = torch.float16 if run.full else torch.float32
    model = model.to(device=run.device, dtype=dtype, memory_format=torch.channels_last)
    with torch.inference_mode():
        call = open_torch(run, 1, model, side, graph=run.full)
        print(json.dumps(timed(call, items=1, seconds=run.seconds, rounds=run.rounds)), flush=True)


def main() -> None:
    kind, given = sys.argv[1:]
    values: dict[str, Any] = json.loads(given)
    run = Run(values["device"], values["seconds"], values["rounds"], Path(values["engines"]))
    {"decode": decode, "vision": vision}[kind](run)


if __name__ == "__main__":
    main()
