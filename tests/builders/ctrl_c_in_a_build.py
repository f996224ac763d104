"""Ctrl-C while TensorRT builds a plan. tensorrt/test_plan.py runs this file as a process."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

from tests.builders.gpu_machine import refused


def test_ctrl_c_ends_the_build_at_its_next_step(plans, trt, graph):
    answers: list[bool] = []
    gone = threading.Event()

    def interrupted(builder: object, network: object, config: Any) -> None:
        assert threading.current_thread() is not threading.main_thread()
        monitor = config.progress_monitor
        monitor.phase_start("Building", None, 3)
        monitor.phase_start("Timing", "Building", 1000)
        answers.append(monitor.step_complete("Timing", 0))
        os.kill(os.getpid(), signal.SIGINT)
        while monitor.step_complete("Timing", len(answers)) and len(answers) < 1000:
            answers.append(True)
            gone.wait(0.01)
        answers.append(False)
        monitor.phase_finish("Timing")
        monitor.phase_finish("Building")

    trt.recorder.returns("build_serialized_network", interrupted)
    # A shell's background jobs are started with the signal ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    assert refused(plans, graph) == "the build was cancelled: nothing was written"
    assert answers[0] is True
    assert answers[-1] is False
    assert len(answers) < 1000
