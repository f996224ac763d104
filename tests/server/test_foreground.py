"""Signals of a server in the foreground, to the last moment of its process."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

# A signal that comes while Python ends, and has given its own handlers back.
PROGRAM = """
import os, sys
from trimodal.server.foreground import Signals

class Last:
    def __del__(self, kill=os.kill, pid=os.getpid()):
        kill(pid, {number})

signals, last = Signals(), Last()
{end}
"""


@pytest.mark.parametrize(("end", "status"), [("", -signal.SIGTERM), ("signals.ignore()", 0)])
def test_a_signal_at_the_very_end_changes_no_status(end: str, status: int) -> None:
    program = PROGRAM.format(number=int(signal.SIGTERM), end=end)
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == status
