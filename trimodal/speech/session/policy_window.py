"""Policy `window`: recognises windows of a fixed length with a small overlap, each once.

Even load, and a lag that does not depend on pauses. Silence is skipped, and a window that would end near a
silence ends within it instead.
"""

from __future__ import annotations

from trimodal.audio.values import SAMPLE_RATE
from trimodal.speech.session.policy import Kind, SegmentPolicy, Stretch, Timeline
from trimodal.speech.session.transcript import Transcript
from trimodal.speech.settings import SpeechSettings

_SILENCE = 3 * SAMPLE_RATE // 10  # the shortest in which a window may end


class WindowPolicy(SegmentPolicy):
    """Windows of `window_s` from the onset of speech on; the next one overlaps by `overlap_s`.

    Where words were cut by the end of a window, the overlap begins before the last whole
    word. Words of the overlap are matched by text first, else parted by their middles.
    """

    def __init__(self, settings: SpeechSettings, transcript: Transcript) -> None:
        super().__init__(settings, transcript)
        self._window = round(settings.window_s * SAMPLE_RATE)
        self.overlap = min(round(settings.overlap_s * SAMPLE_RATE), self._window // 2)

    def plan(self, timeline: Timeline) -> Stretch | None:
        segment = self.segment(timeline)
        if segment is None:
            return None
        begin = self.begin(segment)
        target = min(begin + self._window, timeline.received)
        if target < begin + self._window and not timeline.ended:
            return None
        silence = self._silence(timeline, begin, target)
        final = silence is not None or (timeline.ended and target == timeline.received)
        return Stretch(begin, silence or target, target, Kind.FINAL if final else Kind.FULL)

    def _silence(self, timeline: Timeline, begin: int, target: int) -> int | None:
        """Where to end in the last silence of the window, if it reaches into its last fifth."""
        spans = [span for span in timeline.spans if span.known <= target and span.start < target]
        found = None
        for n, span in enumerate(spans):
            if span.end is None or span.closed is None or span.closed > target or span.end <= begin:
                continue
            following = spans[n + 1].start if n + 1 < len(spans) else target
            if following - span.end >= _SILENCE and following > target - self._window // 5:
                found = min(span.end + self.pad, (span.end + following) // 2)
        return found
