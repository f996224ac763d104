"""Makes the image classifier that parts and loads run in torch, with random weights."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trimodal.bench.common.cuda_graph import graph_of
from trimodal.bench.gpu_check.steps import Run, Skipped

BUILD = Path(__file__).parents[3] / "build"


def network(run: Run) -> tuple[Any, int]:
    """A ResNet-50 (rehearsal: the demo's small one) with random weights for eval, and its picture's side.

    Raises:
        Skipped: the networks of build/ are not here.
    """
    sys.path.insert(0, str(BUILD))
    try:
        from steps.vision.networks import BasicBlock, Bottleneck, ResNet
    except ModuleNotFoundError:
        raise Skipped(f"{BUILD}/steps/vision/networks.py is not here") from None
    if run.full:
        model, side = ResNet(Bottleneck, (3, 4, 6, 3), (64, 128, 256, 512), num_classes=1000), 224
    else:
        model, side = ResNet(BasicBlock, (1, 1, 1), (16, 32, 64), small=True, num_classes=10), 32
    return model.eval(), side


def open_torch(run: Run, batch: int, model: Any, side: int, *, graph: bool) -> Callable[[], object]:
    """A call that classifies a batch of bytes of the host: copied in, normalised, logits copied back."""
    import torch

    host = torch.randint(0, 256, (batch, 3, side, side), dtype=torch.uint8)
    host = host.pin_memory() if run.full else host
    pixels = host.to(run.device, copy=True)
    dtype = torch.float16 if run.full else torch.float32

    def forward() -> torch.Tensor:
        images = (pixels.to(dtype) * (1 / 255) - 0.45) * (1 / 0.225)
        logits: torch.Tensor = model(images.contiguous(memory_format=torch.channels_last)).float()
        return logits

    run_once = graph_of(torch, forward) if graph else forward

    def call() -> object:
        pixels.copy_(host, non_blocking=True)
        return run_once().cpu()  # waits

    return call
