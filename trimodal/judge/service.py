"""Judges the pairs of a batch of requests. No pair moves another's score: tenants share a batch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trimodal.errors import RequestError
from trimodal.judge.engines.protocol import PairJudge, Probabilities, open_engine
from trimodal.judge.settings import JudgeSettings
from trimodal.metrics import Metrics
from trimodal.paths import for_libraries, judge_artefact
from trimodal.runtimes.shared_runs import SharedRuns
from trimodal.triton.fields import words

Texts = tuple[Sequence[bytes], Sequence[bytes]]


class JudgeService:
    """Checks the pairs of all requests of a batch, and judges the good ones together.

    Attributes:
        checkpoint: SHA-256 of what the engine was built from; "fake".
    """

    def __init__(self, engine: PairJudge, settings: JudgeSettings, metrics: Metrics) -> None:
        self._engine = engine
        self.checkpoint = engine.checkpoint
        self._most = settings.max_bytes
        self._runs = SharedRuns(metrics, "trimodal_judge", "the judge", "Pairs", "judged", span="judge")

    @classmethod
    def open(cls, version: Path, settings: JudgeSettings, metrics: Metrics) -> JudgeService:
        """Opens the artefact that `settings` names and runs it once."""
        engine = open_engine(for_libraries(judge_artefact(version, settings.artefact)), settings)
        engine.judge([("warm", "warm up"), ("warm up " * 20, "up warm " * 20)])
        return cls(engine, settings, metrics)

    def judge(self, requests: Sequence[Texts]) -> list[Probabilities | RequestError]:
        """P(same) float32[B] for each request of B pairs, or the error of its first bad text.

        Args:
            requests: `question` and `other` of each, UTF-8, pair by pair.
        """
        return self._runs.run(requests, lambda texts: len(texts[0]), self._pairs, self._engine.judge)

    def _pairs(self, texts: Texts) -> list[tuple[str, str]]:
        most = self._most
        pairs = zip(*texts, strict=True)
        return [(words("question", one, most), words("other", other, most)) for one, other in pairs]
