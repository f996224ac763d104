"""Judges pairs with a cross-encoder on ONNX Runtime, on the processor or the GPU.

Both questions are one sequence of the model. A pair that is longer than it can read is not cut: what
differs may lie in the part that nobody would have read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from trimodal.judge.alignment import differ_untold, token_types
from trimodal.judge.engines.protocol import Pairs, Probabilities
from trimodal.judge.readings import alike, known_words, read
from trimodal.judge.settings import JudgeSettings
from trimodal.manifest import read_manifest
from trimodal.runtimes.onnx_runner import Runner, open_model
from trimodal.runtimes.text_batches import groups, open_tokenizer, padded, shape_of


class OnnxRuntimeJudge:
    """One session and one tokenizer; calls may come from several threads."""

    def __init__(self, runner: Runner, tokenizer: Any, *, max_length: int, checkpoint: str) -> None:
        self._runner = runner
        self._tokenizer = tokenizer
        self._known = known_words(tokenizer.get_vocab())
        self._max_length = max_length
        self.checkpoint = checkpoint

    def judge(self, pairs: Pairs) -> Probabilities:
        """P(same) float32[N] of `pairs`; 1 for those that are read alike, which need no model.

        0 for those that differ in what no token tells the model.
        """
        read_pairs = [read(one, other, self._known) for one, other in pairs]
        encodings = self._tokenizer.encode_batch(read_pairs, add_special_tokens=True)
        lengths = [len(encoding.ids) for encoding in encodings]
        same = np.zeros(len(lengths), np.float32)
        fitting = [index for index, length in enumerate(lengths) if length <= self._max_length]
        equal = [index for index in fitting if alike(*read_pairs[index])]
        same[equal] = 1
        reading = [
            index
            for index in fitting
            if index not in equal and not differ_untold(encodings[index], read_pairs[index])
        ]
        for group in groups([lengths[index] for index in reading]):
            rows = [reading[place] for place in group]
            ids, mask = padded([encodings[index].ids for index in rows])
            types, _ = padded([token_types(encodings[index]) for index in rows])
            inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
            logits = np.asarray(self._runner.run(inputs, "logit"), np.float32).reshape(-1)
            same[rows] = 1 / (1 + np.exp(-np.clip(logits, -80, 80)))
        return same


def open_engine(directory: Path, settings: JudgeSettings) -> OnnxRuntimeJudge:
    """Opens a session on `model.onnx` and the `tokenizer.json` beside it.

    Raises ArtefactError: missing, damaged, refused or of another checkpoint; ServerError: no CUDA.
    """
    manifest = read_manifest(directory, task="judge", runtime="onnxruntime")
    max_length = shape_of(directory, manifest, "max_length")
    tokenizer = open_tokenizer(directory, manifest)
    runner = open_model(directory, manifest, settings)
    return OnnxRuntimeJudge(runner, tokenizer, max_length=max_length, checkpoint=manifest.source_sha256)
