"""Policy `vad`: recognises a segment once, when its speaker pauses; there are no tentative words.

Least compute and most context; the lag is as long as the segment. A speaker who does not pause is cut at a
word border of the longest window.
"""

from __future__ import annotations

from trimodal.speech.session.policy import Kind, SegmentPolicy, Stretch, Timeline


class VadPolicy(SegmentPolicy):
    """Segments between pauses of `pause_s`, none longer than `max_window_s`."""

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
