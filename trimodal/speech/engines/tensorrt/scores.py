"""Finds the most probable token of each row on the GPU.

A choice is two small vectors; logits float32[rows, vocabulary] would be megabytes to copy. The mask of each
set of banned tokens is made once and kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trimodal.speech.engines.tensorrt.memory import Memory, View
from trimodal.speech.whisper.graphs import Floats, Tokens

if TYPE_CHECKING:
    import torch


class Chooser:
    """Chooses for steps of up to so many rows; its memory is allocated once, but for vectors of [rows]."""

    def __init__(self, memory: Memory, max_batch: int, vocabulary: int) -> None:
        import torch

        self.memory = memory
        self._vocabulary = vocabulary
        self._scratch = memory.block(max_batch * vocabulary, torch.float32)
        # One for each set of banned tokens; a model has two: at the beginning of a text, and after.
        self._masks: dict[bytes, View] = {}

    def choose(self, logits: View, banned: Tokens) -> tuple[View, View]:
        """Tokens int64[rows] and log-probabilities float32[rows], in order with the runs; waits for none.

        Of equal maxima the first: numpy and torch.max both document that they return it.
        """
        import torch

        masked = View(self._scratch, logits.shape).tensor
        torch.add(logits.tensor, self._mask(banned).tensor, out=masked)
        peaks, tokens = masked.max(1)
        # The best is itself the peak: its log-probability is what log-sum-exp adds to that, negative.
        log_probabilities = masked.sub_(peaks[:, None]).exp_().sum(1).log_().neg_()
        return _vector(tokens), _vector(log_probabilities)

    def _mask(self, banned: Tokens) -> View:
        """float32[vocabulary] on the device: -inf where banned, else 0."""
        import torch

        key = banned.tobytes()
        if key not in self._masks:
            values = np.zeros(self._vocabulary, np.float32)
            values[banned] = -np.inf
            block = self.memory.block(self._vocabulary, torch.float32)
            self._masks[key] = self.memory.put(block, values)
        return self._masks[key]


class DeviceScores:
    """Scores of one step, whose logits stay on the device unless they are asked for.

    `asked`: which banned tokens best() was called with last; the next step is likely to be asked the same.
    """

    def __init__(self, chooser: Chooser, logits: View) -> None:
        self.asked: Tokens | None = None
        self._chooser = chooser
        self._logits = logits
        self._choices: dict[bytes, tuple[Tokens, Floats]] = {}

    def best(self, banned: Tokens) -> tuple[Tokens, Floats]:
        """As in graphs.Scores."""
        if banned.tobytes() not in self._choices:
            self.prepare(banned)
        self.asked = banned
        return self._choices[banned.tobytes()]

    def numpy(self) -> Floats:
        """As in graphs.Scores."""
        memory = self._chooser.memory
        with memory.used():
            (logits,) = memory.fetch(self._logits)
        return logits

    def prepare(self, banned: Tokens, *others: View) -> list[NDArray[Any]]:
        """Makes the choice that best() will be asked for, and fetches it and `others`: one wait for all."""
        memory = self._chooser.memory
        with memory.used():
            choice = self._chooser.choose(self._logits, banned)
            tokens, log_probabilities, *fetched = memory.fetch(*choice, *others)
        self._choices[banned.tobytes()] = tokens, log_probabilities
        return fetched


def _vector(values: torch.Tensor) -> View:
    return View(values, (len(values),))
