"""Runs Whisper's two TensorRT plans on the decode loop's tensors: torch's memory, torch's current stream.

A step has an execution context for each number of rows and length of audio, whose shapes and addresses never
change, as its CUDA graph wants. Names and shapes are those of build/steps/speech/static_export.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor

from trimodal.speech.engines.tensorrt.session import Plan, Runtime, TensorRTError
from trimodal.speech.engines.torch.forward import CROSS, NEW, PAST, Sizes
from trimodal.speech.whisper.graphs import layer_names

ENCODER, DECODER = "encoder.plan", "decoder.plan"


class TensorRTForward:
    """As torch.forward.Forward."""

    def __init__(self, directory: Path) -> None:
        """Raises TensorRTError: a plan is refused, or has not the tensors; OSError: it is unreadable."""
        runtime = Runtime()
        self._encoder, self._decoder = (Plan(directory / name, runtime) for name in (ENCODER, DECODER))
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


def expect(plan: str, found: Mapping[str, object], names: set[str]) -> None:
    """Raises: TensorRTError when a plan has not these tensors alone."""
    if wrong := sorted(names.symmetric_difference(found)):
        has = "has a" if wrong[0] in found else "lacks the"
        raise TensorRTError(f"{plan} {has} tensor {wrong[0]}, so it is no plan of this version")


def stream(tensor: Tensor) -> int:
    """The handle of the stream that torch uses now; 0 on the CPU, where a test stands in for TensorRT."""
    return torch.cuda.current_stream(tensor.device).cuda_stream if tensor.is_cuda else 0
