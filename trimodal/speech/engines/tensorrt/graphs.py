"""Runs Whisper's two TensorRT plans; the caches never leave the GPU.

Two sets of caches alternate: a run reads one and writes the other, longer by its tokens. No CUDA
graphs: the past grows with every token, so each step would need a graph of its own. Names and
shapes are those of build/steps/speech/onnx_export.py. One decoding at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from trimodal.speech.engines.tensorrt.memory import Memory, View
from trimodal.speech.engines.tensorrt.scores import Chooser, DeviceScores
from trimodal.speech.engines.tensorrt.session import Plan, Runtime, TensorRTError
from trimodal.speech.whisper.features import Features
from trimodal.speech.whisper.graphs import Floats, Tokens, layer_names

if TYPE_CHECKING:
    import torch

ENCODER, DECODER = "encoder.plan", "decoder.plan"
# Other inputs have the sizes of these: they decide on the decoder's profile.
CHOSEN_BY = ("tokens", "cross_key_0", "past_key_0")


class TensorRTGraphs:
    """Both plans of one model and the memory of their tensors, for batches and contexts up to a bound."""

    def __init__(
        self, directory: Path, *, max_batch: int, frames: int, places: int, device: str = "cuda"
    ) -> None:
        """Deserialises the plans and allocates for `max_batch` rows, `frames` of features, `places` tokens.

        Raises TensorRTError, OSError or torch.OutOfMemoryError: a plan is refused, unreadable or too large.
        """
        import torch

        self.memory = Memory(device)
        with self.memory.used():
            runtime = Runtime()
            self.encoder, self.decoder = (Plan(directory / name, runtime) for name in (ENCODER, DECODER))
            shapes = self.decoder.shapes
            self.layers = sum(name.startswith("past_key_") for name in shapes)
            _, self.heads, _, self.head_size = shapes["past_key_0"]
            self.vocabulary, self.aligned = shapes["logits"][1], shapes["alignment"][1]
            self.caches = layer_names("key_{}", "value_{}", layers=self.layers)
            self.bounds = max_batch, places
            width = max_batch * self.heads * self.head_size
            cache_type = torch.float16 if "past_key_0" in self.decoder.halves else torch.float32
            block = self.memory.block
            self.features = block(max_batch * self.encoder.shapes["features"][1] * frames, torch.float32)
            self.crossed = {f"cross_{name}": block(width * frames // 2, cache_type) for name in self.caches}
            self.sets = tuple(
                {name: block(width * places, cache_type) for name in self.caches} for _ in range(2)
            )
            self.tokens = block(max_batch * places, torch.int64)
            self.logits = block(max_batch * self.vocabulary, torch.float32)
            self.alignment = block(max_batch * self.aligned * frames // 2, torch.float32)  # of one token
            self.chooser = Chooser(self.memory, max_batch, self.vocabulary)

    def start(self, features: Features) -> TensorRTDecoding:
        """Encodes; a decoding of all rows, which ends the one before it."""
        rows, _, frames = features.shape
        positions = frames // 2
        with self.memory.used():
            profile = self.encoder.profile({"features": features.shape})
            given = self.memory.put(self.features, np.ascontiguousarray(features, np.float32))
            crossed = {
                name: View(
                    block,
                    (rows, self.heads, self.head_size, positions)
                    if name.startswith("cross_key_")
                    else (rows, self.heads, positions, self.head_size),
                )
                for name, block in self.crossed.items()
            }
            self.encoder.run(profile, {"features": given, **crossed}, self.memory.stream)
        return TensorRTDecoding(self, crossed, positions)

    def close(self) -> None:
        """Frees plans and memory; nothing runs any more."""
        self.encoder.close()
        self.decoder.close()
        del self.features, self.crossed, self.sets, self.tokens, self.logits, self.alignment, self.chooser

    def alignment_of(self, rows: int, count: int, positions: int) -> View:
        """Room for the alignment of `count` new tokens: of one, which is usual, it is there already."""
        shape = rows, self.aligned, count, positions
        if count == 1:
            return View(self.alignment, shape)
        import torch

        return View(self.memory.block(int(np.prod(shape)), torch.float32), shape)


class TensorRTDecoding:
    """Rows that are decoded together; all have had the same number of tokens."""

    def __init__(self, graphs: TensorRTGraphs, crossed: dict[str, View], positions: int) -> None:
        self._graphs = graphs
        self._crossed = crossed
        self._positions = positions
        self._past, self._next = graphs.sets
        self._scores: DeviceScores | None = None  # of the last step
        self.rows = crossed["cross_key_0"].shape[0]
        self.length = 0

    def step(self, tokens: Tokens) -> tuple[DeviceScores, Floats]:
        """As in graphs.Decoding. What the last step was asked for, this one chooses: one wait for all.

        Raises TensorRTError: more tokens than there are places, or TensorRT refuses the run.
        """
        graphs, count = self._graphs, tokens.shape[1]
        if self.length + count > graphs.bounds[1]:
            raise TensorRTError(f"{self.length + count} tokens, and there are {graphs.bounds[1]} places")
        with graphs.memory.used():
            given = graphs.memory.put(graphs.tokens, np.ascontiguousarray(tokens, np.int64))
            past, present = self._views(self._past, 0), self._views(self._next, count)
            logits = View(graphs.logits, (self.rows, graphs.vocabulary))
            alignment = graphs.alignment_of(self.rows, count, self._positions)
            inputs = {"tokens": given, **self._crossed}
            inputs |= {f"past_{name}": view for name, view in past.items()}
            outputs = {"logits": logits, "alignment": alignment, **present}
            profile = graphs.decoder.profile({name: inputs[name].shape for name in CHOSEN_BY})
            graphs.decoder.run(profile, inputs | outputs, graphs.memory.stream)
            self.length += count
            self._past, self._next = self._next, self._past
            banned = self._scores.asked if self._scores else None
            self._scores = DeviceScores(graphs.chooser, logits)
            (weights,) = (
                graphs.memory.fetch(alignment) if banned is None else self._scores.prepare(banned, alignment)
            )
        # Attention is kept until the text has ended; pinned memory is not for keeping.
        return self._scores, weights.copy()

    def keep(self, rows: Sequence[int]) -> None:
        """Drops all rows but these, whose numbers become 0, 1, …; copies on the device."""
        graphs = self._graphs
        with graphs.memory.used():
            for name, view in self._views(self._past, 0).items():
                graphs.memory.take(view, rows, into=self._next[name])
            self._past, self._next = self._next, self._past
            for name, view in self._crossed.items():
                self._crossed[name] = graphs.memory.take(view, rows, into=view.block)
        self.rows = len(rows)

    def _views(self, blocks: dict[str, torch.Tensor], more: int) -> dict[str, View]:
        graphs = self._graphs
        shape = self.rows, graphs.heads, self.length + more, graphs.head_size
        return {name: View(block, shape) for name, block in blocks.items()}
