"""Embeds texts with `tokenizers` and ONNX Runtime, on the processor or the GPU.

Pooling and normalisation are in the graph; the texts of a batch are grouped by
length, so that a long one does not make all the short ones pay for its padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trimodal.embedding.engines.protocol import Embedded
from trimodal.embedding.settings import EmbeddingSettings
from trimodal.manifest import read_manifest
from trimodal.runtimes.onnx_runner import Runner, open_model
from trimodal.runtimes.text_batches import groups, open_tokenizer, padded, shape_of


class OnnxRuntimeEmbedder:
    """One session and one tokenizer; calls may come from several threads."""

    def __init__(
        self, runner: Runner, tokenizer: Any, *, dimension: int, max_length: int, checkpoint: str
    ) -> None:
        self._runner = runner
        self._tokenizer = tokenizer
        self.specials = tokenizer.num_special_tokens_to_add(False)
        self.dimension = dimension
        self.max_tokens = max_length - self.specials
        self.checkpoint = checkpoint

    def embed(self, texts: Sequence[str]) -> Embedded:
        """Unit vectors float32[N, d] of `texts`; what is longer than `max_tokens` is cut."""
        encodings = self._tokenizer.encode_batch(list(texts), add_special_tokens=True)
        lengths = [len(encoding.ids) for encoding in encodings]
        vectors = np.empty((len(texts), self.dimension), np.float32)
        for group in groups(lengths):
            ids, mask = padded([encodings[index].ids for index in group])
            inputs = {"input_ids": ids, "attention_mask": mask}
            vectors[group] = self._runner.run(inputs, "sentence_embedding")
        cut = (sum(len(more.ids) - self.specials for more in e.overflowing) for e in encodings)
        tokens = (length - self.specials + more for length, more in zip(lengths, cut, strict=True))
        return Embedded(vectors, tuple(tokens))


def open_engine(directory: Path, settings: EmbeddingSettings) -> OnnxRuntimeEmbedder:
    """Opens a session on `model.onnx` and the `tokenizer.json` beside it.

    Raises ArtefactError: missing, damaged, refused or of another checkpoint; ServerError: no CUDA.
    """
    manifest = read_manifest(directory, task="embedding", runtime="onnxruntime")
    dimension, max_length = (shape_of(directory, manifest, name) for name in ("dimension", "max_length"))
    tokenizer = open_tokenizer(directory, manifest)
    tokenizer.enable_truncation(max_length)
    runner = open_model(directory, manifest, settings)
    return OnnxRuntimeEmbedder(
        runner,
        tokenizer,
        dimension=dimension,
        max_length=max_length,
        checkpoint=manifest.source_sha256,
    )
