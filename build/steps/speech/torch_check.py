"""Runs a built torch Whisper for the comparison with transformers: its encoder, and the decode loop."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from steps.speech.check import Encode, Write
from steps.speech.checkpoint import Checkpoint

from trimodal.manifest import read_manifest
from trimodal.speech.engines.torch.engine import load_network
from trimodal.speech.engines.torch.forward import TorchForward
from trimodal.speech.engines.torch.loop import DeviceGraphs
from trimodal.speech.whisper.artefact import read_shapes
from trimodal.speech.whisper.buckets import bucket_sizes
from trimodal.speech.whisper.features import FRAMES_PER_S, Features
from trimodal.speech.whisper.graphs import Floats
from trimodal.speech.whisper.rows import Row, Rules


def runtime(directory: Path, checkpoint: Checkpoint, most_rows: int) -> tuple[Encode, Write]:
    """The built network's encoder, and its decode loop without the serving engine's own limits."""
    import torch

    manifest = read_manifest(directory, task="speech", runtime="torch")
    shapes = read_shapes(directory, manifest)
    network = load_network(directory, manifest)
    never, not_first = checkpoint.suppressed()
    end = checkpoint.token_id("<|endoftext|>")
    rules = Rules(end=end, never=never, not_first=not_first, positions=shapes.positions)
    frames = [round(context_s * FRAMES_PER_S) for context_s in shapes.contexts_s]
    graphs = DeviceGraphs(
        TorchForward(network), rules, buckets=bucket_sizes(most_rows), frames=frames, device="cpu"
    )

    def encode(features: Features) -> Floats:
        with torch.inference_mode():
            return np.asarray(network.encoder(torch.from_numpy(features)).numpy())

    def write(features: Features, prompt: list[int]) -> list[list[int]]:
        rows = [Row(most_tokens=shapes.positions) for _ in features]
        decoding = graphs.start(features)
        decoding.open(np.array([prompt] * len(rows), np.int64), 0)
        decoding.write(rows, 0.0)
        return [row.tokens for row in rows]

    return encode, write
