"""How benchmarks have windows recognised."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.parity.contexts import recognise
from trimodal.speech.values import Window


def test_a_window_is_decoded_at_the_temperatures_that_its_session_chose() -> None:
    service: Any = SimpleNamespace(recognise=lambda requests: [SimpleNamespace(rows=requests)])
    for temperatures, sent in (((), b""), ((0.0,), b"0.0"), ((0.0, 0.4), b"0.0,0.4")):
        asked: Any = recognise(service, Window(np.zeros(8, np.float32), temperatures=temperatures))
        assert asked.temperatures == [sent]
