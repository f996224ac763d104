"""What TensorRT-LLM is told for each precision, and what becomes of its failures; on its double."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from tests.builders.engine_builds import Build, sentence
from tests.doubles.gpu_libraries import Recorder
from trimodal.plan.architecture import read_architecture
from trimodal.plan.memory import KvPrecision, Precision

pytestmark = [pytest.mark.build, pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize(
    ("precision", "kv", "dtype", "algorithm", "kv_algorithm", "gemm"),
    [
        ("fp16", "auto", "float16", None, None, "auto"),
        ("bf16", "fp8", "bfloat16", None, "FP8", "auto"),
        ("int8-wo", "auto", "auto", "W8A16", None, "auto"),
        ("int8-sq", "int8", "auto", "W8A8_SQ_PER_CHANNEL", "INT8", "auto"),
        ("int4-awq", "auto", "auto", "W4A16_AWQ", None, "auto"),
        ("fp8", "auto", "auto", "FP8", None, None),
    ],
)
def test_precisions(
    llama: Path,
    recorder: Recorder,
    tmp_path: Path,
    precision: str,
    kv: str,
    dtype: str,
    algorithm: str | None,
    kv_algorithm: str | None,
    gemm: str | None,
) -> None:
    engines, plans = (
        importlib.import_module("steps.llm.engine_build"),
        importlib.import_module("steps.llm.engine_plan"),
    )
    calibration = importlib.import_module("steps.llm.calibration").Calibration("texts", ["a"] * 128)
    calibrated = plans.needs_calibration(Precision(precision), KvPrecision(kv))
    assert calibrated is (precision not in ("fp16", "int8-wo"))
    plan = plans.EnginePlan(
        model=read_architecture(llama),
        precision=Precision(precision),
        kv_precision=KvPrecision(kv),
        max_seq_len=512,
        calibration=calibration if calibrated else None,
    )
    plans.check_plan(plan)
    with engines.built_engine(plan, llama, tmp_path if calibrated else None, tmp_path, "9.0"):
        pass
    opened, ended = recorder.calls[-2], recorder.calls[-1]
    assert (opened.name.rpartition(".")[2], ended.name.rpartition(".")[2]) == ("LLM", "shutdown")
    given: dict[str, Any] = opened.arguments
    assert given["dtype"] == dtype
    quantised = given["quant_config"]
    found = [quantised and quantised.quant_algo, quantised and quantised.kv_cache_quant_algo]
    assert [each and each.value for each in found] == [algorithm, kv_algorithm]
    assert (given["calib_config"] and given["calib_config"].calib_batches) == (128 if calibrated else None)
    plugins = given["build_config"].plugin_config
    assert plugins.gemm_plugin == gemm
    assert plugins.low_latency_gemm_plugin is None
    assert plugins.use_fp8_context_fmha is False
    assert plugins.reduce_fusion is False
    assert given["speculative_config"] is None


@pytest.mark.parametrize(
    ("precision", "kv", "sm", "plugin"),
    [
        ("fp8", "fp8", "9.0", "fp8"),
        ("fp8", "fp8", "10.0", "fp8"),
        ("fp8", "fp8", "8.9", None),  # the plugin begins with Hopper
        ("fp8", "auto", "9.0", None),
        ("bf16", "fp8", "9.0", None),
    ],
)
def test_fp8_throughout_takes_the_plugin_for_small_batches(
    llama: Path, recorder: Recorder, precision: str, kv: str, sm: str, plugin: str | None
) -> None:
    engines = importlib.import_module("steps.llm.engine_build")
    plan = importlib.import_module("steps.llm.engine_plan").EnginePlan(
        model=read_architecture(llama), precision=Precision(precision), kv_precision=KvPrecision(kv)
    )
    plugins = engines.build_config(plan, sm).plugin_config
    assert plugins.low_latency_gemm_plugin == plugin


def test_check_prompts_are_asked_greedily_with_token_ids(
    build_engine: Build, llama: Path, recorder: Recorder, tmp_path: Path
) -> None:
    assert build_engine(llama, "--out", tmp_path / "engine").exit_code == 0
    (asked,) = recorder.named("_tensorrt_engine.LLM.generate")
    assert len(asked.arguments["inputs"]) == 4
    assert all(isinstance(each, int) for each in asked.arguments["inputs"][0])
    sampling = asked.arguments["sampling_params"]
    assert (sampling.top_k, sampling.max_tokens, sampling.end_id) == (1, 32, 511)
    assert not sampling.detokenize
    assert recorder.named("_tensorrt_engine.LLM")[0].arguments["skip_tokenizer_init"] is True


@pytest.mark.parametrize(
    ("call", "error", "expected"),
    [
        (
            "_tensorrt_engine.LLM",
            RuntimeError("trace\nno kernel image"),
            "failed (RuntimeError: no kernel image)",
        ),
        ("_tensorrt_engine.LLM", RuntimeError("CUDA out of memory. Tried"), "a lower --max-num-tokens or"),
        ("_tensorrt_engine.LLM", MemoryError(), "ran out of memory (MemoryError)"),
        ("_tensorrt_engine.LLM.generate", ValueError("bad sampling"), "failed (ValueError: bad sampling)"),
        ("_tensorrt_engine.LLM.save", OSError("disk full"), "failed (OSError: disk full)"),
    ],
)
def test_what_the_library_raises_is_one_sentence(
    build_engine: Build,
    llama: Path,
    recorder: Recorder,
    tmp_path: Path,
    call: str,
    error: Exception,
    expected: str,
) -> None:
    recorder.raises(call, error)
    assert expected in sentence(build_engine(llama, "--out", tmp_path / "engine"))
    assert list(tmp_path.iterdir()) == []
    opened = recorder.named("_tensorrt_engine.LLM")
    ended = recorder.named("_tensorrt_engine.LLM.shutdown")
    assert len(ended) == (0 if call.endswith("LLM") else len(opened))


def test_the_first_failure_is_told_when_shutting_down_fails_too(
    build_engine: Build, llama: Path, recorder: Recorder, tmp_path: Path
) -> None:
    recorder.raises("_tensorrt_engine.LLM.shutdown", RuntimeError("worker gone"))
    assert "RuntimeError: worker gone" in sentence(build_engine(llama, "--out", tmp_path / "engine"))
    recorder.raises("_tensorrt_engine.LLM.save", OSError("disk full"))
    assert "OSError: disk full" in sentence(build_engine(llama, "--out", tmp_path / "engine"))
    assert list(tmp_path.iterdir()) == []


def test_an_engine_that_was_not_saved_is_refused(
    build_engine: Build, llama: Path, recorder: Recorder, tmp_path: Path
) -> None:
    recorder.returns("_tensorrt_engine.LLM.save", None)
    assert "saved no engine" in sentence(build_engine(llama, "--out", tmp_path / "engine"))
