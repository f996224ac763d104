"""Recognises the windows of many requests: runs of the engine, at higher temperatures where it is doubted.

Each request has one outcome. A request that is refused, or that the engine fails on, does not affect the
others in its batch.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from trimodal.audio.values import SAMPLE_RATE
from trimodal.errors import RequestError, SettingsError, as_request_error
from trimodal.metrics import Metrics, counters
from trimodal.paths import artefact_directory
from trimodal.speech.engines.protocol import SpeechEngine, open_engine
from trimodal.speech.recognise.hallucinations import GUARDS, LOOPING, SILENCE, best, doubted_by
from trimodal.speech.recognise.pieces import cut, joined
from trimodal.speech.recognise.request import Recognised, RecogniseRequest
from trimodal.speech.settings import RecogniseSettings
from trimodal.speech.values import Recognition, Window, batches
from trimodal.speech.whisper.features import room, smallest_context
from trimodal.speech.whisper.word_timestamps import without_silence_before

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
BATCHES = (1, 2, 4, 8, 16, 32, 64)


@dataclass(slots=True)
class _Task:
    """One window of a request's row on its way, or a piece of it; `heard` or `error` is set at the end."""

    row: int
    window: Window
    context_s: float
    temperatures: tuple[float, ...]
    doubted: list[Recognition] = field(default_factory=list)  # its decodings that a guard doubts
    heard: Recognition | None = None
    error: RequestError | None = None
    batch_size: int = 0

    @property
    def temperature(self) -> float:
        """Of its next decoding."""
        return self.temperatures[len(self.doubted)]


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
            f"{name}fallbacks_total", "Windows decoded again because a guard doubted them", {}
        )
        told, outcomes = "Windows by what came of them", ("heard", "empty", "rejected", "refused", "failed")
        self._windows = counters(f"{name}windows_total", metrics, told, "outcome", outcomes)
        told = "Windows that a guard doubts at every temperature: emptied by silence, else kept"
        self._doubted = counters(f"{name}doubted_total", metrics, told, "guard", GUARDS)

    @classmethod
    def open(cls, version: Path, settings: RecogniseSettings, metrics: Metrics) -> RecogniseService:
        """Opens the artefact that `settings` names and runs it once; on a GPU in each context and batch.

        Its kernels are chosen then. On a processor only the very first run is slower, whatever comes after:
        the first one of a longer context takes what every other takes, and 8 windows take seconds of a core.
        """
        engine = open_engine(artefact_directory(version, settings.artefact), settings)
        service = cls(engine, settings, metrics)
        on_cpu = settings.device == "cpu"
        counts = {1} if on_cpu else {1, settings.max_batch_windows}
        for context_s in engine.contexts_s[:1] if on_cpu else engine.contexts_s:
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
                outcomes.append(self._tasks(request.checked(self._engine.languages)))
            except RequestError as error:
                self._windows["refused"].increment(max(1, len(request.windows)))
                outcomes.append(error)
        tasks = [task for outcome in outcomes if isinstance(outcome, list) for task in outcome]
        self._decode(tasks)
        for task in tasks:
            self._count(task)
        return [
            outcome if isinstance(outcome, RequestError) else self._result(outcome) for outcome in outcomes
        ]

    def recognise_one(self, window: Window) -> Recognition:
        """What is heard in one window that is right. Raises RequestError: the engine fails on it."""
        return self.recognise_windows([window])[0]

    def recognise_windows(self, windows: Sequence[Window]) -> Sequence[Recognition]:
        """What is heard in windows that are right. Raises RequestError: the engine fails on one."""
        tasks = self._tasks(windows)
        self._decode(tasks)
        outcome = self._result(tasks)
        if isinstance(outcome, RequestError):
            raise outcome
        return outcome.rows

    def _tasks(self, windows: Sequence[Window]) -> list[_Task]:
        default = self._settings.language
        tasks = []
        for row, window in enumerate(windows):
            whole = window if window.language else replace(window, language=default)
            fits = len(window.samples) <= self._longest
            if not fits:  # nobody knows which piece the prefix ends in
                whole = replace(whole, prefix="", draft="")
            for samples in [window.samples] if fits else cut(window.samples, self._longest * 5 // 6):
                context_s = smallest_context(self._engine.contexts_s, len(samples))
                temperatures = window.temperatures or self._settings.temperatures
                tasks.append(_Task(row, replace(whole, samples=samples), context_s, temperatures))
        return tasks

    def _decode(self, tasks: Sequence[_Task]) -> None:
        """Decodes windows, those that are doubted again together at their next temperature.

        Runs are of one context and temperature, and of at most `max_batch_windows`.
        """
        most = self._settings.max_batch_windows
        waiting = list(tasks)
        while waiting:
            for batch in batches(waiting, lambda task: (task.temperature, task.context_s), most):
                self._run(batch, batch[0].temperature)
            waiting = [task for task in waiting if not self._judge(task)]
            self._retries.increment(len(waiting))

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

    def _judge(self, task: _Task) -> bool:
        """Whether a task is done with its last decoding, or with the best of all that failed a guard."""
        if task.heard is None:
            # A decoding that failed leaves the window as those before left it.
            task.heard = best(task.doubted) if task.doubted else None
            task.error = None if task.doubted else task.error
            return True
        guard = doubted_by(task.heard, self._settings, translated=task.window.translate)
        if guard == SILENCE:
            task.heard = replace(task.heard, words=(), rejected=guard)
        if guard in ("", SILENCE):
            return True
        if task.window.prefix:
            # What was decided before may be wrong, and Whisper loops after words that were not said.
            task.window, task.heard = replace(task.window, prefix="", draft=""), None
            return False
        if task.window.prompt and guard in LOOPING:
            # A word alone, of a list of names, is said again and again ("Bravo, Bravo, …"), however warm.
            task.window, task.heard = replace(task.window, prompt=""), None
            return False
        task.doubted.append(replace(task.heard, doubted=guard))
        if len(task.doubted) < len(task.temperatures):
            task.heard = None
            return False
        task.heard = best(task.doubted)
        return True

    def _count(self, task: _Task) -> None:
        if task.heard is None:
            self._windows["failed"].increment(1)
            return
        self._audio.increment(len(task.window.samples) / SAMPLE_RATE)
        if guard := task.heard.rejected or task.heard.doubted:
            self._doubted[guard].increment(1)
        outcome = "rejected" if task.heard.rejected else "heard" if task.heard.words else "empty"
        self._windows[outcome].increment(1)

    @staticmethod
    def _result(tasks: Sequence[_Task]) -> Recognised | RequestError:
        failed = [task.error for task in tasks if task.error is not None]
        if failed:
            return failed[0]
        rows = batches(tasks, lambda task: task.row)
        heard = (
            joined([(len(task.window.samples), task.heard) for task in row if task.heard is not None])
            for row in rows
        )
        return Recognised(tuple(heard), tuple(row[0].batch_size for row in rows))
