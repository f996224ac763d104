"""Opens the weights of build/speech_torch.py: Whisper on any GPU that torch knows, or on the CPU."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from trimodal.errors import OperatorError, ServerError
from trimodal.manifest import Manifest
from trimodal.speech.settings import RecogniseSettings
from trimodal.speech.whisper.artefact import (
    SpeechShapes,
    open_artefact,
    read_network,
    read_tokens,
    unopened,
)  # fmt: skip
from trimodal.speech.whisper.buckets import bucket_sizes
from trimodal.speech.whisper.features import FRAMES_PER_S
from trimodal.speech.whisper.model import GraphWhisper
from trimodal.speech.whisper.rows import Rules

if TYPE_CHECKING:
    import torch

    from trimodal.speech.engines.torch.loop import DeviceGraphs
    from trimodal.speech.engines.torch.network import Whisper

WEIGHTS = "weights.pt"


def open_engine(directory: Path, settings: RecogniseSettings) -> GraphWhisper:
    """The weights in `directory` with the `tokenizer.json` beside them.

    On the CPU FP16 weights compute in FP32. Raises ArtefactError: damaged, or no memory; ServerError: torch
    or its GPU is missing; SettingsError: more than one beam.
    """
    manifest, shapes = open_artefact(directory, settings, runtime="torch")
    require_torch(settings.device)
    import torch

    if settings.device == "cpu" and settings.threads:
        torch.set_num_threads(settings.threads)
    return open_weights(directory, manifest, shapes, settings.max_batch_windows, device=settings.device)


def open_weights(
    directory: Path, manifest: Manifest, shapes: SpeechShapes, max_batch: int, *, device: str
) -> GraphWhisper:
    """The model, opened on torch's `device`. Raises ArtefactError: damaged, or no memory."""
    tokens = read_tokens(
        directory, manifest, shapes, multilingual=read_network(directory, manifest).multilingual
    )
    graphs = open_graphs(directory, manifest, shapes, bucket_sizes(max_batch), device=device)
    return GraphWhisper(graphs, tokens, shapes, max_batch=max_batch, one_at_a_time=True)


def open_graphs(
    directory: Path, manifest: Manifest, shapes: SpeechShapes, buckets: tuple[int, ...], *, device: str
) -> DeviceGraphs:
    """Networks and loop alone. Raises ArtefactError: damaged, or no memory."""
    from trimodal.speech.engines.torch.forward import TorchForward
    from trimodal.speech.engines.torch.loop import DeviceGraphs

    spec = read_network(directory, manifest)
    tokens = read_tokens(directory, manifest, shapes, multilingual=spec.multilingual)
    rules = Rules.of(tokens, spec, shapes.positions)
    frames = [round(context_s * FRAMES_PER_S) for context_s in shapes.contexts_s]
    try:
        network = load_network(directory, manifest, device=device)
        return DeviceGraphs(TorchForward(network), rules, buckets=buckets, frames=frames, device=device)
    except OperatorError:
        raise
    except Exception as error:  # Unreadable weights, of which torch raises many kinds; out of memory.
        raise unopened(directory, manifest, error) from None


def load_network(
    directory: Path, manifest: Manifest, *, device: str = "cpu", dtype: torch.dtype | None = None
) -> Whisper:
    """The weights as modules, in `dtype`: their own on a GPU, FP32 on the CPU. Raises: as torch.load."""
    import torch

    from trimodal.speech.engines.torch.network import Whisper

    dtype = dtype or (torch.float32 if device == "cpu" else None)
    weights = torch.load(directory / WEIGHTS, map_location="cpu", weights_only=True, mmap=True)
    weights = {name: each.to(device, dtype) for name, each in weights.items()}
    return Whisper(weights, read_network(directory, manifest).network)


def require_torch(device: str) -> None:
    """Raises: ServerError when torch cannot be imported, or has no GPU where `device` is one."""
    try:
        torch = import_module("torch")
    except ImportError as error:
        raise ServerError(
            f"the engine torch needs the Python package torch ({error}): install the one for this GPU's CUDA"
        ) from None
    if device == "cuda" and not torch.cuda.is_available():
        raise ServerError("the engine torch finds no GPU: torch.cuda.is_available() is false")
