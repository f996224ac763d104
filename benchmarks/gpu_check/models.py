"""Makes models of random weights in torch: an image classifier, and the matrices of a language model.

    python -m benchmarks.gpu_check.models decode|vision OPTIONS.json

makes load in a process of its own: `decode` says READY and goes on until its input closes; `vision` measures
lone images and prints one line of JSON.
"""

from __future__ import annotations

import json
import select
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.gpu_check.measure import graph_of, synchronise
from benchmarks.gpu_check.steps import Options, Skipped

BUILD = Path(__file__).parents[2] / "build"
LAYERS, HIDDEN, WIDTH = 32, 4096, 28_672  # as many weights as an 8B model has in its matrices


def open_classifier(options: Options) -> Callable[[int, bool], Callable[[], object]]:
    """Makes a ResNet-50 (rehearsal: a small one); returns what makes a call of it: batch size, as CUDA graph.

    FP16 and channels-last (rehearsal: FP32). A call classifies a batch of bytes of the host: copied in,
    normalised, logits copied back.

    Raises:
        Skipped: transformers, whose ResNet it is, is not here.
    """
    import torch

    try:
        from transformers import ResNetConfig, ResNetForImageClassification
    except ImportError:
        raise Skipped("transformers is not here") from None
    small = {"layer_type": "basic", "embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 1]}
    make: Any = ResNetConfig
    config = make(num_labels=1000) if options.full else make(num_labels=10, **small)
    side = 224 if options.full else 32
    dtype = torch.float16 if options.full else torch.float32
    network: Any = ResNetForImageClassification(config).eval()
    network = network.to(device=options.device, dtype=dtype, memory_format=torch.channels_last)

    def opened(batch: int, graph: bool) -> Callable[[], object]:
        host = torch.randint(0, 256, (batch, 3, side, side), dtype=torch.uint8)
        host = host.pin_memory() if options.full else host
        pixels = host.to(options.device, copy=True)

        def forward() -> torch.Tensor:
            images = (pixels.to(dtype) * (1 / 255) - 0.45) * (1 / 0.225)
            images = images.contiguous(memory_format=torch.channels_last)
            logits: torch.Tensor = network(pixel_values=images).logits.float()
            return logits

        run_once = graph_of(torch, forward) if graph else forward

        def call() -> object:
            pixels.copy_(host, non_blocking=True)
            return run_once().cpu()  # waits

        return call

    return opened


def open_decoder(options: Options) -> tuple[int, Callable[[int], Callable[[], object]]]:
    """Makes matrices of random weights, as many bytes as an 8B model reads for each token.

    On a GPU with less memory as many layers as take half of what is free. Returns their bytes, and what makes
    a call of a batch size: it multiplies them all, as decoding one token of each stream does, and waits; as
    a CUDA graph on a GPU. Attention and sampling are left out.
    """
    import torch

    hidden, width, dtype = (HIDDEN, WIDTH, torch.bfloat16) if options.full else (64, 128, torch.float32)
    free = torch.cuda.mem_get_info()[0] if options.full else 0
    layers = max(2, min(LAYERS, free // (8 * hidden * width)))

    def random(rows: int, columns: int) -> torch.Tensor:
        return torch.randn(rows, columns, device=options.device, dtype=dtype)

    weights = [(random(hidden, width), random(width, hidden) / width**0.5) for _ in range(layers)]

    def step(batch: int) -> Callable[[], object]:
        rows = random(batch, hidden)

        def forward() -> torch.Tensor:
            x = rows
            for up, down in weights:
                x = torch.nn.functional.rms_norm(x @ up @ down, (hidden,))
            return x

        once = graph_of(torch, forward) if options.full else forward

        def call() -> object:
            found = once()
            synchronise(options.device)
            return found

        return call

    return sum(one.nbytes for layer in weights for one in layer), step


def main() -> None:
    import torch

    kind, given = sys.argv[1:]
    options = Options(**json.loads(given))
    with torch.inference_mode():
        if kind == "vision":
            print(json.dumps(options.time(open_classifier(options)(1, options.full))), flush=True)
            return
        step = open_decoder(options)[1](32 if options.full else 2)
        step()
        print("READY", flush=True)
        while not select.select([sys.stdin], [], [], 0)[0]:
            step()


if __name__ == "__main__":
    main()
