"""How long what died waits for its next start."""

from __future__ import annotations

import pytest

from trimodal.server.supervision import backoff as module
from trimodal.server.supervision.backoff import Backoff


def test_the_wait_grows_until_a_calm_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    backoff = Backoff()
    waits = []
    for _ in range(8):  # each start fails after two seconds
        waits.append(backoff.next())
        now[0] += waits[-1] + 2.0
    assert waits == [0, 1, 2, 4, 8, 16, 30, 30]
    now[0] += 61.0
    assert [backoff.next(), backoff.next()] == [0, 1]
