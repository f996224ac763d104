"""Runs Whisper's two TensorRT plans on the decode loop's tensors: torch's memory, torch's current stream.

A step has an execution context for each number of rows and length of audio, whose shapes and addresses never
change, as its CUDA graph wants. Names and shapes are those of build/steps/speech/export.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from trimodal.runtimes.tensorrt_session import Runtime, TensorRTError, TensorRTSession, stream

ENCODER, DECODER = "encoder.plan", "decoder.plan"
CROSS = ("cross_key_{}", "cross_value_{}")
PAST = ("past_key_{}", "past_value_{}")
NEW = ("key_{}", "value_{}")


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of a decoder: layers, heads, head size, alignment heads, vocabulary, places, and its caches' type."""

    layers: int
    heads: int
    head: int
    aligned: int
    vocabulary: int
    places: int
    mel_bins: int
    cache: torch.dtype


class Forward(Protocol):
    """The two networks, run on tensors that are given: results are written where `outputs` say.

    All tensors are contiguous and on one device; runs are in order with torch's current stream.
    """

    @property
    def sizes(self) -> Sizes:
        """The decoder's."""

    def encode(self, features: Tensor, outputs: Mapping[str, Tensor]) -> None:
        """Features float32[batch, mel, frames] → cross_key_i, cross_value_i."""

    def decode(self, inputs: Mapping[str, Tensor], outputs: Mapping[str, Tensor]) -> None:
        """tokens, index, wanted and caches → logits, alignment, key_i, value_i."""

    def close(self) -> None:
        """Frees the weights."""


class TensorRTForward:
    """Forward by the plans in an artefact's directory."""

    def __init__(self, directory: Path) -> None:
        """Raises TensorRTError: a plan is refused, or has not the tensors; OSError: it is unreadable."""
        runtime = Runtime()
        self._encoder, self._decoder = (
            TensorRTSession(directory / name, runtime) for name in (ENCODER, DECODER)
        )
        shapes = self._decoder.shapes
        layers = sum(name.startswith("past_key_") for name in shapes)
        crossed = layer_names(*CROSS, layers=max(layers, 1))
        expect(ENCODER, self._encoder.shapes, {"features", *crossed})
        caches = layer_names(*PAST, *NEW, layers=max(layers, 1))
        expect(DECODER, shapes, {"tokens", "index", "wanted", "logits", "alignment", *crossed, *caches})
        _, heads, places, head = shapes["past_key_0"]
        self.sizes = Sizes(
            layers=layers,
            heads=heads,
            head=head,
            aligned=shapes["alignment"][1],
            vocabulary=shapes["logits"][2],
            places=places,
            mel_bins=self._encoder.shapes["features"][1],
            cache=torch.float16 if "past_key_0" in self._decoder.halves else torch.float32,
        )
        free = [name for name, size in asdict(self.sizes).items() if isinstance(size, int) and size < 1]
        if free:
            raise TensorRTError(f"the plans leave free what is fixed: {', '.join(free)}")

    def encode(self, features: Tensor, outputs: Mapping[str, Tensor]) -> None:
        """As in Forward. Raises TensorRTError: no profile holds the features, or TensorRT refuses the run."""
        self._encoder.run(
            ("features", features.shape[2]), {"features": features, **outputs}, stream(features)
        )

    def decode(self, inputs: Mapping[str, Tensor], outputs: Mapping[str, Tensor]) -> None:
        """As in Forward. Raises TensorRTError: no profile holds the tokens, or TensorRT refuses the run."""
        rows, count = inputs["tokens"].shape
        # An opening has a length of its own each time: those of one size share a context.
        step = count == len(inputs["wanted"]) == 1
        key = "step" if step else "opening", rows, inputs["cross_key_0"].shape[3]
        self._decoder.run(key, {**inputs, **outputs}, stream(inputs["tokens"]))

    def close(self) -> None:
        """As in Forward."""
        self._encoder.close()
        self._decoder.close()


def layer_names(*patterns: str, layers: int) -> list[str]:
    """The patterns with the number of each layer in turn."""
    return [pattern.format(layer) for layer in range(layers) for pattern in patterns]


def expect(plan: str, found: Mapping[str, object], names: set[str]) -> None:
    """Raises: TensorRTError when a plan has not these tensors alone."""
    if wrong := sorted(names.symmetric_difference(found)):
        has = "has a" if wrong[0] in found else "lacks the"
        raise TensorRTError(f"{plan} {has} tensor {wrong[0]}, so it is no plan of this version")
