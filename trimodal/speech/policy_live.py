"""Policy `live`, the default: agreement while somebody speaks, everything final as soon as they pause."""

from __future__ import annotations

from trimodal.speech.policy import Kind, Stretch, Timeline
from trimodal.speech.policy_agreement import AgreementPolicy


class LivePolicy(AgreementPolicy):
    """Like `agreement`, but a pause settles the segment at once: with one window over the rest of it,

    or with none, when the last step had heard the pause already.
    """

    def final_moment(self, paused: int, timeline: Timeline) -> int:
        return min(paused, timeline.received)

    def shortened(self, stretch: Stretch) -> Stretch | None:
        if stretch.kind is not Kind.FINAL or self.heard < stretch.end:
            return stretch
        self.settle(self.tentative)
        self.floor = stretch.end
        return None
