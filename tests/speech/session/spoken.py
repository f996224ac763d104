"""Made-up speech with known words, and an oracle that recognises windows of it: for tests of sessions.

A word sounds as noise, a pause is silent. The oracle knows the words and is told
where the window lies; what it does to words at the window's edges can be chosen.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from trimodal.audio.values import SAMPLE_RATE, PolicyName, Samples, Word
from trimodal.speech.session.session import LiveSession, PlannedWindow
from trimodal.speech.session.vad import EnergyDetector
from trimodal.speech.settings import SpeechSettings
from trimodal.speech.values import Recognition

VOCABULARY = ("one", "two", "three", "four", "five", "six", "what", "is", "a", "lambda", "explain", "the")


@dataclass(frozen=True)
class Speech:
    """Audio and the words in it, in seconds."""

    samples: Samples
    words: tuple[Word, ...]


def speak(
    seed: int,
    words: int,
    *,
    pauses: bool = True,
    start_s: float = 0.5,
    tail_s: float = 1.0,
    gap_s: float = 0.0,
) -> Speech:
    """Random words of 0.15 to 0.7 s; with pauses, one in five is followed by 0.2 to 2 s of silence."""
    rng = np.random.default_rng(seed)
    at, spoken = start_s, []
    for _ in range(words):
        length = float(rng.uniform(0.15, 0.7))
        text = " " + VOCABULARY[rng.integers(len(VOCABULARY))]
        spoken.append(Word(text, at, at + length, 1.0))
        at += length
        if pauses and rng.random() < 0.2:
            at += float(rng.uniform(0.2, 2.0))
    samples = np.zeros(round((at + tail_s) * SAMPLE_RATE), np.float32)
    for word in spoken:
        first, last = round(word.start * SAMPLE_RATE), round(word.end * SAMPLE_RATE)
        samples[first:last] = rng.uniform(-0.3, 0.3, last - first)
    return Speech(samples, tuple(spoken))


class Oracle:
    """Hears every word that lies whole in a window; the others as its noise says.

    Args:
        cut: a word that is cut by an edge: "garbled" into another word, or "missing".
        jitter_s: word times are off by up to this.
        wavering_s: a word that ends this near to the window's end is misheard, each time another way.
    """

    def __init__(
        self, speech: Speech, *, cut: str = "garbled", jitter_s: float = 0.0, wavering_s: float = 0.0
    ) -> None:
        self.speech = speech
        self.cut = cut
        self.jitter_s = jitter_s
        self.wavering_s = wavering_s
        self.heard: list[tuple[int, int]] = []

    def __call__(self, planned: PlannedWindow) -> Recognition:
        self.heard.append((planned.start, planned.end))
        parts = planned.parts or ((planned.start, planned.end),)
        assert len(planned.window.samples) == sum(end - start for start, end in parts)
        rng = np.random.default_rng((planned.start, planned.end))
        found: list[Word] = []
        before_s = 0.0
        for start, end in parts:
            found += (word.shifted(before_s) for word in self._words(start, end, planned.end, rng))
            before_s += (end - start) / SAMPLE_RATE
        return Recognition(tuple(found))

    def _wavers(self, word: Word, window_end: int) -> bool:
        last = window_end >= len(self.speech.samples) - SAMPLE_RATE // 2
        return not last and word.end > window_end / SAMPLE_RATE - self.wavering_s

    def _words(self, start: int, last: int, window_end: int, rng: np.random.Generator) -> Iterator[Word]:
        """What is heard of [start, last), on its clock."""
        begin, end = start / SAMPLE_RATE, last / SAMPLE_RATE
        first_word = bisect_right(self.speech.words, begin, key=lambda word: word.end)
        after_last = bisect_left(self.speech.words, end, key=lambda word: word.start)
        for word in self.speech.words[first_word:after_last]:
            text = word.text
            if word.start < begin - 0.001 or word.end > end + 0.001:
                if self.cut == "missing":
                    continue
                text = f" cut{rng.integers(1000)}"
            elif self._wavers(word, window_end):
                text = f" unsure{rng.integers(1000)}"
            off = rng.uniform(-self.jitter_s, self.jitter_s, 2)
            first = max(word.start + off[0], begin)
            yield Word(text, first - begin, min(max(word.end + off[1], first), end) - begin, 0.9)


@dataclass
class Outcome:
    """What a whole stream gave."""

    session: LiveSession
    words: list[Word]
    lags_s: list[float]
    held_s: float  # most audio held at once
    tentative: list[tuple[Word, ...]]


def looped(speech: Speech, times: int) -> Speech:
    """The words of the same audio `times` over; `samples` stay those of one round."""
    round_s = len(speech.samples) / SAMPLE_RATE
    return Speech(speech.samples, tuple(w.shifted(n * round_s) for n in range(times) for w in speech.words))


def random_lengths(seed: int, shortest: int = 320, longest: int = 480_000) -> Iterator[int]:
    """Endless chunk lengths, evenly spread over the orders of magnitude."""
    rng = np.random.default_rng(seed)
    while True:
        yield int(np.exp(rng.uniform(np.log(shortest), np.log(longest))))


def chunks_of(samples: Samples, lengths: Iterable[int]) -> Iterator[Samples]:
    """The samples cut into chunks of these lengths, the last one shorter."""
    at = 0
    for length in lengths:
        if at >= len(samples):
            return
        yield samples[at : at + length]
        at += length


def held_s(session: LiveSession) -> float:
    """Audio that a session has in memory."""
    return len(session._ring) / SAMPLE_RATE


def run(
    settings: SpeechSettings,
    policy: PolicyName,
    oracle: Callable[[PlannedWindow], Recognition],
    chunks: Iterable[Samples],
) -> Outcome:
    """Feeds a stream to its end; each window that is due is heard at once."""
    session = LiveSession(settings, policy=policy, detector=EnergyDetector())
    outcome = Outcome(session, [], [], 0.0, [])

    def settle() -> None:
        while (planned := session.next_window()) is not None:
            session.accept(planned, oracle(planned))
        update = session.take()
        outcome.words.extend(update.committed)
        outcome.lags_s.extend(update.received_s - word.end for word in update.committed)
        outcome.tentative.append(update.tentative)

    for chunk in chunks:
        session.feed(chunk)
        outcome.held_s = max(outcome.held_s, held_s(session))
        settle()
    session.end()
    settle()
    return outcome


def texts(words: Sequence[Word]) -> list[str]:
    """The words as written."""
    return [word.text for word in words]
