"""Says how many live streams a machine holds: windows of people's speech are timed on it, then queued."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from trimodal.audio.values import SAMPLE_RATE, Samples
from trimodal.errors import OperatorError
from trimodal.speech.session.session import LiveSession
from trimodal.speech.session.vad import SpeechDetector
from trimodal.speech.settings import SpeechSettings
from trimodal.speech.values import Recognition, Window

CHUNK = SAMPLE_RATE // 10
HORIZON_S = 180.0
SEEDS = 3


@dataclass(frozen=True, slots=True)
class Step:
    """A window: due at this second of its stream, took so many; `ends` of the words that it made final.

    One of 0 s: words that a pause made final without a window.
    """

    moment: float
    seconds: float
    last: bool  # of a turn: it goes first, and is not left out where a later one is due
    ends: tuple[float, ...]


@dataclass
class Played:
    """What one stream asks of the recogniser; `listening` is of a core, without its windows."""

    length_s: float
    steps: list[Step] = field(default_factory=list)
    listening: float = 0.0


@dataclass
class _Waiting:
    since: float
    seconds: float
    last: bool
    ends: list[float]


def play(
    samples: Samples,
    settings: SpeechSettings,
    detector: SpeechDetector,
    hear: Callable[[Window], Recognition],
    clock: Callable[[], float] = time.perf_counter,
) -> Played:
    """Plays a stream in chunks of 100 ms to a session, and times its windows."""
    session = LiveSession(settings, policy=settings.policy, detector=detector)
    played = Played(len(samples) / SAMPLE_RATE)
    listened = 0.0
    for at in range(0, len(samples), CHUNK):
        began = clock()
        session.feed(samples[at : at + CHUNK])
        settled = session.take().committed
        listened += clock() - began
        if settled:
            played.steps.append(Step(session.received_s, 0.0, True, tuple(word.end for word in settled)))
        while True:
            last = session.ends_turn
            if (planned := session.next_window()) is None:
                break
            began = clock()
            session.accept(planned, hear(planned.window))
            took = clock() - began
            ends = tuple(word.end for word in session.take().committed)
            played.steps.append(Step(session.received_s, took, last, ends))
    played.listening = listened / played.length_s
    return played


def lag_s(played: Played, streams: int, quantile: float) -> float:
    """The lag of words with so many such streams on one recogniser, one window at a time; the worst of three.

    A window that waits while its stream's next is due is heard with that one, as the session has it.
    Raises: OperatorError: no word was heard.
    """
    return max(float(np.quantile(_lags(played, streams, seed), quantile)) for seed in range(SEEDS))


def most_streams(played: Played, bound_s: float, quantile: float = 0.95, limit: int = 4096) -> int:
    """The largest number of streams whose lag keeps the bound; 0: not one."""
    held, above = 0, 1
    while above <= limit and lag_s(played, above, quantile) <= bound_s:
        held, above = above, 2 * above
    above = min(above, limit + 1)
    while above - held > 1:
        middle = (held + above) // 2
        if lag_s(played, middle, quantile) <= bound_s:
            held = middle
        else:
            above = middle
    return held


def _lags(played: Played, streams: int, seed: int) -> list[float]:
    """From the end of each word to its commitment. Raises: OperatorError: there is no word."""
    rng = random.Random(seed)
    due = []
    for stream in range(streams):
        begin = rng.uniform(-played.length_s, 0)
        while begin < HORIZON_S:
            due += [(begin + step.moment, stream, begin, step) for step in played.steps]
            begin += played.length_s
    due = sorted((one for one in due if one[0] >= 0), key=lambda one: one[:2])
    # Chunks are taken in beside the windows: of the cores' time these get the rest.
    slower = 1 / max(0.1, 1 - streams * played.listening / (os.cpu_count() or 1))
    waiting: dict[int, _Waiting] = {}
    answered: dict[int, float] = {}  # when a stream's last window was heard
    lags: list[float] = []
    now, at = 0.0, 0
    while at < len(due) or waiting:
        now = now if waiting else max(now, due[at][0])
        while at < len(due) and due[at][0] <= now:
            moment, stream, begin, step = due[at]
            at += 1
            ends = [begin + end for end in step.ends]
            if not step.seconds and stream not in waiting:
                lags += [max(moment, answered.get(stream, moment)) - end for end in ends]
                continue
            before = waiting.get(stream) or _Waiting(moment, 0.0, False, [])
            before.ends += ends
            seconds = step.seconds + (before.seconds if before.last or not step.seconds else 0.0)
            waiting[stream] = _Waiting(before.since, seconds, before.last or step.last, before.ends)
        if not waiting:
            continue
        stream = min(waiting, key=lambda one: (not waiting[one].last, waiting[one].since))
        heard = waiting.pop(stream)
        now += heard.seconds * slower
        answered[stream] = now
        lags += [now - end for end in heard.ends]
    if not lags:
        raise OperatorError(f"no word was heard in {played.length_s:.0f} s of speech: lags cannot be told")
    return lags
