"""Compares the server's monotonic clock with the client's, which is the same one on one machine."""

from __future__ import annotations

from collections.abc import Sequence

SLACK = 50_000
"""Nanoseconds by which times of one clock may seem out of order, as they are taken before or after."""


def clock_offset(
    sent: int, events: Sequence[int], arrivals: Sequence[tuple[int, int]]
) -> tuple[int, int] | None:
    """Nanoseconds that the server's clock is ahead, and by how much that may be wrong; None: one clock.

    As NTP does it: what the server did lies between the client's sending and its receiving, so the offset
    lies between two bounds; the middle of them is taken. Clocks of two machines count from their starts and
    differ by hours or days, so bounds that allow 0 mean the same clock.

    Args:
        events: times of the server. arrivals: when it made something, and when the client had that.
    """
    most = min(events) - sent
    least = max(made - received for made, received in arrivals)
    if least - SLACK <= 0 <= most + SLACK:
        return None
    return (least + most) // 2, abs(most - least) // 2
