"""Policy `edge`: a word is final once it ends far enough before the end of what is heard.

All speech that is not settled is recognised again at each step, but Whisper is given the words that are final
as the beginning of its text, so it only goes on from there, and cannot take them back. The attention says
where a word ends; those that end nearer to the edge than `delay` allows may be cut, and are heard again. That
is AlignAtt's idea (Papi et al. 2023, as in SimulStreaming), by the times of whole words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from trimodal.audio.values import SAMPLE_RATE, Delay
from trimodal.speech.session.policy import EDGE, LEAD, Kind, Segment, SegmentPolicy, Stretch, Timeline
from trimodal.speech.session.transcript import SpokenWord, Transcript, after_prefix, agreed
from trimodal.speech.settings import SpeechSettings
from trimodal.speech.values import MAX_PROMPT

# Seconds that a word ends before the edge, and that a window holds before the first word is believed.
DELAYS_S: dict[Delay, tuple[float, float]] = {
    "minimal": (0.2, 0.0), "low": (0.2, 1.5), "medium": (0.4, 1.5), "high": (0.8, 1.5), "xhigh": (1.6, 1.5),
}  # fmt: skip
_CONTEXT = 2 * SAMPLE_RATE  # committed speech that a trimmed buffer still begins with
# What may be new in the time since then: a Whisper that is given a whole sentence may repeat it.
_WORDS, _WORDS_PER_S = 2, 6
_SENTENCE_ENDS = (".", "?", "!", "。", "？", "！")


class EdgePolicy(SegmentPolicy):
    """Steps at multiples of `step_s` on the stream's clock, each heard in order while not behind.

    Streams that began together thereby ask together, and share batches. More
    than two steps behind, the next step is the last one that audio has come for,
    at most `max_step_s` away, or the end of the segment.

    The first words, on which all others build, are believed when two windows agree on them, of which the
    last is not too short: short windows share their mishearings ("Howdy, Mary" for "Had he married").

    A pause settles the segment at once, with one window: over the rest of it, or, where a step lies far
    enough behind the last word, that step, which has heard all that the window would. A step that lies nearer
    is left out: it would hear the same words once more, and hold the last window up.
    """

    def __init__(self, settings: SpeechSettings, transcript: Transcript) -> None:
        super().__init__(settings, transcript)
        self._step = round(settings.step_s * SAMPLE_RATE)
        self._max_step = round(settings.max_step_s * SAMPLE_RATE)
        self._margin, self._least = (round(each * SAMPLE_RATE) for each in DELAYS_S[settings.delay])
        self._cursor = 0  # end of the last step
        self._heard = 0  # end of what `tentative` covers

    def plan(self, timeline: Timeline) -> Stretch | None:
        stretch = self._next(timeline)
        if stretch and stretch.kind is Kind.FINAL and self._has_heard(stretch, timeline):
            self.settle(self.tentative)
            self.floor = stretch.end
            stretch = self._next(timeline)
        if stretch is None or stretch.kind is not Kind.STEP:
            return stretch
        return replace(stretch, prefix=self._prefix(stretch.start))

    def accept(self, stretch: Stretch, words: Sequence[SpokenWord] | None) -> None:
        if stretch.kind is not Kind.FINAL:
            self._cursor = stretch.end
        if stretch.kind is not Kind.STEP:
            self._heard = 0  # the words at its edge are cut
            super().accept(stretch, words)
        elif words is not None:
            new = self.new_words(stretch, words)
            if len(new) > _WORDS + _WORDS_PER_S * max(0, stretch.end - self.transcript.end) // SAMPLE_RATE:
                return
            self._heard = stretch.end
            edge = stretch.end - self._margin
            sure = next((n for n, word in enumerate(new) if word.end > edge), len(new))
            if not stretch.prefix:
                long_enough = stretch.end - stretch.start >= self._least
                sure = min(sure, agreed(self.tentative, new)) if long_enough else 0
            self.transcript.commit(new[:sure])
            self.tentative = new[sure:]
            self._trim(stretch)

    def new_words(self, stretch: Stretch, words: Sequence[SpokenWord]) -> tuple[SpokenWord, ...]:
        """Those behind the prefix; where it was dropped, as in every policy."""
        new = after_prefix(stretch.prefix, words)
        return super().new_words(stretch, words) if new is None else new

    def _prefix(self, start: int) -> str:
        """The committed words that a window from `start` on holds."""
        text = "".join(word.text for word in self.transcript.recent if word.middle > start)
        return text if len(text) <= MAX_PROMPT else ""

    def _next(self, timeline: Timeline) -> Stretch | None:
        segment = self.segment(timeline)
        if segment is None:
            return None
        begin = self.begin(segment)
        limit = begin + self.max_window
        boundary = self._boundary(timeline, segment)
        final, end = segment.final, segment.end
        if final is not None and end is not None and (boundary is None or final <= boundary):
            if final > timeline.received:
                return None
            end = min(end + self.pad, final)
            kind = Kind.FINAL if end <= limit else Kind.FULL
            return Stretch(begin, min(end, limit), final, kind)
        if boundary is None or boundary > timeline.received:
            return None
        kind = Kind.STEP if boundary <= limit else Kind.FULL
        return Stretch(begin, min(boundary, limit), boundary, kind)

    def _boundary(self, timeline: Timeline, segment: Segment) -> int | None:
        """The next step; None: none, for the whole segment is here and the stream is behind."""
        # A window with less than half a step of speech is not worth its run.
        since = max(self._cursor, segment.known - 1, segment.start + self._step // 2 - 1)
        following = (since // self._step + 1) * self._step
        if _is_in_pause(following, timeline):
            following += self._step
        if timeline.received - since <= 2 * self._step or self._max_step <= self._step:
            return following
        if segment.final is not None:
            return None
        latest = min(timeline.received, since + self._max_step) // self._step * self._step
        return max(following, latest)

    def _has_heard(self, stretch: Stretch, timeline: Timeline) -> bool:
        """Whether the last step ended far enough behind the stretch's last word."""
        ends = [span.end for span in timeline.spans if span.end is not None and span.end <= stretch.end]
        return bool(ends) and min(stretch.end, ends[-1] + EDGE) <= self._heard

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


def _is_in_pause(step: int, timeline: Timeline) -> bool:
    """Whether a step lies in a pause, and so near behind the last word that its edge would cut it."""
    spans = [span for span in timeline.spans if span.known <= step]
    last = spans[-1] if spans else None
    if last is None or last.end is None or last.closed is None:
        return False
    return last.closed <= step < last.end + EDGE
