"""Runs a part's process under a time limit and leaves nothing of it behind."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
from collections.abc import Sequence

from trimodal.server.supervision.stubs import children

PR_SET_CHILD_SUBREAPER = 36


def run_limited(command: Sequence[str], seconds: float) -> str:
    """Runs the command, and ends it and all its descendants; empty when it ended well, else a sentence."""
    # A descendant whose parent dies becomes this process's child: servers have sessions of their own.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    others = set(children(os.getpid()))
    process = subprocess.Popen(command, start_new_session=True, stdin=subprocess.DEVNULL)
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        return f"ended at its time limit of {seconds:g} s (--limit-s)"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        while orphans := set(children(os.getpid())) - others:
            for pid in orphans:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
    if code < 0:
        return f"its process was ended by {signal.Signals(-code).name}"
    return f"its process ended with code {code}" if code else ""
