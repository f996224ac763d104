"""A double of NVIDIA's management library: the GPUs that a test names, behind the names that pynvml has."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any

import pynvml
import pytest


@dataclass(frozen=True)
class Board:
    """One GPU as NVML would describe it; memory in bytes."""

    name: str = "NVIDIA H200"
    sm: tuple[int, int] = (9, 0)
    total: int = 150_754_820_096
    free: int = 150_000_000_000
    uuid: str = "GPU-11111111-aaaa"
    pids: tuple[int, ...] = ()
    parts: tuple[Board, ...] = ()  # its MIG instances


class Nvml(ModuleType):
    """Raises AttributeError for names that the real module lacks, NVMLError_Uninitialized out of turn."""

    NVMLError = pynvml.NVMLError
    NVMLError_NotFound = pynvml.NVMLError_NotFound
    NVMLError_InvalidArgument = pynvml.NVMLError_InvalidArgument
    NVMLError_NotSupported = pynvml.NVMLError_NotSupported

    def __init__(self, boards: list[Board], *, driver: str = "580.65.06") -> None:
        super().__init__("pynvml")
        self.open = 0
        self._boards = boards
        self._fails: dict[str, int] = {}
        texts: Callable[[str], str | bytes] = str.encode if isinstance(driver, bytes) else str
        answers: dict[str, Callable[..., Any]] = {
            "nvmlSystemGetDriverVersion": lambda: driver,
            "nvmlDeviceGetCount": lambda: len(self._boards),
            "nvmlDeviceGetHandleByIndex": lambda index: self._boards[index],
            "nvmlDeviceGetHandleByUUID": self._by_uuid,
            "nvmlDeviceGetDeviceHandleFromMigDeviceHandle": self._whole,
            "nvmlDeviceGetIndex": lambda board: self._boards.index(board),
            "nvmlDeviceGetCudaComputeCapability": self._capability,
            "nvmlDeviceGetMemoryInfo": lambda board: SimpleNamespace(total=board.total, free=board.free),
            "nvmlDeviceGetName": lambda board: texts(board.name),
            "nvmlDeviceGetUUID": lambda board: texts(board.uuid),
            "nvmlDeviceGetComputeRunningProcesses": lambda board: [
                SimpleNamespace(pid=pid, usedGpuMemory=None) for pid in board.pids
            ],
        }
        for name, answer in answers.items():
            self._add(name, answer)
        self._add("nvmlInit", lambda: self._count(1), opens=True)
        self._add("nvmlShutdown", lambda: self._count(-1))

    def fail(self, name: str, code: int) -> None:
        """From now on the call raises the library's error of this number."""
        self._fails[name] = code

    def _by_uuid(self, uuid: str) -> Board:
        known = [*self._boards, *(part for board in self._boards for part in board.parts)]
        found = [board for board in known if board.uuid == uuid]
        if not found:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return found[0]

    def _whole(self, part: Board) -> Board:
        found = [board for board in self._boards if part in board.parts]
        if not found:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return found[0]

    def _capability(self, board: Board) -> tuple[int, int]:
        """Not of a MIG instance."""
        if board not in self._boards:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return board.sm

    def _add(self, name: str, answer: Callable[..., Any], *, opens: bool = False) -> None:
        assert hasattr(pynvml, name), name

        def call(*arguments: Any) -> Any:
            if name in self._fails:
                raise pynvml.NVMLError(self._fails[name])
            if not opens and not self.open:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_UNINITIALIZED)
            return answer(*arguments)

        setattr(self, name, call)

    def _count(self, change: int) -> None:
        self.open += change


def install(monkeypatch: pytest.MonkeyPatch, boards: list[Board], **options: Any) -> Nvml:
    """Puts the double in place of pynvml for one test, CUDA_VISIBLE_DEVICES unset."""
    nvml = Nvml(boards, **options)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return nvml
