"""Policy `file`: packs the speech of a recording into windows as long as the recogniser takes at once.

As WhisperX and faster-whisper's batched pipeline do: the encoder runs over its whole context however little
of it is speech, and of a recording nobody waits for single words.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from trimodal.audio.values import SAMPLE_RATE
from trimodal.speech.session.policy import (
    Kind,
    Segment,
    SegmentPolicy,
    Stretch,
    Timeline,
    first_segment,
)
from trimodal.speech.session.transcript import SpokenWord, Transcript
from trimodal.speech.session.vad import SpeechSpan
from trimodal.speech.settings import SpeechSettings

_FULL = 4 / 5  # of a window: from here on it is cut at the longest pause
_PAUSE = 8 * SAMPLE_RATE // 25  # at a cut in a shorter silence, as in speech, the edge is heard again
_UNHEARD = 8 * SAMPLE_RATE // 5  # of speech behind a window's last word, which is then heard in the next
# Of speech from the beginning of a word to that of the next: no word takes so long.
_LEFT_OUT = 4 * SAMPLE_RATE
_WAIT = 2  # windows of the stream, in which a window that does not become full is closed

Part = tuple[int, int]


class FilePolicy(SegmentPolicy):
    """Windows of speech alone: of a pause two pads are heard at most, and cuts lie in silence.

    A window is decided by what was known at a moment of the stream, as in every policy.
    """

    def __init__(self, settings: SpeechSettings, transcript: Transcript) -> None:
        super().__init__(settings, transcript)
        self._room = round(settings.file_window_s * SAMPLE_RATE)
        self._twice = 0  # up to here it was heard once more
        self._alone: Stretch | None = None  # what was left out of the last window
        self._first: Sequence[SpokenWord] = ()  # heard in it, and not settled: they are heard once more
        self._speech: Sequence[Part] = ()  # as it was known when the window was planned

    def plan(self, timeline: Timeline) -> Stretch | None:
        segment = self.segment(timeline)
        if self._alone or segment is None:
            return self._alone
        stretch, self._speech = self._packed(segment, timeline, self.floor)
        return stretch

    def ahead(self, stretch: Stretch, timeline: Timeline) -> Stretch | None:
        """The window that is filled behind a stretch which ends in a pause, as `plan` fills it."""
        segment = first_segment(timeline, stretch.end, self.pause)
        if stretch.kind is not Kind.FINAL or stretch is self._alone or segment is None:
            return None
        return self._packed(segment, timeline, stretch.end)[0]

    def _packed(
        self, segment: Segment, timeline: Timeline, floor: int
    ) -> tuple[Stretch | None, Sequence[Part]]:
        """The window that is due where nothing before `floor` is heard again, and the speech known there."""
        late = max(floor, segment.start - self.pad) + _WAIT * self._room
        moment = min(timeline.received, late)
        over = timeline.ended and moment == timeline.received
        spans = [one for one in timeline.spans if one.known <= moment and (one.end or moment) > floor]
        speech = [(one.start, min(one.end or moment, moment)) for one in spans]
        parts = self._padded(speech, moment, floor)
        used, count = 0, 0
        while count < len(parts) and used + parts[count][1] - parts[count][0] <= self._room:
            used += parts[count][1] - parts[count][0]
            count += 1
        if count == len(parts):
            if not over:
                closed = sum((one.closed or moment + 1) <= moment for one in spans)
                count = closed if moment == late else 0
            return _stretch(parts[:count], moment, Kind.FINAL), speech
        whole, silence = self._cut(spans, parts, count)
        if whole:
            kind = Kind.FINAL if silence >= _PAUSE else Kind.FULL
            return _stretch(parts[:whole], moment, kind), speech
        start = parts[count][0]
        last = [(start, start + self._room - used)] if used < self._room else []
        return _stretch([*parts[:count], *last], moment, Kind.FULL), speech

    def accept(self, stretch: Stretch, words: Sequence[SpokenWord] | None) -> None:
        """Takes the words in. A Whisper may leave speech out, or end early: the rest is heard once more."""
        last = max(words[-1].end if words else stretch.end, self._twice)
        words = self._fuller(stretch, words or ())
        self._alone = self._left_out(stretch, words)
        if self._alone:
            last = self._alone.start
            self._first = [word for word in words if word.start >= last]
            words = words[: len(words) - len(self._first)]
        if self._alone or self._spoken(last, stretch.end) >= _UNHEARD:
            self.settle(self.new_words(stretch, words))
            self.floor, self._twice = last, stretch.end
        else:
            super().accept(stretch, words)

    def needed(self, timeline: Timeline, look_back: int) -> int:
        """As of every policy; what is heard alone begins at a part's edge, which may lie further back."""
        needed = super().needed(timeline, look_back)
        return min(needed, self._alone.start) if self._alone else needed

    def _fuller(self, stretch: Stretch, words: Sequence[SpokenWord]) -> Sequence[SpokenWord]:
        """The words; of what was heard before, those of the first hearing where it had more of them."""
        first = [word for word in self._first if word.start < stretch.end]
        self._first = self._first[len(first) :]
        again = sum(word.start < self._twice for word in words)
        return [*first, *words[again:]] if len(first) > again else words

    def _left_out(self, stretch: Stretch, words: Sequence[SpokenWord]) -> Stretch | None:
        """The parts between two words that lie too far apart: without the others Whisper hears them."""
        for word, following in pairwise([stretch.start, *(one.start for one in words)]):
            if word >= self._twice and self._spoken(word, following) >= _LEFT_OUT:
                first, behind = (sum(start <= at for start, _ in stretch.parts) for at in (word, following))
                alone = stretch.parts[max(first - 1, 0) : max(behind - 1, first)]
                return _stretch(alone, stretch.moment, Kind.FINAL) if alone[-1] != stretch.parts[-1] else None
        return None

    def _spoken(self, first: int, last: int) -> int:
        """Samples of speech between two of the stream's: the silences that a window holds are none."""
        return sum(max(0, min(end, last) - max(start, first)) for start, end in self._speech)

    def _padded(self, edges: Sequence[Part], moment: int, floor: int) -> list[Part]:
        """Each span with what is heard around it; a silence that is no pause is shared by its two."""
        parts = []
        for n, (start, end) in enumerate(edges):
            before = self._heard(start - edges[n - 1][1]) // 2 if n else self.pad
            after = (self._heard(edges[n + 1][0] - end) + 1) // 2 if n + 1 < len(edges) else self.pad
            first = max(start - before, floor)
            parts.append((first, max(min(end + after, moment), first)))
        return parts

    def _heard(self, silence: int) -> int:
        """What is heard of the samples between two spans."""
        return silence if silence < self.pause else min(silence, 2 * self.pad)

    def _cut(self, spans: Sequence[SpeechSpan], parts: Sequence[Part], count: int) -> tuple[int, int]:
        """How many of the first `count` parts a full window takes, and the silence behind, the longest."""
        used, best, longest = 0, 0, 0
        for n in range(1, count + 1):
            used += parts[n - 1][1] - parts[n - 1][0]
            silence = spans[n].start - (spans[n - 1].end or 0)
            if used >= _FULL * self._room and silence > longest:
                best, longest = n, silence
        return best, longest


def _stretch(parts: Sequence[Part], moment: int, kind: Kind) -> Stretch | None:
    return Stretch(parts[0][0], parts[-1][1], moment, kind, tuple(parts)) if parts else None
