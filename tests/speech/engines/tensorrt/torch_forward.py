"""Runs Whisper's network in torch for the decode loop on the CPU: a double of TensorRT's plans.

What it runs are torch's operators, so a step can be recorded as a CUDA graph would be (frozen.py).
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from tests.builders.scripts import importable
from tests.speech.whisper.checkpoints import CONTEXTS_S
from trimodal.speech.engines.graphs.model import GraphWhisper
from trimodal.speech.engines.graphs.rows import Rules, bucket_sizes
from trimodal.speech.engines.tensorrt.forward import CROSS, NEW, PAST, Sizes, layer_names
from trimodal.speech.engines.tensorrt.loop import DeviceGraphs
from trimodal.speech.whisper.artefact import GenerationSpec, SpeechShapes
from trimodal.speech.whisper.tokens import WhisperTokens


class TorchForward:
    """Forward by the modules that the plans are traced from."""

    def __init__(self, network: Any) -> None:
        self._network = network
        vocabulary, width = network.decoder.embed_tokens.weight.shape
        heads = network.decoder.layers[0].self_attn.heads
        self.sizes = Sizes(
            layers=len(network.decoder.layers),
            heads=heads,
            head=width // heads,
            aligned=sum(map(len, network.decoder.aligned)),
            vocabulary=vocabulary,
            places=network.decoder.embed_positions.num_embeddings,
            mel_bins=network.encoder.conv1.in_channels,
            cache=torch.float32,
        )
        self._caches = layer_names(*CROSS, *PAST, layers=self.sizes.layers)
        self._crossed, self._made = (layer_names(*names, layers=self.sizes.layers) for names in (CROSS, NEW))

    def encode(self, features: Tensor, outputs: Mapping[str, Tensor]) -> None:
        found = self._network.crossed(self._network.encoder(features))
        for name, value in zip(self._crossed, found, strict=True):
            outputs[name].copy_(value)

    def decode(self, inputs: Mapping[str, Tensor], outputs: Mapping[str, Tensor]) -> None:
        given = [inputs[name] for name in ("tokens", "index", "wanted", *self._caches)]
        for name, value in zip(
            ("logits", "alignment", *self._made), self._network.decoder(*given), strict=True
        ):
            outputs[name].copy_(value)

    def close(self) -> None:
        del self._network


def load(directory: Path) -> Any:
    """The checkpoint as the builds read it."""
    with mock.patch.dict(os.environ), importable():
        return importlib.import_module("steps.speech.checkpoint").load(directory, "x")


def open_on_torch(
    directory: Path,
    max_batch: int = 8,
    *,
    contexts_s: list[float] = CONTEXTS_S,
    suppressed: tuple[int, ...] = (),
) -> GraphWhisper:
    """The checkpoint in `directory`, as the engine tensorrt decodes it."""
    checkpoint = load(directory)
    shapes = SpeechShapes.model_validate(checkpoint.shapes(contexts_s))
    tokens = WhisperTokens(directory, shapes.languages, multilingual=checkpoint.multilingual)
    _, not_first = checkpoint.suppressed()
    spec = GenerationSpec(
        multilingual=checkpoint.multilingual, suppressed=suppressed, suppressed_first=tuple(not_first)
    )
    with mock.patch.dict(os.environ), importable():
        forward = TorchForward(checkpoint.network())
    frames = [round(context_s * 100) for context_s in contexts_s]
    rules = Rules.of(tokens, spec, shapes.positions)
    graphs = DeviceGraphs(forward, rules, buckets=bucket_sizes(max_batch), frames=frames, device="cpu")
    return GraphWhisper(graphs, tokens, shapes, max_batch=max_batch)
