"""Runs the vision bench's baseline: the same network in torch, as a user without Triton would tune it.

On CUDA in FP16, channels-last, cuDNN's fastest algorithms, one captured CUDA graph a batch size
and page-locked inputs; on the processor in FP32, channels-last. Weights are random: their values
do not change the time.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from trimodal.bench.common.closed_loop import Works, some
from trimodal.bench.common.cuda_graph import graph_of
from trimodal.bench.common.networks import open_network
from trimodal.errors import ArtefactError
from trimodal.runtimes.onnx_session import Device
from trimodal.vision.artefact import read_classifier
from trimodal.vision.engines.protocol import Pixels


def open_torch(directory: Path, device: Device, threads: int, pixels: Pixels) -> Works:
    """`torch` on a batch of `pixels` uint8[N, 3, H, W]; opened in a process of its own.

    Raises:
        ArtefactError: torch or the networks of build/ are not there, or the network is none of them.
    """
    try:
        import torch
    except ImportError:
        raise ArtefactError("--torch needs torch: pip install 'trimodal[build]'") from None
    network = open_network(read_classifier(directory), None, "--torch")
    torch.set_num_threads(threads)
    torch.backends.cudnn.benchmark = True
    dtype = torch.float16 if device == "cuda" else torch.float32
    network = network.eval().to(device=device, dtype=dtype, memory_format=torch.channels_last)

    def forward(images: Any) -> Any:
        normalised = (images.to(dtype) * (1 / 255) - 0.45) * (1 / 0.225)
        return network(normalised.contiguous(memory_format=torch.channels_last)).float()

    captured: dict[int, Callable[[Any], Any]] = {}

    def run(batch: int, number: int) -> None:
        images = torch.from_numpy(pixels[some(range(len(pixels)), number, batch)])
        with torch.inference_mode():
            if device == "cpu":
                forward(images)
                return
            if batch not in captured:
                captured[batch] = capture(torch, forward, images)
            captured[batch](images)

    return {"torch": run}


def capture(
    torch: Any, forward: Callable[[Any], Any], images: Any, device: str = "cuda"
) -> Callable[[Any], Any]:
    """`forward` as a CUDA graph for batches of this size: images of the host → logits of the host."""
    page_locked = torch.empty(images.shape, dtype=images.dtype, pin_memory=device == "cuda")
    on_gpu = images.to(device, copy=True)
    run = graph_of(torch, lambda: forward(on_gpu))

    def replay(images: Any) -> Any:
        page_locked.copy_(images)
        on_gpu.copy_(page_locked, non_blocking=True)
        return run().cpu()  # waits

    return replay
