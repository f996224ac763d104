"""Policy `live`, the default: agreement while somebody speaks, everything final as soon as they pause."""

from __future__ import annotations

from trimodal.speech.policy import Kind, Stretch, Timeline
from trimodal.speech.policy_agreement import AgreementPolicy


class LivePolicy(AgreementPolicy):
    """Like `agreement`, but a pause settles the segment at once.

    With one window over the rest of it, or with none where the last step had heard the pause already.
    """

    def plan(self, timeline: Timeline) -> Stretch | None:
        stretch = super().plan(timeline)
        if stretch and stretch.kind is Kind.FINAL and stretch.end <= self.heard:
            self.settle(self.tentative)
            self.floor = stretch.end
            stretch = super().plan(timeline)
        return stretch

    def final_moment(self, paused: int, timeline: Timeline) -> int:
        return paused
