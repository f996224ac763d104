"""Cuts a session's audio into turns where somebody speaks and stops."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from trimodal.audio.values import SAMPLE_RATE, Samples
from trimodal.errors import ArtefactError
from trimodal.gateway.realtime.hearing.endpoint import PAUSE_S
from trimodal.speech.session.vad import FRAME, EnergyDetector, SpeechDetector, StreamingSilero

logger = logging.getLogger(__name__)

_STEP = 3 * FRAME  # judged at once: a long piece may hold several turns


@dataclass(frozen=True)
class Started:
    """Speech began at the sample `at` of the session; the turn's audio begins at `audio`, before it."""

    at: int
    audio: int


@dataclass(frozen=True)
class Speech:
    """Audio of the turn that goes on."""

    samples: Samples


@dataclass(frozen=True)
class Paused:
    """Nobody has spoken for a moment, told once a pause; `end_after` may say how long ends the turn."""


@dataclass(frozen=True)
class Resumed:
    """Speech goes on after a pause that was told."""


@dataclass(frozen=True)
class Stopped:
    """Speech ended at this sample, and a silence of the length that was asked for followed."""

    at: int


Heard = Started | Speech | Paused | Resumed | Stopped


class TurnDetector:
    """One session's; fed everything that comes, it keeps only what may belong to the next turn.

    Silero's network runs in the caller's thread, the gateway's event loop: 0.06 ms for a chunk of 32 ms and
    0.12 ms for one of 100 ms, so 32 sessions take 4 (100 ms) to 6.5 % (20 ms) of the loop's time, and none
    holds it for longer than 0.2 ms. A hop to another thread and back costs as much as the network.

    Args:
        padding_s: audio before the speech that belongs to the turn; `silence_s` ends it, unless `end_after`
            says otherwise in a pause.
        at: the session's sample that comes first.
        speaking: it belongs to a turn that goes on.
    """

    def __init__(
        self,
        threshold: float,
        padding_s: float,
        silence_s: float,
        at: int,
        *,
        speaking: bool = False,
    ) -> None:
        self._threshold = threshold
        self._detector = speech_detector(threshold)
        self._padding = round(padding_s * SAMPLE_RATE)
        self._longest = self._silence = round(silence_s * SAMPLE_RATE)
        self._pause = round(PAUSE_S * SAMPLE_RATE)
        self._paused = False
        self._before = 0  # samples of speech in earlier turns
        self._base = at
        self._heard = 0
        self._kept: Samples = np.zeros(0, np.float32)  # up to now, of a turn that has not begun
        self.speaking = speaking

    @property
    def silence_s(self) -> float:
        """What ends the turn now."""
        return self._silence / SAMPLE_RATE

    @property
    def paused(self) -> bool:
        """Whether a pause was told that goes on."""
        return self._paused

    @property
    def spoken_s(self) -> float:
        """Speech in the turn that goes on."""
        return (self._detector.speech - self._before) / SAMPLE_RATE

    def end_after(self, silence_s: float) -> None:
        """Ends the turn after so long a silence, in this pause."""
        self._silence = round(silence_s * SAMPLE_RATE)

    def feed(self, samples: Samples) -> Iterator[Heard]:
        """Takes audio in; yields what it means, in order."""
        for at in range(0, len(samples), _STEP):
            yield from self._step(samples[at : at + _STEP])

    def cut(self) -> None:
        """The turn that goes on, if one does, was ended by somebody else: what comes now is another."""
        self.speaking = self._paused = False
        self._silence, self._before = self._longest, 0
        self._detector = speech_detector(self._threshold)
        self._base, self._heard = self._base + self._heard, 0

    def _step(self, samples: Samples) -> Iterator[Heard]:
        self._detector.feed(samples)
        self._heard += len(samples)
        span = self._detector.spans[-1] if self._detector.spans else None
        if self.speaking:
            yield Speech(samples)
            end = span.end if span is not None else 0
            if end is None:
                if self._paused:
                    self._paused, self._silence = False, self._longest
                    yield Resumed()
                return
            if not self._paused and self._heard - end >= self._pause:
                self._paused = True
                yield Paused()
            if self._heard - end >= self._silence:
                self.speaking = self._paused = False
                self._silence, self._before = self._longest, self._detector.speech
                self._detector.forget(self._heard)
                yield Stopped(self._base + end)
            return
        self._kept = np.concatenate((self._kept, samples))
        if span is not None:
            self.speaking = True
            begin = max(0, len(self._kept) - (self._heard - span.start) - self._padding)
            taken, self._kept = self._kept[begin:], self._kept[:0]
            yield Started(self._base + span.start, self._base + self._heard - len(taken))
            yield Speech(taken)
        else:  # speech is known 96 ms and a step after it began
            self._kept = self._kept[-(self._padding + 3 * _STEP) :]


def speech_detector(threshold: float) -> SpeechDetector:
    """Silero's where it is installed (the extras cpu and cuda have it), else what is loud is speech."""
    return StreamingSilero(threshold) if _has_silero() else EnergyDetector(threshold)


@lru_cache(maxsize=1)
def _has_silero() -> bool:
    try:
        StreamingSilero()
    except (ArtefactError, ImportError) as error:
        logger.warning("turns are found by loudness alone: %s", error)
        return False
    return True
