"""Children of a process, looked for under /proc."""

from __future__ import annotations

import os
import subprocess

from tests.server.supervision.descriptors import no_descriptors
from trimodal.server.supervision.stubs import children, model_of


def test_the_children_of_a_process() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        assert child.pid in children(os.getpid())
        assert model_of(child.pid) == ""
        child.kill()
    assert list(children(child.pid)) == []


def test_a_process_without_descriptors_sees_none() -> None:
    """An exception would end the supervisor's thread, and with it all supervision."""
    with no_descriptors():
        assert list(children(os.getpid())) == []
