"""Policy `edge`: a word is final once it ends far enough before the end of what is heard.

All speech that is not settled is recognised again at each step, but Whisper is given the words that are final
as the beginning of its text, so it only goes on from there, and cannot take them back. The attention says
where a word ends; those that end nearer to the edge than `delay` allows may be cut, and are heard again. That
is AlignAtt's idea (Papi et al. 2023, as in SimulStreaming), by the times of whole words.

Whisper's first guess of a sentence is its worst ("Howdy, Mary" for "Had he married"), unless it hears and
reads what came before: the first windows after a pause begin with what was said before it. And once the
speaker pauses, all that was said since the last pause is heard as a whole, which corrects the words that were
committed meanwhile.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from operator import eq

from trimodal.audio.values import SAMPLE_RATE, Delay
from trimodal.speech.session import policy
from trimodal.speech.session.policy import EDGE, LEAD, Kind, Segment, SegmentPolicy, Stretch, Timeline
from trimodal.speech.session.transcript import SpokenWord, Transcript, after_prefix, agreed, normalised
from trimodal.speech.settings import SpeechSettings
from trimodal.speech.values import MAX_PROMPT

# Seconds that a word ends before the edge: one on which two windows agree, and any.
DELAYS_S: dict[Delay, tuple[float, float]] = {
    "minimal": (0.2, 0.3), "low": (0.2, 0.4), "medium": (0.3, 0.5), "high": (0.6, 0.8), "xhigh": (1.4, 1.6),
}  # fmt: skip
# Of silence, after which its last word is heard. Words of an answer wait for it.
_PAUSE = SAMPLE_RATE * 16 // 100
_CONTEXT = 2 * SAMPLE_RATE  # committed speech that a trimmed buffer still begins with
# Of a segment: it is heard after what was said before. Each word of that costs a step of the decoder.
_BEGINNING = 3 * SAMPLE_RATE
_REST = SAMPLE_RATE * 45 // 100  # how long speech may go on behind its last word, as the detector hears it
# What may be new in the time since then: a Whisper that is given a whole sentence may repeat it.
_WORDS, _WORDS_PER_S = 2, 6
_REPEATED = 4  # words in the order of those before: too many for chance
_DOUBT = 0.5  # a final word's probability, by what follows it, below which all is heard again ("you're call")
_SENTENCE_ENDS = (".", "?", "!", "。", "？", "！")


class EdgePolicy(SegmentPolicy):
    """Steps at multiples of `step_s` on the stream's clock, each heard in order while not behind.

    Streams that began together thereby ask together, and share batches. More
    than two steps behind, the next step is the last one that audio has come for,
    at most `max_step_s` away, or the end of the segment.

    A word is believed when two windows agree on it, or a little further behind the edge: where a first window
    hears "an old", the next one hears "an ill-disposed". A compound is believed as a whole, for what is heard
    behind a part of it that is final is bent by it ("an inter-aster-risk").

    In a pause there is one step, as soon as the last word cannot be cut any more: whoever waits for the end
    of a turn has its words by then. None, where all words are final already and none is doubtful. It hears
    the segment from its beginning, without the words that are final, which it corrects; a segment that is
    longer than a window stays as it was heard. It, or a step that lies behind it, has heard all that the
    pause's own window would, and settles the segment; else that window does.
    """

    def __init__(self, settings: SpeechSettings, transcript: Transcript) -> None:
        super().__init__(settings, transcript)
        self._step = round(settings.step_s * SAMPLE_RATE)
        self._max_step = round(settings.max_step_s * SAMPLE_RATE)
        self._agreed, self._alone = (round(each * SAMPLE_RATE) for each in DELAYS_S[settings.delay])
        self._cursor = 0  # end of the last step
        self._heard = 0  # end of what `tentative` covers
        self._kept = 0  # nothing before it is held any more
        self._over = 0  # where the last segment was settled
        self._cut = False  # this one was longer than a window
        self._doubted = False  # one of its final words, by what was heard behind it
        self._misheard = 0  # end of final words that a window was given and did not begin with
        self._words: tuple[SpokenWord, ...] = ()  # of the last window, those that it was given, too

    def plan(self, timeline: Timeline) -> Stretch | None:
        stretch = self._plan(timeline)
        if stretch is None:
            return None
        heard = self.tentative
        if not stretch.prefix:
            first = self._words[0].start if self._words else sys.maxsize
            earlier = (word for word in self.transcript.recent if word.middle < first)
            heard = tuple(word for word in (*earlier, *self._words) if word.middle > stretch.start)
        return replace(stretch, draft="".join(word.text for word in heard)[:MAX_PROMPT])

    def _plan(self, timeline: Timeline) -> Stretch | None:
        stretch = self._next(timeline)
        if stretch and stretch.kind is Kind.FINAL and self._has_heard(stretch, timeline):
            self.floor = stretch.end
            self.settle(self.tentative)
            stretch = self._next(timeline)
        if stretch and stretch.kind in (Kind.PAUSE, Kind.FINAL):
            begin = self._begin_of_segment(timeline, stretch.end)
            # What is short is understood by what was said before it.
            if begin is not None and stretch.end - begin > _BEGINNING:
                return replace(stretch, start=begin, whole=True)
        if stretch is None or not stretch.kind.is_hypothesis:
            return stretch
        if stretch.kind is Kind.PAUSE and not self.tentative:
            return stretch  # Whisper, given a whole sentence, may say it again
        return self._after_what_was_said(stretch)

    def accept(self, stretch: Stretch, words: Sequence[SpokenWord] | None) -> None:
        if stretch.kind is not Kind.FINAL:
            self._cursor = stretch.end
        self._words = self._words if words is None else tuple(words)
        if not stretch.kind.is_hypothesis:
            self._heard = 0  # the words at its edge are cut
            self._cut = True
            super().accept(stretch, words)
        elif words is not None:
            forced = after_prefix(stretch.prefix, words)
            if stretch.prefix and forced is None:
                self._misheard, self._doubted = self.transcript.end, True
            new = self.new_words(stretch, words) if forced is None else forced
            own = max(self.transcript.end, stretch.start + stretch.context)  # where new words can begin
            most = _WORDS + _WORDS_PER_S * max(0, stretch.end - own) // SAMPLE_RATE
            if len(new) > most or self._repeats(stretch, new, stretch.end - own):
                return
            self._heard = stretch.end
            if forced is not None:
                final = words[: len(words) - len(new)]
                self._doubted = any(word.probability < _DOUBT for word in final if word.middle > self._over)
            if stretch.whole:
                self.transcript.correct(words, len(words) - len(new))
                self._misheard, self._doubted = 0, False
            self._commit(stretch, new)
            self._trim(stretch)

    def settle(self, words: Sequence[SpokenWord]) -> None:
        super().settle(words)
        self._over, self._cut, self._doubted, self._misheard = self.floor, False, False, 0

    def _commit(self, stretch: Stretch, new: Sequence[SpokenWord]) -> None:
        """Commits those of the step's new words that are believed; the others are tentative."""
        both = min(agreed(self.tentative, new), _before(new, stretch.end - self._agreed))
        sure = _whole(new, max(both, _before(new, stretch.end - self._alone)))
        self.transcript.commit(new[:sure])
        self.tentative = tuple(new[sure:])

    def _begin_of_segment(self, timeline: Timeline, end: int | None = None) -> int | None:
        """Where a window begins that holds the segment up to a sample, or as far as it is known.

        None: it is too long for one.
        """
        segment = policy.first_segment(timeline, self._over, self.pause)
        if self._cut or segment is None:
            return None
        if end is None:
            end = timeline.received
            if segment.final is not None and segment.end is not None:  # the stream may be far behind
                end = segment.end + self.pad
        begin = max(self._over, segment.start - self.pad)
        return begin if begin >= self._kept and end - begin <= self.max_window else None

    def _repeats(self, stretch: Stretch, new: Sequence[SpokenWord], since: int) -> bool:
        """Whether the words are those of the prefix again, which took longer than the samples since then."""
        before = [word for word in self.transcript.recent if word.middle > stretch.start]
        said = [normalised(word.text) for word in before]
        again = [normalised(word.text) for word in new]
        begins = range(len(said) - _REPEATED + 1) if len(again) >= _REPEATED else ()
        for begin in begins:
            if all(map(eq, said[begin:], again)):
                run = before[begin : begin + len(again)]
                if run[-1].end - run[0].start > since:
                    return True
        return False

    def needed(self, timeline: Timeline, look_back: int) -> int:
        needed = super().needed(timeline, look_back)
        begin = self._begin_of_segment(timeline)
        needed = needed if begin is None else min(needed, begin)
        self._kept = max(self._kept, min(self._begin_of_words(needed - self.max_window), needed))
        return self._kept

    def _after_what_was_said(self, stretch: Stretch) -> Stretch:
        """The step; at a segment's beginning with the words before it for which a window has room.

        Words that were misheard are not given while they can be heard: each step would be decoded twice.
        """
        start = stretch.start
        if stretch.end - start <= _BEGINNING:
            earliest = max(stretch.end - self.max_window, self._kept)
            start = min(self._begin_of_words(earliest), start)
        text = "".join(word.text for word in self.transcript.recent if word.middle > start)
        if len(text) > MAX_PROMPT:
            return stretch
        prefix = "" if start < self._misheard else text
        return replace(stretch, start=start, context=stretch.start - start, prefix=prefix)

    def _begin_of_words(self, earliest: int) -> int:
        """Where a window begins that holds the committed words from a sample on; without any, far ahead."""
        begins = (word.start - LEAD for word in self.transcript.recent)
        return next((begin for begin in begins if begin >= earliest), sys.maxsize)

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
        kind = Kind.PAUSE if _is_in_pause(boundary, timeline) else Kind.STEP
        kind = kind if boundary <= limit else Kind.FULL
        return Stretch(begin, min(boundary, limit), boundary, kind)

    def _boundary(self, timeline: Timeline, segment: Segment) -> int | None:
        """The next step; None: none, for the whole segment is here and the stream is behind."""
        # A window with less than half a step of speech is not worth its run.
        since = max(self._cursor, segment.known - 1, segment.start + self._step // 2 - 1)
        following = self._step_after(since, timeline)
        if timeline.received - since <= 2 * self._step or self._max_step <= self._step:
            return following
        if segment.final is not None:
            return None
        latest = min(timeline.received, since + self._max_step) // self._step * self._step
        return max(following, latest)

    def _step_after(self, since: int, timeline: Timeline) -> int:
        """The first multiple of the step after a sample; in a pause one step, which hears its last word."""
        following = (since // self._step + 1) * self._step
        onsets = [*(span.known for span in timeline.spans), sys.maxsize]
        for span, resumed in zip(timeline.spans, onsets[1:], strict=True):
            if span.end is None or span.closed is None:
                continue
            paused = max(span.end + _PAUSE, span.closed)
            if paused >= resumed:
                continue
            if since < paused and not (self._is_said(span.end) and not self._doubts(timeline, paused)):
                # One that is due before, when the pause is known, would cut that word.
                following = paused if span.closed <= following else following
            elif span.closed <= following < resumed:
                following = -(-resumed // self._step) * self._step
        return following

    def _doubts(self, timeline: Timeline, end: int) -> bool:
        """Whether the segment is to be heard as a whole, though all its words are final."""
        begin = self._begin_of_segment(timeline, end)
        return begin is not None and end - begin > _BEGINNING and self._doubted

    def _has_heard(self, stretch: Stretch, timeline: Timeline) -> bool:
        """Whether the last step ended far enough behind the stretch's last word."""
        ends = [span.end for span in timeline.spans if span.end is not None and span.end <= stretch.end]
        if not ends:
            return False
        return self._is_said(ends[-1]) or min(stretch.end, ends[-1] + _PAUSE) <= self._heard

    def _is_said(self, end: int) -> bool:
        """Whether all words of speech that ended here are final, up to about its end.

        None was cut then, and a window over the rest of the sound would make one up.
        """
        is_final = not self.tentative and self.transcript.end >= end - _REST
        return is_final and end + EDGE // 4 <= self._heard

    def _trim(self, stretch: Stretch) -> None:
        """Lets the buffer begin later once it is three quarters full: compute grows with its length."""
        own = stretch.start + stretch.context
        if stretch.end - own <= self.max_window * 3 // 4:
            return
        within = [word for word in self.transcript.recent if word.start > own]
        if not within:
            return
        sentences = [word.end for word in within if word.text.rstrip().endswith(_SENTENCE_ENDS)]
        near = [word.start - LEAD for word in within if word.start >= self.transcript.end - _CONTEXT]
        # A sentence is the better place, if the buffer becomes at most half full by it.
        if sentences and stretch.end - sentences[-1] <= self.max_window // 2:
            self.floor = max(self.floor, sentences[-1])
        elif near:
            self.floor = max(self.floor, near[0])


def _before(words: Sequence[SpokenWord], moment: int) -> int:
    """Words at the beginning that end by a sample of the stream."""
    return next((n for n, word in enumerate(words) if word.end > moment), len(words))


def _whole(words: Sequence[SpokenWord], count: int) -> int:
    """As many of the words, less the first parts of a compound whose next part is behind them."""
    while 0 < count < len(words) and _goes_on(words[count].text):
        count -= 1
    return count


def _goes_on(text: str) -> bool:
    """Whether a word is a part of the one before it, as "-disposed" is."""
    return bool(text[:1].strip()) and not text[0].isalnum()


def _is_in_pause(step: int, timeline: Timeline) -> bool:
    """Whether speech was known to have ended, at the step, and not to go on."""
    spans = [span for span in timeline.spans if span.known <= step]
    return bool(spans) and spans[-1].closed is not None and spans[-1].closed <= step
