"""Runs the vision bench's baseline: the same network in torch, as a user without Triton would tune it.

On CUDA in FP16, channels-last, cuDNN's fastest algorithms, one captured CUDA graph a batch size
and page-locked inputs; on the processor in FP32, channels-last. Weights are random: their values
do not change the time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from trimodal.bench.common.closed_loop import Works, some
from trimodal.errors import ArtefactError
from trimodal.paths import default_repository
from trimodal.runtimes.onnx_session import Device
from trimodal.vision.artefact import ClassifierArtefact, read_classifier
from trimodal.vision.engines.protocol import Pixels

WARM_UPS = 3  # before a graph is captured: cuDNN tries its algorithms in the first


def open_torch(directory: Path, device: Device, threads: int, pixels: Pixels) -> Works:
    """`torch` on a batch of `pixels` uint8[N, 3, H, W]; opened in a process of its own.

    Raises:
        ArtefactError: torch or the networks of build/ are not there, or the network is none of them.
    """
    try:
        import torch
    except ImportError:
        raise ArtefactError("--torch needs torch: pip install 'trimodal[build]'") from None
    network = _network(read_classifier(directory))
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


def _network(artefact: ClassifierArtefact) -> Any:
    """Makes the network of the artefact's architecture, of build/steps/vision/models.py."""
    folder = str(default_repository().resolve().parent / "build")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        models = import_module("steps.vision.models")
    except ImportError as error:
        raise ArtefactError(f"--torch needs the networks in {folder} ({error})") from None
    architecture = str(artefact.manifest.extra.get("architecture"))
    if architecture not in models.ARCHITECTURES:
        raise ArtefactError(f"--torch: {artefact.directory} is no network of build/ ({architecture})")
    return models.make(architecture, len(artefact.labels), artefact.input)


def capture(
    torch: Any, forward: Callable[[Any], Any], images: Any, device: str = "cuda"
) -> Callable[[Any], Any]:
    """`forward` as a CUDA graph for batches of this size: images of the host → logits of the host."""
    page_locked = torch.empty(images.shape, dtype=images.dtype, pin_memory=device == "cuda")
    on_gpu = images.to(device, copy=True)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UPS):
            forward(on_gpu)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        logits = forward(on_gpu)

    def replay(images: Any) -> Any:
        page_locked.copy_(images)
        on_gpu.copy_(page_locked, non_blocking=True)
        graph.replay()
        return logits.cpu()  # waits

    return replay
