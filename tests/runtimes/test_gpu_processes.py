"""Processes on GPUs as the driver's management library lists them."""

from __future__ import annotations

import sys

import pynvml
import pytest

from tests.doubles.nvml import Board, install
from trimodal.runtimes.gpu_processes import gpu_pids


def test_those_of_all_gpus(monkeypatch):
    nvml = install(monkeypatch, [Board(pids=(11, 12)), Board(), Board(pids=(12, 13))])
    assert gpu_pids() == {11, 12, 13}
    assert nvml.open == 0, "closed again"


@pytest.mark.parametrize(
    ("call", "code"),
    [
        ("nvmlInit", pynvml.NVML_ERROR_LIBRARY_NOT_FOUND),
        ("nvmlDeviceGetComputeRunningProcesses", pynvml.NVML_ERROR_GPU_IS_LOST),
    ],
)
def test_where_no_driver_answers_there_are_none(monkeypatch, call, code):
    nvml = install(monkeypatch, [Board(pids=(11,))])
    nvml.fail(call, code)
    assert gpu_pids() == set()
    assert nvml.open == 0


def test_without_the_bindings_there_are_none(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert gpu_pids() == set()
