"""Kills processes, and stops them for a while."""

from __future__ import annotations

import contextlib
import os
import signal

from tests.chaos.faults.base import ALL, Fault
from tests.chaos.served import Served

TEXTS = frozenset({"text", "chat", "assistant"})
SPOKEN = frozenset({"speech", "assistant"})
# Process → what runs in it or through it.
HARMS = {
    "llm": TEXTS,
    "engine": TEXTS,
    "vision": frozenset({"picture", "assistant"}),
    "speech": SPOKEN,
    "speech_recognize": SPOKEN,
    "assistant": frozenset({"assistant"}),
    "embedding": frozenset({"embedding"}),
    "tritonserver": ALL,
    "guard": ALL,
    "launcher": ALL,
}
LOCK = "Triton 2.51 ends with lock_exception"


class Kill(Fault):
    """kill -9."""

    def __init__(self, part: str) -> None:
        self.part, self.name, self.harms = part, f"kill-{part}", HARMS[part]
        if part in ("tritonserver", "guard"):
            self.limit = "all models are in it"
        elif part == "launcher":
            self.limit = "`serve` is this process"
        elif part != "engine":
            self.limit = LOCK

    def inject(self, served: Served) -> None:
        os.kill(served.pid(self.part), signal.SIGKILL)


class Stop(Fault):
    """SIGSTOP, and SIGCONT after a while."""

    def __init__(self, part: str, seconds: float) -> None:
        self.part, self.name, self.holds_s = part, f"stop-{part}-{seconds:g}s", seconds
        if part not in ("engine", "launcher", "guard"):
            self.limit = LOCK
            self.harms = HARMS[part]
        self._pid = 0

    def inject(self, served: Served) -> None:
        self._pid = served.pid(self.part)
        os.kill(self._pid, signal.SIGSTOP)

    def heal(self, served: Served) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has ended, with the server or alone
            os.kill(self._pid, signal.SIGCONT)
