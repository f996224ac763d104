"""Recognises the windows of many requests: runs of the engine, guards against hallucinations, one retry.

Each request has one outcome. A request that is refused, or that the engine fails on, does not affect the
others in its batch.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from trimodal.audio.values import SAMPLE_RATE
from trimodal.errors import RequestError, SettingsError, as_request_error
from trimodal.metrics import Metrics, counters
from trimodal.speech.engines.protocol import SpeechEngine, open_engine
from trimodal.speech.recognise.hallucinations import GUARDS, RETRIED, rejected_by
from trimodal.speech.recognise.request import Recognised, RecogniseRequest
from trimodal.speech.settings import RecogniseSettings
from trimodal.speech.values import Recognition, Window, batches
from trimodal.speech.whisper.features import room, smallest_context
from trimodal.speech.whisper.word_timestamps import without_silence_before

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
BATCHES = (1, 2, 4, 8, 16, 32, 64)


@dataclass(slots=True)
class _Task:
    """One window on its way; `heard` or `error` is set at the end."""

    window: Window
    context_s: float
    heard: Recognition | None = None
    error: RequestError | None = None
    batch_size: int = 0


class RecogniseService:
    """Runs the engine on the windows of a batch of requests. One thread at a time."""

    def __init__(self, engine: SpeechEngine, settings: RecogniseSettings, metrics: Metrics) -> None:
        if settings.language and settings.language not in engine.languages:
            raise SettingsError(
                f"speech_recognize: parameter 'language' = {settings.language!r}: "
                f"the model knows {', '.join(engine.languages)}"
            )
        self._engine = engine
        self._settings = settings
        self._longest = round(engine.contexts_s[-1] * SAMPLE_RATE)
        name = "trimodal_speech_"
        self._seconds = metrics.histogram(
            f"{name}recognize_seconds", "One run of the recogniser", {}, SECONDS
        )
        self._batches = metrics.histogram(
            f"{name}batch_size", "Windows in one run of the recogniser", {}, BATCHES
        )
        self._audio = metrics.counter(f"{name}audio_seconds_total", "Audio recognised", {})
        self._retries = metrics.counter(
            f"{name}fallbacks_total", "Windows decoded again because a guard rejected them", {}
        )
        told, outcomes = "Windows by what came of them", ("heard", "empty", "rejected", "refused", "failed")
        self._windows = counters(f"{name}windows_total", metrics, told, "outcome", outcomes)
        told = "Windows emptied by a guard"
        self._rejected = counters(f"{name}rejected_total", metrics, told, "guard", GUARDS)

    @classmethod
    def open(cls, version: Path, settings: RecogniseSettings, metrics: Metrics) -> RecogniseService:
        """Opens the artefact that `settings` names and runs it once in each context.

        On a GPU also with a full batch, whose kernels are chosen then. Whisper base on a processor, 8 windows
        of 30 s: the first run takes the 10 s of a core that every other takes.
        """
        engine = open_engine((version / settings.artefact).resolve(), settings)
        service = cls(engine, settings, metrics)
        counts = {1} if settings.device == "cpu" else {1, settings.max_batch_windows}
        for context_s in engine.contexts_s:
            samples = room(context_s, engine.contexts_s[-1])
            quiet = Window(np.zeros(samples, np.float32), engine.languages[0])
            for count in sorted(counts):
                engine.recognise([quiet] * count)
        return service

    def close(self) -> None:
        """Frees the engine."""
        self._engine.close()

    def recognise(self, requests: Sequence[RecogniseRequest]) -> list[Recognised | RequestError]:
        """What was heard in each request's windows, or the error of its first bad one."""
        outcomes: list[list[_Task] | RequestError] = []
        for request in requests:
            try:
                outcomes.append(self._tasks(request))
            except RequestError as error:
                self._windows["refused"].increment(max(1, len(request.windows)))
                outcomes.append(error)
        tasks = [task for outcome in outcomes if isinstance(outcome, list) for task in outcome]
        self._run_all(tasks, 0.0)
        self._guard(tasks)
        for task in tasks:
            self._count(task)
        return [
            outcome if isinstance(outcome, RequestError) else self._result(outcome) for outcome in outcomes
        ]

    def _tasks(self, request: RecogniseRequest) -> list[_Task]:
        windows = request.checked(self._longest, self._engine.languages)
        context_s = smallest_context(self._engine.contexts_s, request.windows.shape[1])
        default = self._settings.language
        return [
            _Task(window if window.language else replace(window, language=default), context_s)
            for window in windows
        ]

    def _run_all(self, tasks: Sequence[_Task], temperature: float) -> None:
        """Runs of one context and at most `max_batch_windows` each."""
        for batch in batches(tasks, lambda task: task.context_s, self._settings.max_batch_windows):
            self._run(batch, temperature)

    def _run(self, tasks: Sequence[_Task], temperature: float) -> None:
        """One run. If it fails, its windows are run one by one.

        So one window that the engine cannot bear, or a batch that does not fit into
        memory, costs the others a delay and not their answer.
        """
        started = time.perf_counter()
        try:
            heard = self._engine.recognise([task.window for task in tasks], temperature)
            if len(heard) != len(tasks):
                raise RuntimeError(f"{len(tasks)} windows were run and {len(heard)} results came back")
        except Exception as error:
            if len(tasks) > 1:
                for task in tasks:
                    self._run([task], temperature)
            else:
                tasks[0].error = as_request_error(error)
            return
        self._seconds.observe(time.perf_counter() - started)
        self._batches.observe(len(tasks))
        for task, one in zip(tasks, heard, strict=True):
            words = without_silence_before(one.words, task.window.samples)
            task.heard, task.batch_size = replace(one, words=words), task.batch_size or len(tasks)

    def _guard(self, tasks: Sequence[_Task]) -> None:
        """Empties what is not believed; windows that another decoding may help get one together first."""
        doubted: list[tuple[_Task, Recognition]] = []
        for task in tasks:
            if task.heard is None:
                continue
            guard = rejected_by(task.heard, self._settings)
            if guard in RETRIED and self._settings.fallback_temperature > 0:
                doubted.append((task, task.heard))
            elif guard:
                task.heard = replace(task.heard, words=(), rejected=guard)
        if not doubted:
            return
        self._retries.increment(len(doubted))
        self._run_all([task for task, _ in doubted], self._settings.fallback_temperature)
        for task, first in doubted:
            # A retry that failed leaves the window as the first decoding left it: rejected.
            again, task.error = task.heard or first, None
            guard = rejected_by(again, self._settings)
            task.heard = replace(again, words=(), rejected=guard) if guard else again

    def _count(self, task: _Task) -> None:
        if task.heard is None:
            self._windows["failed"].increment(1)
            return
        self._audio.increment(len(task.window.samples) / SAMPLE_RATE)
        if task.heard.rejected:
            self._rejected[task.heard.rejected].increment(1)
            self._windows["rejected"].increment(1)
        else:
            self._windows["heard" if task.heard.words else "empty"].increment(1)

    @staticmethod
    def _result(tasks: Sequence[_Task]) -> Recognised | RequestError:
        failed = [task.error for task in tasks if task.error is not None]
        if failed:
            return failed[0]
        rows = tuple(task.heard for task in tasks if task.heard is not None)
        return Recognised(rows, tuple(task.batch_size for task in tasks))
