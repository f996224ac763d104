"""Judges the pairs of a batch of requests, with one outcome a request.

A refused pair never harms its neighbours, and no pair moves another's score: tenants share a batch.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from trimodal.errors import InternalError, InvalidArgument, RequestError
from trimodal.judge.engines.protocol import PairJudge, Pairs, Probabilities, open_engine
from trimodal.judge.settings import JudgeSettings
from trimodal.metrics import Metrics, counters
from trimodal.paths import judge_artefact
from trimodal.triton.fields import decode

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
BATCHES = (1, 2, 4, 8, 16, 32, 64)

Questions = tuple[Sequence[bytes], Sequence[bytes]]
"""A request's `question` and `other`, UTF-8, pair by pair."""


class JudgeService:
    """Checks the pairs of all requests of a batch, and judges the good ones together."""

    def __init__(self, engine: PairJudge, settings: JudgeSettings, metrics: Metrics) -> None:
        self._engine = engine
        self._settings = settings
        self._seconds = metrics.histogram("trimodal_judge_seconds", "One run of the judge", {}, SECONDS)
        self._batches = metrics.histogram(
            "trimodal_judge_batch_size", "Pairs in one run of the judge", {}, BATCHES
        )
        outcomes = ("judged", "too_long", "refused")
        self._pairs = counters("trimodal_judge_pairs_total", metrics, "Pairs by outcome", "outcome", outcomes)

    @classmethod
    def open(cls, version: Path, settings: JudgeSettings, metrics: Metrics) -> JudgeService:
        """Opens the artefact that `settings` names and runs it once."""
        engine = open_engine(judge_artefact(version, settings.artefact), settings)
        engine.judge([("warm", "warm up"), ("warm up " * 20, "up warm " * 20)])
        return cls(engine, settings, metrics)

    def judge(self, requests: Sequence[Questions]) -> list[Probabilities | RequestError]:
        """P(same) float32[B] for each request of B pairs, or the error of its first bad text.

        A pair that is longer than the model can read gets 0.
        """
        pairs: list[tuple[str, str]] = []
        parts: dict[int, slice] = {}
        outcomes: list[Probabilities | RequestError] = [InternalError("not judged")] * len(requests)
        for index, (questions, others) in enumerate(requests):
            try:
                good = [
                    (self._text("question", one), self._text("other", other))
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
        same = self._run(pairs)
        for index, part in parts.items():
            outcomes[index] = same[part]
        return outcomes

    def _run(self, pairs: Pairs) -> Probabilities:
        started = time.perf_counter()
        judged = self._engine.judge(pairs)
        self._seconds.observe(time.perf_counter() - started)
        self._batches.observe(len(pairs))
        self._pairs["judged"].increment(sum(judged.fits))
        self._pairs["too_long"].increment(len(pairs) - sum(judged.fits))
        return judged.same

    def _text(self, name: str, data: bytes) -> str:
        if len(data) > self._settings.max_bytes:
            raise InvalidArgument(
                f"{name}: {len(data)} bytes; at most {self._settings.max_bytes} are accepted"
            )
        text = decode(name, data)
        if not text.strip():
            raise InvalidArgument(f"{name}: empty; at least one word is needed")
        return text
