"""Defines segments of speech, what the policies share, and the simplest of them.

A policy says which stretch of audio is recognised next, and which of the words in it are final. It decides by
what was known at a moment of the stream, so the size of the chunks does not change the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from trimodal.audio.values import SAMPLE_RATE
from trimodal.speech.session.transcript import SpokenWord, Transcript, repeated
from trimodal.speech.session.vad import SpeechSpan
from trimodal.speech.settings import SpeechSettings

EDGE = SAMPLE_RATE // 4  # a word that ends this near to where the window was cut may be cut as well
LEAD = SAMPLE_RATE // 8  # heard before a word that a window begins with: its time may be off
_OVERLAP = SAMPLE_RATE // 2  # heard again after a cut
_FURTHEST_BACK = 5 * SAMPLE_RATE // 2  # of a window's beginning before the end of the one before


class Kind(Enum):
    """What becomes of the words of a stretch."""

    STEP = "step"  # a hypothesis; more of the same speech comes
    PAUSE = "pause"  # one that is final unless the same speech goes on
    FULL = "full"  # the longest window, cut while somebody speaks
    FINAL = "final"  # ends in a pause or with the stream: nothing of it is heard again

    @property
    def is_hypothesis(self) -> bool:
        return self in (Kind.STEP, Kind.PAUSE)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Audio [start, end) to be heard, or only `parts` of it, joined.

    `moment`: the stream's clock at which that was decided; `prefix`: how its text begins, as is final;
    `draft`: what was heard of it before, behind the prefix or, without one, from the beginning;
    `context`: samples at its beginning that were said before, and help to understand the others;
    `whole`: it holds all of the segment so far, and its words correct those that were committed meanwhile.
    """

    start: int
    end: int
    moment: int
    kind: Kind
    parts: tuple[tuple[int, int], ...] = ()
    prefix: str = ""
    draft: str = ""
    context: int = 0
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Timeline:
    """What is known of a stream: samples received, whether more can come now, spans of speech."""

    received: int
    ended: bool
    spans: Sequence[SpeechSpan]


@dataclass(frozen=True, slots=True)
class Segment:
    """Speech between two pauses, in samples.

    Attributes:
        known: the clock at which its onset was certain.
        end: of its speech, None while it may go on.
        final: the clock at which the pause after it was long enough, or None.
    """

    start: int
    known: int
    end: int | None = None
    final: int | None = None


def first_segment(timeline: Timeline, floor: int, pause: int) -> Segment | None:
    """The first speech that ends after `floor`, up to the first pause of at least `pause` samples.

    A pause counts when it lasted before the next speech was known; the end of the stream is one.
    """
    segment = None
    for span in timeline.spans:
        if span.end is not None and span.end <= floor:
            continue
        if segment is None:
            segment = Segment(max(span.start, floor), span.known)
        elif segment.final is not None and segment.final < span.known:
            break
        final = None if span.end is None else max(span.end + pause, span.closed or 0)
        segment = Segment(segment.start, segment.known, span.end, final)
    if segment is None or segment.final is None or segment.final <= timeline.received:
        return segment
    final = timeline.received if timeline.ended else None
    return Segment(segment.start, segment.known, segment.end if timeline.ended else None, final)


