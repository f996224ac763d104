"""Policies `agreement` and `live`: LocalAgreement-2 on a growing buffer.

As in whisper_streaming (Macháček et al. 2023), all speech that is not settled is recognised again at each
step, and the words on which two hypotheses in a row agree are committed. The buffer is trimmed at pauses, at
ends of sentences, and at the latest where it would become too long. `live` also settles a segment as soon as
its speaker pauses.
"""

from __future__ import annotations

from collections.abc import Sequence

from trimodal.audio.values import SAMPLE_RATE
from trimodal.speech.session.policy import EDGE, LEAD, Kind, Segment, SegmentPolicy, Stretch, Timeline
from trimodal.speech.session.transcript import SpokenWord, Transcript, agreed
from trimodal.speech.settings import SpeechSettings

_CONTEXT = 2 * SAMPLE_RATE  # committed speech that a trimmed buffer still begins with
_SENTENCE_ENDS = (".", "?", "!", "。", "？", "！")


class AgreementPolicy(SegmentPolicy):
    """Steps at multiples of `step_s` on the stream's clock, each heard in order while not behind.

    Streams that began together thereby ask together, and share batches. More
    than two steps behind, the next step is the last one that audio has come for,
    at most `max_step_s` away, or the end of the segment.

    Attributes:
        least: samples of a window from which on its agreement with the one before counts.
    """

    least = 0

    def __init__(self, settings: SpeechSettings, transcript: Transcript) -> None:
        super().__init__(settings, transcript)
        self._step = round(settings.step_s * SAMPLE_RATE)
        self._max_step = round(settings.max_step_s * SAMPLE_RATE)
        self._cursor = 0  # end of the last step
        self.heard = 0  # end of what `tentative` covers

    def plan(self, timeline: Timeline) -> Stretch | None:
        segment = self.segment(timeline)
        if segment is None:
            return None
        begin = self.begin(segment)
        limit = begin + self.max_window
        boundary = self._boundary(timeline, segment)
        if segment.final is not None and segment.end is not None:
            final = self.final_moment(segment.final, timeline)
            if boundary is None or final <= boundary:
                if final > timeline.received:
                    return None
                end = min(segment.end + self.pad, segment.final)
                kind = Kind.FINAL if end <= limit else Kind.FULL
                return Stretch(begin, min(end, limit), final, kind)
        if boundary is None or boundary > timeline.received:
            return None
        kind = Kind.STEP if boundary <= limit else Kind.FULL
        return Stretch(begin, min(boundary, limit), boundary, kind)

    def final_moment(self, paused: int, timeline: Timeline) -> int:
        """When a segment is settled whose pause was long enough at `paused`: at the next step."""
        return timeline.received if timeline.ended else -(-paused // self._step) * self._step

    def is_needed(self, step: int, timeline: Timeline) -> bool:
        """Whether words are awaited of a window that ends with this step."""
        return True

    def accept(self, stretch: Stretch, words: Sequence[SpokenWord] | None) -> None:
        if stretch.kind is not Kind.FINAL:
            self._cursor = stretch.end
        if stretch.kind is not Kind.STEP:
            self.heard = 0  # the words at its edge are cut
            super().accept(stretch, words)
        elif words is not None:
            self.heard = stretch.end
            new = self.new_words(stretch, words)
            sure = agreed(self.tentative, new) if stretch.end - stretch.start >= self.least else 0
            while sure and new[sure - 1].end > stretch.end - EDGE:
                sure -= 1
            self.transcript.commit(new[:sure])
            self.tentative = new[sure:]
            self._trim(stretch)

    def _boundary(self, timeline: Timeline, segment: Segment) -> int | None:
        """The next step; None: none, for the whole segment is here and the stream is behind."""
        # A window with less than half a step of speech is not worth its run.
        since = max(self._cursor, segment.known - 1, segment.start + self._step // 2 - 1)
        following = (since // self._step + 1) * self._step
        if not self.is_needed(following, timeline):
            following += self._step
        if timeline.received - since <= 2 * self._step or self._max_step <= self._step:
            return following
        if segment.final is not None:
            return None
        latest = min(timeline.received, since + self._max_step) // self._step * self._step
        return max(following, latest)

    def _trim(self, stretch: Stretch) -> None:
        """Lets the buffer begin later once it is three quarters full: compute grows with its length."""
        if stretch.end - stretch.start <= self.max_window * 3 // 4:
            return
        within = [word for word in self.transcript.recent if word.start > stretch.start]
        if not within:
            return
        sentences = [word.end for word in within if word.text.rstrip().endswith(_SENTENCE_ENDS)]
        near = [word.start - LEAD for word in within if word.start >= self.transcript.end - _CONTEXT]
        # A sentence is the better place, if the buffer becomes at most half full by it.
        if sentences and stretch.end - sentences[-1] <= self.max_window // 2:
            self.floor = sentences[-1]
        elif near:
            self.floor = max(self.floor, near[0])


class LivePolicy(AgreementPolicy):
    """Like `agreement`, but a pause settles the segment at once.

    With one window: over the rest of it, or, where a step lies far enough behind the last word, that step,
    which has heard all that the window would. A step that lies nearer is left out: it would hear the same
    words once more, and hold the last window up.

    Words are committed later where only short windows agree on them: those share their mishearings
    ("Howdy, Mary" for "Had he married").
    """

    least = 3 * SAMPLE_RATE // 2

    def plan(self, timeline: Timeline) -> Stretch | None:
        stretch = super().plan(timeline)
        if stretch and stretch.kind is Kind.FINAL and self._has_heard(stretch, timeline):
            self.settle(self.tentative)
            self.floor = stretch.end
            stretch = super().plan(timeline)
        return stretch

    def is_needed(self, step: int, timeline: Timeline) -> bool:
        spans = [span for span in timeline.spans if span.known <= step]
        last = spans[-1] if spans else None
        is_pause = last is not None and last.closed is not None and last.closed <= step
        return not (is_pause and last is not None and last.end is not None and step < last.end + EDGE)

    def _has_heard(self, stretch: Stretch, timeline: Timeline) -> bool:
        """Whether the last step ended far enough behind the stretch's last word."""
        ends = [span.end for span in timeline.spans if span.end is not None and span.end <= stretch.end]
        return bool(ends) and min(stretch.end, ends[-1] + EDGE) <= self.heard

    def final_moment(self, paused: int, timeline: Timeline) -> int:
        return paused
