"""The share of a GPU that is left for the model that loads last."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from tests.server.artefacts import H200, L4
from trimodal.errors import OperatorError
from trimodal.runtimes import gpu_memory
from trimodal.runtimes.gpu_device import Gpu
from trimodal.runtimes.gpu_memory import RESERVE, free_share


@pytest.fixture
def share(monkeypatch: pytest.MonkeyPatch) -> Callable[..., float]:
    """The share on these GPUs, of those that can be seen."""

    def asked(*gpus: Gpu, of: int = 2) -> float:
        monkeypatch.setattr(gpu_memory, "visible_gpus", lambda: list(gpus))
        return free_share(of)

    return asked


def test_what_is_free_less_a_reserve_is_the_share(share: Callable[..., float]) -> None:
    assert share(H200) == pytest.approx((H200.free - RESERVE) / H200.memory, abs=1e-3)
    # vLLM refuses a share that is more than is free, by CUDA's own total, which is less than the driver's.
    assert share(H200) * (H200.memory - (1 << 29)) < H200.free - (1 << 29)


def test_of_several_gpus_the_fullest_counts(share: Callable[..., float]) -> None:
    busy = dataclasses.replace(H200, index=1, free=40 << 30)
    assert share(H200, busy) == share(busy) == share(busy, H200) < share(H200)
    assert share(H200, busy, of=1) == share(H200), "of those that the engine uses"


def test_a_full_gpu_is_named_before_a_library_is_imported(share: Callable[..., float]) -> None:
    full = dataclasses.replace(L4, index=1, free=2 << 30)
    with pytest.raises(OperatorError, match=r"GPU 1 has 2\.0 of 24\.0 GiB free, less than the 2\.7 that"):
        share(L4, full)
    with pytest.raises(OperatorError, match="no GPU can be seen"):
        share()
