"""Text embedder on `tokenizers` and ONNX Runtime's CPU provider.

Pooling and normalisation are in the graph; the texts of a batch are grouped by
length, so that a long one does not make all the short ones pay for its padding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trimodal.embedding.engine import Embedded
from trimodal.embedding.settings import EmbeddingSettings
from trimodal.errors import ArtefactError
from trimodal.manifest import Manifest, read_manifest

MODEL = "model.onnx"
TOKENIZER = "tokenizer.json"
# A text may be padded by half its length and 8 tokens: below that, a run of its own costs more.
PADDING_SHARE, PADDING_TOKENS = 1.5, 8


class OnnxRuntimeEmbedder:
    """One session and one tokenizer; calls may come from several threads."""

    def __init__(self, session: Any, tokenizer: Any, *, dimension: int, max_length: int) -> None:
        self._session = session
        self._tokenizer = tokenizer
        self._specials = tokenizer.num_special_tokens_to_add(False)
        self.dimension = dimension
        self.max_tokens = max_length - self._specials

    def embed(self, texts: Sequence[str]) -> Embedded:
        """Unit vectors float32[N, d] of `texts`; what is longer than `max_tokens` is cut."""
        encodings = self._tokenizer.encode_batch(list(texts), add_special_tokens=True)
        lengths = [len(encoding.ids) for encoding in encodings]
        vectors = np.empty((len(texts), self.dimension), np.float32)
        for group in groups(lengths):
            ids = np.zeros((len(group), max(lengths[index] for index in group)), np.int64)
            mask = np.zeros_like(ids)
            for row, index in enumerate(group):
                ids[row, : lengths[index]] = encodings[index].ids
                mask[row, : lengths[index]] = 1
            inputs = {"input_ids": ids, "attention_mask": mask}
            (vectors[group],) = self._session.run(["sentence_embedding"], inputs)
        cut = (sum(len(more.ids) - self._specials for more in e.overflowing) for e in encodings)
        tokens = (length - self._specials + more for length, more in zip(lengths, cut, strict=True))
        return Embedded(vectors, tuple(tokens))


def groups(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Indices in order of length, parted where padding the shortest of a group would be too much."""
    group: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        if group and lengths[index] > PADDING_SHARE * lengths[group[0]] + PADDING_TOKENS:
            yield group
            group = []
        group.append(index)
    if group:
        yield group


def open_engine(directory: Path, settings: EmbeddingSettings) -> OnnxRuntimeEmbedder:
    """A session on `model.onnx` and the `tokenizer.json` beside it.

    Raises:
        ArtefactError: missing, damaged, or refused by the runtime.
    """
    manifest = read_manifest(directory, task="embedding", runtime="onnxruntime")
    import onnxruntime
    import tokenizers

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = settings.threads
    options.inter_op_num_threads = 1
    # Triton's own threads, the LLM's engine and the client share these cores: no thread may spin.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    dimension, max_length = (
        _shape(directory, manifest, "dimension"),
        _shape(directory, manifest, "max_length"),
    )
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(directory / TOKENIZER))
        tokenizer.no_padding()
        tokenizer.enable_truncation(max_length)
        session = onnxruntime.InferenceSession(
            str(directory / MODEL), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # Neither library has a common base for its errors.
        raise ArtefactError(
            f"the embedder in {directory} cannot be opened ({type(error).__name__}): "
            f"build again with: {manifest.command}"
        ) from None
    return OnnxRuntimeEmbedder(session, tokenizer, dimension=dimension, max_length=max_length)


def _shape(directory: Path, manifest: Manifest, name: str) -> int:
    value = manifest.shapes.get(name)
    if not isinstance(value, int) or value < 1:
        raise ArtefactError(f"{directory}/manifest.json is damaged (shapes.{name}): build the engine again")
    return value
