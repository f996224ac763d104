"""What a GPU engine refuses before a library is opened: each misfit is one sentence that says what to do."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from tests.llm.engines.tensorrt_llm.rig import H100, PlayedLlm, artefact
from trimodal.errors import ArtefactError, OperatorError, SettingsError
from trimodal.llm.engines import artefact as gpu_artefact
from trimodal.llm.engines.artefact import card_limits, checkpoint
from trimodal.llm.engines.protocol import open_engine
from trimodal.llm.engines.tensorrt_llm.engine import lookahead_tokens
from trimodal.llm.settings import LlmSettings
from trimodal.manifest import GpuTarget
from trimodal.runtimes.gpu_device import Gpu

L4 = Gpu(0, "NVIDIA L4", "8.9", 24 << 30, 23 << 30, "580.65")
AGAIN = "build again with: python build/llm_tensorrt_llm.py tiny --precision fp8"
LOOKAHEAD = {"method": "lookahead", "max_draft_len": 83, "lookahead": [7, 7, 7]}


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(gpu_artefact, "visible_gpus", lambda: [H100])
    with mock.patch.dict(os.environ):
        yield


def refusal(directory: Path, engine: str = "tensorrt_llm", manifest: Any = None, **changes: Any) -> str:
    """The sentence with which the engine does not open; no library was imported for it."""
    runtime = "tensorrt_llm" if engine == "tensorrt_llm" else "checkpoint"
    made = artefact(directory / "made", runtime, **(manifest or {}))
    before = set(sys.modules)
    with pytest.raises(OperatorError) as raised:
        open_engine(LlmSettings.model_validate({"engine": engine, "artefact": str(made)} | changes))
    assert not {"tensorrt_llm", "vllm"} & (set(sys.modules) - before)
    assert "\n" not in str(raised.value)
    return str(raised.value).replace(str(made), "DIR")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"max_num_seqs": 65},
            "the engine in DIR was built with max_batch_size 64, and max_num_seqs is 65: "
            f"lower it, or raise max_batch_size and {AGAIN}",
        ),
        (
            {"max_num_batched_tokens": 8193},
            "the engine in DIR was built with max_num_tokens 8192, and max_num_batched_tokens is 8193: "
            f"lower it, or raise max_num_tokens and {AGAIN}",
        ),
        (
            {"max_model_len": 2049},
            "the engine in DIR was built with max_seq_len 2048, and max_model_len is 2049: "
            f"lower it, or raise max_seq_len and {AGAIN}",
        ),
        ({"precision": "fp16"}, f"the engine in DIR is fp8, and the configuration asks for fp16: {AGAIN}"),
        (
            {"checkpoint_sha256": "cd" * 32},
            "the engine in DIR was built from a checkpoint with hash abababababab, not cdcdcdcdcdcd: "
            + AGAIN,
        ),
    ],
)
def test_settings_that_the_engine_was_not_built_for(tmp_path: Path, changes: Any, sentence: str) -> None:
    assert refusal(tmp_path, **changes) == sentence


def test_another_gpu_than_it_was_built_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_artefact, "visible_gpus", lambda: [L4])
    assert refusal(tmp_path) == (
        "the engine in DIR was compiled for SM 9.0 (NVIDIA H100 80GB HBM3), GPU 0 has 8.9 (NVIDIA L4): "
        + AGAIN
    )


def test_fewer_gpus_than_it_was_built_for(tmp_path: Path) -> None:
    two = {"gpu": GpuTarget(sm="9.0", name="NVIDIA H100 80GB HBM3", count=2)}
    assert refusal(tmp_path, manifest=two) == (
        f"the engine in DIR was built for 2 GPUs, and 1 can be seen here: {AGAIN}"
    )


@pytest.mark.parametrize(
    ("engine", "there", "wanted"),
    [("tensorrt_llm", "checkpoint", "tensorrt_llm"), ("vllm", "tensorrt_llm", "checkpoint")],
)
def test_an_artefact_for_another_runtime(tmp_path: Path, engine: str, there: str, wanted: str) -> None:
    made = artefact(tmp_path, there)
    with pytest.raises(ArtefactError) as raised:
        open_engine(LlmSettings.model_validate({"engine": engine, "artefact": str(made)}))
    assert str(raised.value) == (
        f"{made} holds a llm engine for {there}, not a llm engine for {wanted}: {AGAIN}"
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
        ({"engine": "tensorrt_llm", "gpus": [H100]}, (64, 8192)),  # within what was built
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
    is_compiled = values["engine"] == "tensorrt_llm"
    made = artefact(tmp_path / "made", "tensorrt_llm" if is_compiled else "checkpoint")
    settings = LlmSettings.model_validate(values | {"artefact": str(made)})
    chosen = gpu_artefact.compiled(settings) if is_compiled else gpu_artefact.checkpoint(settings)
    assert (chosen.max_num_seqs, chosen.max_num_batched_tokens) == limits


def test_another_version_of_the_library(tensorrt_llm_double: SimpleNamespace, tmp_path: Path) -> None:
    PlayedLlm(tensorrt_llm_double)
    tensorrt_llm_double.module.__version__ = "1.3.0"
    made = artefact(tmp_path)
    with pytest.raises(ArtefactError) as raised:
        open_engine(LlmSettings(engine="tensorrt_llm", artefact=str(made)))
    assert str(raised.value) == (
        f"the engine in {made} was built with tensorrt_llm 1.2.1, here is 1.3.0: {AGAIN}"
    )
    assert tensorrt_llm_double.recorder.named("LLM") == []


def test_lookahead_drafts_as_the_library_counts() -> None:
    assert lookahead_tokens(7, 7, 7) == 83  # the example of TensorRT-LLM's documentation
    assert lookahead_tokens(4, 3, 4) == 15
    assert lookahead_tokens(1, 1, 1) == 0


def test_lookahead_reaches_the_library_and_the_admission(
    tensorrt_llm_double: SimpleNamespace, tmp_path: Path
) -> None:
    llm = PlayedLlm(tensorrt_llm_double)
    made = artefact(tmp_path, extra={"speculation": LOOKAHEAD})
    engine = open_engine(LlmSettings(engine="tensorrt_llm", artefact=str(made)))
    (call,) = llm.recorder.named("LLM")
    given: Any = call.arguments["speculative_config"]
    assert (given.max_window_size, given.max_ngram_size, given.max_verification_set_size) == (7, 7, 7)
    assert (given.max_window_size, engine.info.lookahead, engine.stats().speculating) == (7, 83, True)
    engine.close()


@pytest.mark.parametrize(
    ("engine", "limit"), [("tensorrt_llm", "max_seq_len"), ("vllm", "max_position_embeddings")]
)
def test_a_manifest_without_its_length_is_damaged(tmp_path: Path, engine: str, limit: str) -> None:
    assert f"manifest.json is damaged (shapes.{limit}): {AGAIN}" in refusal(
        tmp_path, engine, manifest={"shapes": {limit: None}}
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
