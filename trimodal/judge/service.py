"""Judges the pairs of a batch of requests, with one outcome a request.

A refused pair never harms its neighbours, and no pair moves another's score: tenants share a batch.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from trimodal.errors import InternalError, RequestError
from trimodal.judge.engines.protocol import PairJudge, Probabilities, open_engine
from trimodal.judge.settings import JudgeSettings
from trimodal.metrics import Metrics, counters
from trimodal.paths import for_libraries, judge_artefact
from trimodal.triton.fields import words

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
BATCHES = (1, 2, 4, 8, 16, 32, 64)


class JudgeService:
    """Checks the pairs of all requests of a batch, and judges the good ones together.

    Attributes:
        checkpoint: SHA-256 of what the engine was built from; "fake".
    """

    def __init__(self, engine: PairJudge, settings: JudgeSettings, metrics: Metrics) -> None:
        self._engine = engine
        self.checkpoint = engine.checkpoint
        self._settings = settings
        self._seconds = metrics.histogram("trimodal_judge_seconds", "One run of the judge", {}, SECONDS)
        self._batches = metrics.histogram(
            "trimodal_judge_batch_size", "Pairs in one run of the judge", {}, BATCHES
        )
        outcomes = ("judged", "refused")
        self._pairs = counters("trimodal_judge_pairs_total", metrics, "Pairs by outcome", "outcome", outcomes)

    @classmethod
    def open(cls, version: Path, settings: JudgeSettings, metrics: Metrics) -> JudgeService:
        """Opens the artefact that `settings` names and runs it once."""
        engine = open_engine(for_libraries(judge_artefact(version, settings.artefact)), settings)
        engine.judge([("warm", "warm up"), ("warm up " * 20, "up warm " * 20)])
        return cls(engine, settings, metrics)

    def judge(
        self, requests: Sequence[tuple[Sequence[bytes], Sequence[bytes]]]
    ) -> list[Probabilities | RequestError]:
        """P(same) float32[B] for each request of B pairs, or the error of its first bad text.

        Args:
            requests: `question` and `other` of each, UTF-8, pair by pair.
        """
        most = self._settings.max_bytes
        pairs: list[tuple[str, str]] = []
        parts: dict[int, slice] = {}
        outcomes: list[Probabilities | RequestError] = [InternalError("not judged")] * len(requests)
        for index, (questions, others) in enumerate(requests):
            try:
                good = [
                    (words("question", one, most), words("other", other, most))
                    for one, other in zip(questions, others, strict=True)
                ]
            except RequestError as error:
                self._pairs["refused"].increment(len(questions))
                outcomes[index] = error
                continue
            parts[index] = slice(len(pairs), len(pairs) + len(good))
            pairs += good
        if not pairs:
            return outcomes
        started = time.perf_counter()
        same = self._engine.judge(pairs)
        self._seconds.observe(time.perf_counter() - started)
        self._batches.observe(len(pairs))
        self._pairs["judged"].increment(len(pairs))
        for index, part in parts.items():
            outcomes[index] = same[part]
        return outcomes
