"""Computes one live stream: takes audio in, hands out windows to be recognised, and commits words for good.

Pure state without threads or limits. The owner locks it, feeds it, has its windows recognised, and gives
the results back.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimodal import trace
from trimodal.audio.values import SAMPLE_RATE, Correction, HeardWindow, PolicyName, Samples, Word
from trimodal.speech.session.language import StreamLanguage
from trimodal.speech.session.policy import Kind, SegmentPolicy, Stretch, Timeline, VadPolicy
from trimodal.speech.session.policy_edge import EdgePolicy
from trimodal.speech.session.policy_file import FilePolicy
from trimodal.speech.session.ring_buffer import Ring
from trimodal.speech.session.transcript import (
    SpokenWord,
    Transcript,
    after_prefix,
    on_stream,
    without_made_up,
)
from trimodal.speech.session.vad import SpeechDetector
from trimodal.speech.settings import SpeechSettings
from trimodal.speech.values import MAX_PROMPT, Recognition, Window
from trimodal.trace import Span

POLICIES: dict[PolicyName, type[SegmentPolicy]] = {
    "edge": EdgePolicy,
    "vad": VadPolicy,
    "file": FilePolicy,
}

# Kept in silence beside the pad and the shortest speech, after which an onset is known: two frames and more.
_LOOK_BACK = SAMPLE_RATE // 10
# What was decoded above it is no prompt (faster-whisper's prompt_reset_on_temperature).
_RESET = 0.5


@dataclass(frozen=True, slots=True)
class PlannedWindow:
    """A window and where it lies in the stream: samples [start, end), or only `parts` of them."""

    start: int
    end: int
    window: Window
    parts: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Update:
    """What is new in a stream, all times in seconds since it began.

    Attributes:
        committed: words since the last update. They never change but by a correction.
        corrections: of committed words, these included, since the last update.
        tentative: the whole present guess of what follows them.
        received_s: audio taken in.
        lag_s: received_s less the end of the last committed word; 0 before any.
        windows: those whose words became final since, or that were dropped as silence.
        trace: what took how long, for a client that wants it.
    """

    committed: tuple[Word, ...]
    tentative: tuple[Word, ...]
    received_s: float
    lag_s: float
    windows: tuple[HeardWindow, ...] = ()
    corrections: tuple[Correction, ...] = ()
    trace: Sequence[Span] = ()

    def tensors(self, *, final: bool) -> dict[str, NDArray[Any]]:
        """Output name → array [1, n]; the names and types of model_repository/speech/config.pbtxt."""
        words = self.committed
        rows: dict[str, tuple[list[Any], type]] = {
            "committed": ([_joined(words)], np.object_),
            "tentative": ([_joined(self.tentative)], np.object_),
            "words": ([word.text.encode() for word in words], np.object_),
            "word_starts": ([word.start for word in words], np.float64),
            "word_ends": ([word.end for word in words], np.float64),
            "word_probabilities": ([word.probability for word in words], np.float32),
            "word_tokens": ([" ".join(map(str, word.tokens)).encode() for word in words], np.object_),
            "corrections": ([json.dumps(asdict(one)).encode() for one in self.corrections], np.object_),
            "windows": ([json.dumps(asdict(one)).encode() for one in self.windows], np.object_),
            "received_s": ([self.received_s], np.float64),
            "lag_s": ([self.lag_s], np.float64),
            "final": ([final], np.bool_),
        }
        tensors: dict[str, NDArray[Any]] = {name: np.array([row], kind) for name, (row, kind) in rows.items()}
        return tensors | {trace.NAME: trace.column(self.trace)[trace.NAME][None]} if self.trace else tensors


def _joined(words: Sequence[Word]) -> bytes:
    return "".join(word.text for word in words).encode()


class LiveSession:
    """The state of one stream."""

    def __init__(
        self,
        settings: SpeechSettings,
        *,
        policy: PolicyName,
        language: str = "",
        prompt: str = "",
        translate: bool = False,
        temperature: float = 0.0,
        detector: SpeechDetector,
    ) -> None:
        self.max_pending_s = settings.max_pending_s  # above it answers wait
        self._conditioned = settings.condition_on_previous_text
        self._forgotten = 0  # words before this sample are no prompt
        self._language = StreamLanguage(language, settings)
        self._prompt = prompt
        self._translate = translate
        # Somebody waits for the words of a live window: a recording's get all of the recogniser's.
        live = () if policy == "file" else settings.live_temperatures
        self._temperatures = (temperature,) if temperature else live
        self._detector = detector
        self._pad = round(settings.speech_pad_ms * SAMPLE_RATE / 1000)
        self._shortest = round(settings.min_speech_duration_ms * SAMPLE_RATE / 1000)
        self._silence = round(settings.hallucination_silence_threshold * SAMPLE_RATE)
        self._ring = Ring()
        self._transcript = Transcript()
        self._policy = POLICIES[policy](settings, self._transcript)
        self._ended = self._paused = False
        self._told: tuple[SpokenWord, ...] = ()  # tentative words of the last update
        self._out: Stretch | None = None  # being recognised
        self._sent = 0  # up to here, with what is recognised ahead
        self._windows: list[HeardWindow] = []  # not told yet
        self._guess: tuple[Stretch, Recognition] | None = None  # has the tentative words; not told either
        # The segment's last hypothesis, and its samples: for the language it counts if no window follows.
        self._last: tuple[Recognition, int] | None = None

    @property
    def waiting(self) -> bool:
        """A window is being recognised, or due: after the end, words are still to come."""
        return self._due() is not None

    @property
    def ends_turn(self) -> bool:
        """Whether the window that is out, or due, ends in a pause or with the stream."""
        due = self._due()
        return due is not None and due.kind in (Kind.PAUSE, Kind.FINAL)

    @property
    def outstanding(self) -> bool:
        """A window is being recognised."""
        return self._out is not None

    @property
    def has_news(self) -> bool:
        """Whether `take` would tell other words than it did last."""
        self._due()  # a pause may have settled words without a window
        return self._transcript.has_new or self._policy.tentative != self._told

    @property
    def received_s(self) -> float:
        """Audio taken in."""
        return self._ring.end / SAMPLE_RATE

    @property
    def pending_s(self) -> float:
        """Audio received and not settled: neither committed over nor known to be silence."""
        return self._policy.unsettled(self._timeline()) / SAMPLE_RATE

    @property
    def unsent_s(self) -> float:
        """Of `pending_s`, what lies behind the windows that are being recognised."""
        return min(self.pending_s, (self._ring.end - self._sent) / SAMPLE_RATE)

    @property
    def behind_s(self) -> float:
        """Audio received since the window that is out, or due, could have been heard; 0 without one."""
        due = self._due()
        return (self._ring.end - due.moment) / SAMPLE_RATE if due else 0.0

    @property
    def speech_s(self) -> float:
        """Speech so far, by the detector."""
        return self._detector.speech / SAMPLE_RATE

    def feed(self, samples: Samples) -> None:
        """Takes float32[n] in: finite, 16 kHz mono. Raises RuntimeError: the stream was ended."""
        if self._ended:
            raise RuntimeError("audio after the end of the stream")
        self._paused = self._paused and not len(samples)
        self._ring.append(samples)
        self._detector.feed(samples)
        self._forget()

    def pause(self) -> None:
        """No audio has come for a while: what was said is settled as before a silence, until more comes."""
        self._paused = True
        self._detector.pause()

    def end(self) -> None:
        """No more audio comes: what is here will be settled."""
        if not self._ended:
            self._ended = True
            self._detector.finish()

    def next_window(self) -> PlannedWindow | None:
        """The window that is due, at most one at a time: None while one is out, or when nothing is due."""
        stretch = self._due()
        if self._out or stretch is None:
            return None
        self._out, self._sent = stretch, stretch.end
        return self._planned(stretch)

    def next_windows(self, most: int = 1) -> list[PlannedWindow]:
        """The window that is due, as `next_window`.

        Args:
            most: so many with those that will be due behind it if each ends as planned, where they are known:
                the recogniser takes less for several at once. They are given back together.
        """
        due = self.next_window()
        if due is None:
            return []
        windows, stretch = [due], self._out
        # With another language or prompt they would not be the same.
        known = self._language.code and not self._conditioned
        while known and stretch and len(windows) < most:
            stretch = self._policy.ahead(stretch, self._timeline())
            if stretch:
                self._sent = stretch.end
                windows.append(self._planned(stretch))
        return windows

    def _planned(self, stretch: Stretch) -> PlannedWindow:
        prompt = self._prompt
        if self._conditioned:
            room = MAX_PROMPT - len(prompt) - 1
            before = self._transcript.between(self._forgotten, stretch.start, room)
            # Whisper is given a first line whole, however much was said since.
            prompt = ("\n" if "\n" not in prompt else " ").join(filter(None, (prompt, before)))
        parts = [self._ring.view(*part) for part in stretch.parts]
        samples = np.concatenate(parts) if parts else self._ring.view(stretch.start, stretch.end)
        # A hypothesis is heard again soon: what is doubted of it is not decoded again.
        temperatures = self._temperatures[: 1 if stretch.kind.is_hypothesis else None]
        window = Window(
            samples,
            self._language.code,
            prompt,
            self._translate,
            temperatures,
            stretch.prefix,
            stretch.draft,
        )
        return PlannedWindow(stretch.start, stretch.end, window, stretch.parts)

    def accept(self, planned: PlannedWindow, heard: Recognition) -> None:
        """Takes in what was heard in the window that is out; words where nobody spoke are made up.

        Raises ValueError: `planned` is not what was handed out last.
        """
        stretch = self._out
        if stretch is None or (stretch.start, stretch.end) != (planned.start, planned.end):
            raise ValueError(f"window [{planned.start}, {planned.end}) is not out")
        self._out, self._sent = None, 0
        parts = stretch.parts or ((stretch.start, stretch.end),)
        words = [on_stream(word, parts) for word in heard.words]
        behind = after_prefix(stretch.prefix, words)
        # What was final stays, wherever it is heard now.
        given = 0 if behind is None else len(words) - len(behind)
        new = [word for word in words[given:] if self._was_speech(word, stretch.moment)]
        spoken = [*words[:given], *new]
        if self._silence:
            spoken = without_made_up(spoken, self._silence)
        guessed = stretch.kind.is_hypothesis and heard.doubted
        if heard.doubted:
            stretch = replace(stretch, whole=False)  # what was heard before is no worse
        settled, tentative = self._transcript.end, self._policy.tentative
        if heard.temperature > _RESET:
            self._forgotten = stretch.end
        self._policy.accept(stretch, None if heard.rejected or guessed else spoken)
        again = stretch.kind.is_hypothesis
        if spoken and not heard.rejected and not guessed:
            own = len(planned.window.samples) - stretch.context
            self._language.hear(heard, own, again=again)
            self._last = (heard, own)
        if not again:
            self._last = None
        told = self._transcript.end != settled or (heard.rejected and not again)
        if told:
            self._windows.append(self._told_of(stretch, heard))
        if self._policy.tentative is not tentative:  # else they are still those of a window before
            self._guess = None if told else (stretch, heard)
        self._forget()

    def accept_windows(self, planned: Sequence[PlannedWindow], heard: Sequence[Recognition]) -> None:
        """Takes in what was heard in the windows of `next_windows`.

        Each one ahead counts if just that is due now; else its speech will be recognised once more.
        """
        self.accept(planned[0], heard[0])
        for one, recognition in zip(planned[1:], heard[1:], strict=False):  # or only the first were heard
            due = self._due()
            if due and (due.start, due.end, due.parts) == (one.start, one.end, one.parts):
                self._out = due
                self.accept(one, recognition)

    def _told_of(self, stretch: Stretch, heard: Recognition) -> HeardWindow:
        return HeardWindow(
            stretch.start / SAMPLE_RATE,
            stretch.end / SAMPLE_RATE,
            heard.language,
            min(heard.language_probability, self._language.probability),
            heard.temperature,
            heard.average_log_probability,
            heard.compression_ratio,
            heard.no_speech_probability,
            heard.doubted,
            heard.rejected,
            dict(heard.language_probabilities),
        )

    def take(self) -> Update:
        """What is new since the last call."""
        self._due()  # a pause may have settled words without a window
        self._forget()
        self._told = self._policy.tentative
        lag = self._ring.end - self._transcript.end if self._transcript.recent else 0
        windows, self._windows = tuple(self._windows), []
        return Update(
            self._transcript.take(),
            tuple(word.to_word() for word in self._policy.tentative),
            self._ring.end / SAMPLE_RATE,
            max(lag, 0) / SAMPLE_RATE,
            windows,
            self._transcript.take_corrections(),
        )

    def _timeline(self) -> Timeline:
        return Timeline(self._ring.end, self._ended or self._paused, self._detector.spans)

    def _due(self) -> Stretch | None:
        """The stretch that is out, or to be handed out; a pause may settle words without one."""
        if self._out:
            return self._out
        settled, floor = self._transcript.end, self._policy.floor
        due = self._policy.plan(self._timeline())
        if self._last and self._policy.floor != floor:  # it is the last of its segment
            self._language.hear(*self._last)
            self._last = None
        if self._guess and self._transcript.end != settled:
            self._windows.append(self._told_of(*self._guess))
            self._guess = None
        return due

    def _was_speech(self, word: SpokenWord, moment: int) -> bool:
        """Whether the detector, at that moment, knew of speech at the word or near it."""
        # An end needs no such care: the pad is longer than a detector takes to be sure of it.
        return any(
            span.known <= moment
            and span.start - self._pad < word.end
            and (span.end is None or span.end + self._pad > word.start)
            for span in self._detector.spans
        )

    def _forget(self) -> None:
        """Drops audio and spans that no window can need any more."""
        needed = self._policy.needed(self._timeline(), self._pad + self._shortest + _LOOK_BACK)
        self._ring.drop(needed)
        self._detector.forget(needed - self._pad)
