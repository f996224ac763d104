"""What a GPU engine refuses before a library is opened: each misfit is one sentence that says what to do."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tests.llm.engines.tensorrt_llm.rig import H100, artefact
from trimodal.errors import OperatorError, SettingsError
from trimodal.llm.engines import artefact as gpu_artefact
from trimodal.llm.engines.artefact import card_limits, checkpoint
from trimodal.llm.engines.protocol import open_engine
from trimodal.llm.settings import LlmSettings
from trimodal.runtimes.gpu_device import Gpu

L4 = Gpu(0, "NVIDIA L4", "8.9", 24 << 30, 23 << 30, "580.65")
AGAIN = "build again with: python build/llm_place.py tiny"


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(gpu_artefact, "visible_gpus", lambda: [H100])
    with mock.patch.dict(os.environ):
        yield


def refusal(directory: Path, engine: str = "vllm", manifest: Any = None, **changes: Any) -> str:
    """The sentence with which the engine does not open; no library was imported for it."""
    made = artefact(directory / "made", **(manifest or {}))
    before = set(sys.modules)
    with pytest.raises(OperatorError) as raised:
        open_engine(LlmSettings.model_validate({"engine": engine, "artefact": str(made)} | changes))
    assert not {"tensorrt_llm", "vllm"} & (set(sys.modules) - before)
    assert "\n" not in str(raised.value)
    return str(raised.value).replace(str(made), "DIR")


@pytest.mark.parametrize("engine", ["tensorrt_llm_pytorch", "vllm"])
def test_an_artefact_for_another_runtime(tmp_path: Path, engine: str) -> None:
    assert refusal(tmp_path, engine, manifest={"runtime": "openvino"}) == (
        f"DIR holds a llm engine for openvino, not a llm engine for checkpoint: {AGAIN}"
    )


@pytest.mark.parametrize("engine", ["tensorrt_llm_pytorch", "vllm"])
def test_a_checkpoint_needs_the_gpus_that_it_is_spread_over(tmp_path: Path, engine: str) -> None:
    wanted = {"tensor_parallel_size": 2, "pipeline_parallel_size": 2}
    assert refusal(tmp_path, engine, **wanted) == (
        "tensor_parallel_size 2 × pipeline_parallel_size 2 needs 4 GPUs, and 1 can be seen here"
    )
    assert "max_position_embeddings 4096, and max_model_len is 5000" in refusal(
        tmp_path, engine, max_model_len=5000
    )
    assert "asks for fp16" in refusal(tmp_path, engine, precision="fp16")
    assert "not cdcd" in refusal(tmp_path, engine, checkpoint_sha256="cdcd")


def test_a_checkpoint_is_quantised_once(tmp_path: Path) -> None:
    assert refusal(tmp_path, "vllm", quantization="fp8") == (
        "the checkpoint in DIR is fp8 already: take 'quantization' out, or name one of bf16, fp16, fp32"
    )


@pytest.mark.parametrize("engine", ["tensorrt_llm_pytorch", "vllm"])
def test_heads_that_are_not_there(tmp_path: Path, engine: str) -> None:
    heads = tmp_path / "heads"
    sentence = refusal(tmp_path, engine, speculation="eagle3", draft_artefact=str(heads))
    assert sentence.startswith(f"no built llm engine in {heads}")


@pytest.mark.parametrize(
    ("changes", "limits"),
    [
        ({"engine": "tensorrt_llm_pytorch", "gpus": [H100]}, (512, 8192)),
        ({}, (256, 2048)),
        ({"max_num_seqs": 9}, (9, 2048)),
        ({"max_num_batched_tokens": 512}, (256, 512)),
        ({"enable_chunked_prefill": False}, (256, 4096)),  # a prompt is one step
        ({"speculation": "prompt_lookup", "num_assistant_tokens": 15}, (256, 4096)),
    ],
)
def test_what_is_left_open_follows_from_the_card(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: Any, limits: tuple[int, int]
) -> None:
    values = {"engine": "vllm"} | changes
    gpus = values.pop("gpus", [L4, H100])
    monkeypatch.setattr(gpu_artefact, "visible_gpus", lambda: gpus)
    made = artefact(tmp_path / "made")
    chosen = gpu_artefact.checkpoint(LlmSettings.model_validate(values | {"artefact": str(made)}))
    assert (chosen.max_num_seqs, chosen.max_num_batched_tokens) == limits


def test_a_manifest_without_its_length_is_damaged(tmp_path: Path) -> None:
    limit = "max_position_embeddings"
    assert f"manifest.json is damaged (shapes.{limit}): {AGAIN}" in refusal(
        tmp_path, manifest={"shapes": {limit: None}}
    )


def card(name: str, mib: int) -> Gpu:
    return Gpu(0, name, "9.0", mib << 20, mib << 20, "580.65")


@pytest.mark.parametrize(
    ("name", "mib", "limits"),
    [
        ("NVIDIA B200", 183359, (1024, 16384)),
        ("NVIDIA H200", 143771, (512, 8192)),
        ("NVIDIA H100 80GB HBM3", 81559, (512, 8192)),
        ("NVIDIA A100-SXM4-80GB", 81920, (256, 2048)),  # the memory of an H100, and not its speed
        ("NVIDIA GB10", 122880, (256, 2048)),
        ("NVIDIA L40S", 46068, (256, 2048)),
        ("NVIDIA L4", 23034, (256, 2048)),
    ],
)
def test_limits_of_a_card(name: str, mib: int, limits: tuple[int, int]) -> None:
    limited = card_limits([card(name, mib)])
    assert (limited.max_num_seqs, limited.max_num_batched_tokens) == limits


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"max_num_batched_tokens": 8}, "= 8: a step of max_num_seqs 16 needs 16 at least"),
        (
            {"max_num_batched_tokens": 64, "speculation": "prompt_lookup"},
            "of max_num_seqs 16 × 5 tokens, 4 of them drafted needs 80 at least",
        ),
        (
            {"max_num_batched_tokens": 64, "enable_chunked_prefill": False, "max_model_len": 4096},
            "= 64: a prompt of max_model_len 4096 is computed in one step, without enable_chunked_prefill",
        ),
    ],
)
def test_a_step_that_vllm_would_refuse_is_named(
    tmp_path: Path, values: dict[str, Any], sentence: str
) -> None:
    """vLLM refuses it with a page of pydantic's, whose last line is an address."""
    made = artefact(tmp_path / "checkpoint", "checkpoint")
    with pytest.raises(SettingsError, match=re.escape(sentence)):
        checkpoint(
            LlmSettings.model_validate(
                {"engine": "vllm", "device": "cpu", "artefact": str(made), "max_num_seqs": 16} | values
            )
        )


def test_the_weakest_of_several_decides() -> None:
    h100, b200, l4 = card("H100", 81559), card("B200", 183359), card("L4", 23034)
    assert card_limits([b200, h100]) == card_limits([h100])
    assert card_limits([h100, l4]) == card_limits([l4]) == card_limits([])
