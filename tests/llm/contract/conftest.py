"""Opens each engine once a module; vLLM where an environment that has it is named."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.llm.contract.adapters import write_adapters
from tests.llm.contract.rows import ENGINES, HOLES
from tests.llm.contract.served import BATCH, Served

ARTEFACTS = Path(__file__).parents[3] / "model_repository" / "llm" / "1"
# Steps long enough to act between two of them, on a machine that does other things too.
SETTINGS: dict[str, dict[str, Any]] = {
    "fake": {
        "num_kv_blocks": 64,
        "fake_step_ms": 5.0,
        "fake_prefill_us": 200.0,
        "max_num_batched_tokens": 64,
    },
    "openvino": {"artefact": str(ARTEFACTS / "openvino-int8"), "num_kv_blocks": 64},
    "vllm": {
        "device": "cpu",
        "threads": 1,
        "enforce_eager": True,
        "max_model_len": 2048,
        "max_loras": 2,
        "python": os.environ.get("TRIMODAL_VLLM_PYTHON", ""),
        "artefact": os.environ.get("TRIMODAL_VLLM_CHECKPOINT", ""),
    },
}


def settings(engine: str) -> dict[str, Any]:
    """For an engine of this name; skips where it is not there."""
    if engine == "vllm" and not SETTINGS["vllm"]["python"]:
        pytest.skip("TRIMODAL_VLLM_PYTHON names no environment with vLLM: scripts/ci/vllm makes one")
    common = {"engine": engine, "max_num_seqs": BATCH, "cancel_poll_ms": 5, "stall_timeout_s": 20}
    return common | SETTINGS[engine]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=() if name == "fake" else (pytest.mark.slow, pytest.mark.timeout(600)))
        for name in ENGINES
    ],
)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def opened(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    asked = settings(engine)
    if engine != "openvino":
        asked["lora_directory"] = str(tmp_path_factory.mktemp("lora"))
        write_adapters(Path(asked["lora_directory"]))
    served = Served(asked)
    yield served
    served.close()


@pytest.fixture
def served(opened: Served, request: pytest.FixtureRequest) -> Served:
    """The engine of this module; the test's name is its row."""
    row = request.function.__name__.removeprefix("test_")
    if reason := HOLES.get((row, opened.name)):
        pytest.skip(reason)
    opened.order.clear()
    return opened
