"""GPUs as the driver's management library tells them."""

from __future__ import annotations

import sys

import pynvml
import pytest

from tests.doubles.nvml import Board, install
from trimodal.errors import ServerError
from trimodal.runtimes.gpu_device import current_gpu, gpu_pids, visible_gpus

H200 = Board()
L4 = Board("NVIDIA L4", (8, 9), 24_152_899_584, 23_000_000_000, "GPU-22222222-bbbb")
TWIN = Board(uuid="GPU-11112222-cccc")


def test_a_gpu_is_described(monkeypatch):
    nvml = install(monkeypatch, [H200, L4])
    first, second = visible_gpus()
    assert (first.index, first.name, first.sm) == (0, "NVIDIA H200", "9.0")
    assert (first.memory, first.free) == (150_754_820_096, 150_000_000_000)
    assert first.driver == "580.65.06"
    assert (second.index, second.sm, second.uuid) == (1, "8.9", "GPU-22222222-bbbb")
    assert nvml.open == 0, "closed again"
    assert current_gpu() == first


def test_texts_may_be_bytes_as_older_bindings_give_them(monkeypatch):
    install(monkeypatch, [H200], driver=b"535.1")
    (gpu,) = visible_gpus()
    assert (gpu.name, gpu.driver, gpu.uuid) == ("NVIDIA H200", "535.1", "GPU-11111111-aaaa")


@pytest.mark.parametrize(
    ("variable", "seen"),
    [
        ("0", [0]),
        ("2, 0", [2, 0]),
        ("", []),
        ("-1", []),
        ("1,7,0", [1]),  # up to the first that is none
        ("GPU-2222", [1]),
        ("GPU-11112222-cccc,0", [2, 0]),
        ("GPU-1111", []),  # two begin so
        ("GPU-9", []),
        ("MIG-11111111-aaaa", []),
        ("NoDevFiles", []),
    ],
)
def test_the_environment_hides_and_orders_gpus_as_it_does_for_cuda(monkeypatch, variable, seen):
    install(monkeypatch, [H200, L4, TWIN])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    assert [gpu.index for gpu in visible_gpus()] == seen
    current = current_gpu()
    assert (current.index if current else None) == (seen[0] if seen else None)


def test_a_mig_instance_is_one_gpu_with_its_own_memory(monkeypatch):
    part = Board("NVIDIA H200 MIG 1g.18gb", (0, 0), 17 << 30, 16 << 30, "MIG-33333333-dddd")
    nvml = install(monkeypatch, [L4, Board(parts=(part,))])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-33333333-dddd,MIG-9")  # CUDA opens the first alone
    (gpu,) = visible_gpus()
    assert (gpu.index, gpu.name, gpu.sm) == (1, "NVIDIA H200 MIG 1g.18gb", "9.0")
    assert (gpu.memory, gpu.free, gpu.uuid) == (17 << 30, 16 << 30, "MIG-33333333-dddd")
    assert nvml.open == 0, "closed again"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-9")
    assert visible_gpus() == []


def test_no_driver_is_one_sentence(monkeypatch):
    nvml = install(monkeypatch, [])
    nvml.fail("nvmlInit", pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
    with pytest.raises(ServerError, match=r"no NVIDIA driver answers \(Driver Not Loaded\): install one"):
        visible_gpus()
    assert current_gpu() is None


@pytest.mark.parametrize(
    "call",
    ["nvmlSystemGetDriverVersion", "nvmlDeviceGetCount", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetUUID"],
)
def test_a_driver_that_fails_midway_is_one_sentence_and_the_library_is_closed(monkeypatch, call):
    nvml = install(monkeypatch, [H200])
    nvml.fail(call, pynvml.NVML_ERROR_GPU_IS_LOST)
    with pytest.raises(ServerError, match="does not tell its GPUs"):
        visible_gpus()
    assert nvml.open == 0


def test_a_machine_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(ServerError, match=r"nvidia-ml-py is not installed: pip install 'trimodal\[cuda\]'"):
        visible_gpus()
    assert current_gpu() is None


def test_no_gpu_under_a_driver(monkeypatch):
    install(monkeypatch, [])
    assert visible_gpus() == []
    assert current_gpu() is None


def test_processes_of_all_gpus(monkeypatch):
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
def test_where_no_driver_answers_there_are_no_processes(monkeypatch, call, code):
    nvml = install(monkeypatch, [Board(pids=(11,))])
    nvml.fail(call, code)
    assert gpu_pids() == set()
    assert nvml.open == 0


def test_without_the_bindings_there_are_no_processes(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert gpu_pids() == set()
