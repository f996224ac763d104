"""Moves the wall clock of every Python process that has this folder on its PYTHONPATH.

By as many seconds as the file says that $CHAOS_CLOCK names. Monotonic clocks stay as they are, as they do
when an operator or NTP sets a machine's clock.
"""

from __future__ import annotations

import os
import time

if _FILE := os.environ.get("CHAOS_CLOCK"):
    _time = time.time

    def _moved() -> float:
        with open(_FILE) as file:
            return _time() + float(file.read())

    time.time = _moved