class SegmentPolicy:
    """Keeps the state and steps that every policy has. One instance a stream, called under its lock.

    Attributes:
        transcript: where it commits words.
        tentative: its guess of the words after the committed ones.
        floor: nothing before this sample of the stream is heard again.
    """

    def __init__(self, settings: SpeechSettings, transcript: Transcript) -> None:
        self.transcript = transcript
        self.tentative: tuple[SpokenWord, ...] = ()
        self.floor = 0
        self.pause = round(settings.min_silence_duration_ms * SAMPLE_RATE / 1000)
        self.pad = round(settings.speech_pad_ms * SAMPLE_RATE / 1000)
        self.max_window = round(settings.max_speech_duration_s * SAMPLE_RATE)

    def plan(self, timeline: Timeline) -> Stretch | None:
        """What is due to be heard; the same again until `accept`. Cheap: asked at each chunk."""
        raise NotImplementedError

    def ahead(self, stretch: Stretch, timeline: Timeline) -> Stretch | None:
        """What would be due behind the planned stretch, if nothing of that is heard again.

        None: nothing yet, or it depends on the stretch's words.
        """
        return None

    def accept(self, stretch: Stretch, words: Sequence[SpokenWord] | None) -> None:
        """Takes the words of the planned stretch in; None: a guard rejected them."""
        if stretch.kind is Kind.FINAL:
            words = words or ()
            new = self.new_words(stretch, words)
            if stretch.whole:
                self.transcript.correct(words, len(words) - len(new))
            self.floor = stretch.end
            self.settle(new)
        else:
            self.carry_on(stretch, words or ())

    def segment(self, timeline: Timeline) -> Segment | None:
        """The segment to be worked on; without one, words that still wait are final."""
        segment = first_segment(timeline, self.floor, self.pause)
        if segment is None and self.tentative:
            self.settle(self.tentative)
        return segment

    def begin(self, segment: Segment) -> int:
        """Where a window over the segment begins."""
        return max(self.floor, segment.start - self.pad)

    def unsettled(self, timeline: Timeline) -> int:
        """Samples of speech, and what follows it, that are neither committed nor known to be silence."""
        segment = first_segment(timeline, self.floor, self.pause)
        if segment is None:
            return 0
        return timeline.received - max(self.begin(segment), min(self.transcript.end, timeline.received))

    def needed(self, timeline: Timeline, look_back: int) -> int:
        """The first sample that a later window may hold; in silence the last `look_back` samples are kept."""
        segment = first_segment(timeline, self.floor, self.pause)
        return self.begin(segment) if segment else max(self.floor, timeline.received - look_back)

    def new_words(self, stretch: Stretch, words: Sequence[SpokenWord]) -> tuple[SpokenWord, ...]:
        """The words without those at the beginning that are committed already."""
        return tuple(words[repeated(tuple(self.transcript.recent), words, stretch.start) :])

    def settle(self, words: Sequence[SpokenWord]) -> None:
        """Commits words after which nothing is awaited."""
        self.transcript.commit(words)
        self.transcript.close()
        self.tentative = ()

    def carry_on(self, stretch: Stretch, words: Sequence[SpokenWord]) -> None:
        """Commits what is new in a FULL stretch up to its last whole word, before which the next one begins.

        The next window holds the last committed word again (to find the place by
        its text), the words at the edge again, and at least half a second. A word at the edge
        that began too early for that, stretched over noise, is committed as far as it is not heard again.
        """
        new = self.new_words(stretch, words)
        whole = next((n for n, word in enumerate(new) if word.end > stretch.end - EDGE), len(new))
        anchor = new[whole - 1 : whole] or new[:1]
        back = anchor[0].start - LEAD if anchor else stretch.end
        furthest = stretch.end - min(_FURTHEST_BACK, (stretch.end - stretch.start) // 2)
        self.floor = max(furthest, min(back, stretch.end - _OVERLAP))
        sure = next((n for n, word in enumerate(new) if n >= whole and word.middle >= self.floor), len(new))
        gone = [replace(word, end=min(word.end, self.floor)) for word in new[whole:sure]]
        self.transcript.commit([*new[:whole], *gone])
        self.tentative = new[sure:]


class VadPolicy(SegmentPolicy):
    """Policy `vad`: recognises a segment once, when its speaker pauses; there are no tentative words.

    Least compute and most context; the lag is as long as the segment. A speaker who does not pause is cut
    at a word border of the longest window.
    """

    def plan(self, timeline: Timeline) -> Stretch | None:
        segment = self.segment(timeline)
        if segment is None:
            return None
        begin = self.begin(segment)
        limit = begin + self.max_window
        # Whether somebody still spoke at the limit is known only a pause later.
        late = limit + self.pause
        if segment.final is not None and segment.end is not None and segment.final <= late:
            end = min(segment.end + self.pad, segment.final)
            kind = Kind.FINAL if end <= limit else Kind.FULL
            return Stretch(begin, min(end, limit), segment.final, kind)
        return Stretch(begin, limit, late, Kind.FULL) if timeline.received >= late else None
