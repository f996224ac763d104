"""build/llm_tensorrt_llm.py on a double of TensorRT-LLM made of its signatures: nothing is compiled here."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from tests.builders.engine_builds import Build, gpu, outputs, sentence, torch_answers_of
from tests.doubles.gpu_libraries import Recorder, make
from trimodal.manifest import GpuTarget, read_manifest

pytestmark = [pytest.mark.build, pytest.mark.filterwarnings("ignore")]


def test_an_fp8_engine_from_end_to_end(
    build_engine: Build, llama: Path, recorder: Recorder, texts: Path, tmp_path: Path
) -> None:
    seen: dict[str, Any] = {}

    def generate(instance: object, **arguments: Any) -> list[Any]:
        (opened,) = recorder.named("_tensorrt_engine.LLM")
        folder = Path(opened.arguments["calib_config"].calib_dataset)
        seen["rows"] = [json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()]
        seen["files"] = [path.name for path in folder.iterdir()]
        seen["workspace"] = Path(opened.arguments["workspace"]).is_dir()
        return [make(type(each), outputs=each.outputs) for each in answers]

    answers = outputs(torch_answers_of(recorder))
    recorder.returns("_tensorrt_engine.LLM.generate", generate)
    result = build_engine(
        *(llama, "--precision", "fp8", "--kv-precision", "fp8", "--calibration", texts, "--tp", "2"),
        *("--max-batch-size", "8", "--max-num-tokens", "1024", "--max-seq-len", "256", "--multiple-profiles"),
        *("--out", tmp_path / "engine"),
    )
    assert result.exit_code == 0, result.output
    calls = [call.name.rpartition(".")[2] for call in recorder.calls if "_tensorrt_engine.LLM" in call.name]
    assert calls == ["LLM", "generate", "save", "shutdown"]
    (opened,) = recorder.named("_tensorrt_engine.LLM")
    assert opened.arguments["model"] == llama
    assert opened.arguments["dtype"] == "auto"
    assert (opened.arguments["tensor_parallel_size"], opened.arguments["pipeline_parallel_size"]) == (2, 1)
    quantised = opened.arguments["quant_config"]
    assert (quantised.quant_algo.value, quantised.kv_cache_quant_algo.value) == ("FP8", "FP8")
    config = opened.arguments["build_config"]
    assert (config.max_batch_size, config.max_num_tokens, config.max_seq_len) == (8, 1024, 256)
    assert (config.max_input_len, config.max_beam_width, config.kv_cache_type.value) == (255, 1, "paged")
    for limit in ("max_batch_size", "max_num_tokens", "max_seq_len"):
        assert opened.arguments[limit] == getattr(config, limit)
    plugins = config.plugin_config
    assert (plugins.tokens_per_block, plugins.gemm_plugin) == (32, None)
    assert plugins.use_paged_context_fmha
    assert plugins.use_fp8_context_fmha
    assert plugins.multiple_profiles
    assert plugins.reduce_fusion
    calibrated = opened.arguments["calib_config"]
    assert (calibrated.calib_batches, calibrated.calib_batch_size) == (512, 1)
    assert seen["files"] == ["train.jsonl"]
    assert seen["workspace"]
    assert len(seen["rows"]) == 512
    assert seen["rows"][0] == {"text": "sample 0 of a text"}
    assert [path.name for path in tmp_path.iterdir()] == ["engine"]  # Nothing of the scratch is left.

    manifest = read_manifest(tmp_path / "engine", task="llm", runtime="tensorrt_llm")
    assert (manifest.runtime_version, manifest.precision) == ("1.2.1", "fp8")
    assert manifest.gpu == GpuTarget(sm="9.0", name="NVIDIA H100", count=2)
    assert manifest.shapes["vocab_size"] == 512
    limits = (
        "max_batch_size",
        "max_num_tokens",
        "max_seq_len",
        "tokens_per_block",
        "tp",
        "pp",
        "kv_precision",
    )
    assert [manifest.shapes[name] for name in limits] == [8, 1024, 256, 32, 2, 1, "fp8"]
    assert manifest.extra["eos_token_ids"] == [511]
    assert manifest.extra["speculation"] == {"method": "none"}
    assert manifest.extra["multiple_profiles"] is True
    assert manifest.calibration["samples"] == 512
    assert len(manifest.calibration["sha256"]) == 64
    assert manifest.check["token_agreement"] > 0.9
    assert manifest.check["reference"] == "torch bfloat16"
    assert set(manifest.files) >= {"rank0.engine", "config.json", "tokenizer.json", "chat_template.jinja"}


def test_batch_and_step_follow_from_the_card(
    build_engine: Build,
    llama: Path,
    recorder: Recorder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.import_module("llm_tensorrt_llm"), "current_gpu", gpu)
    result = build_engine(llama, "--max-seq-len", "256", "--out", tmp_path / "engine")
    assert result.exit_code == 0, result.output
    config: Any = recorder.named("_tensorrt_engine.LLM")[-1].arguments["build_config"]
    assert (config.max_batch_size, config.max_num_tokens) == (512, 8192)


def test_wrong_answers_leave_the_old_artefact(
    build_engine: Build, llama: Path, recorder: Recorder, tmp_path: Path
) -> None:
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "old").write_text("old")
    recorder.returns("_tensorrt_engine.LLM.generate", lambda instance, **_: outputs([[7] * 32] * 4))
    result = build_engine(llama, "--out", tmp_path / "engine", "--min-agreement", "0.5")
    found = sentence(result)
    assert "nothing was replaced: the engine agrees with torch's tokens on " in found
    assert found.endswith("less than --min-agreement 0.5")
    assert [path.name for path in tmp_path.rglob("*")] == ["engine", "old"]
    recorder.returns("_tensorrt_engine.LLM.generate", lambda instance, **_: outputs([[]] * 4))
    result = build_engine(llama, "--out", tmp_path / "engine")
    assert "answered every check prompt with nothing" in sentence(result)


def test_an_architecture_without_engine_is_refused_by_name(build_engine: Build, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["MambaForCausalLM"]}))
    assert "the architecture MambaForCausalLM" in sentence(build_engine(tmp_path))


def test_a_checkpoint_whose_path_misleads_the_quantiser(
    build_engine: Build, llama: Path, texts: Path, tmp_path: Path
) -> None:
    import shutil

    shutil.copytree(llama, tmp_path / "revila-7b")
    result = build_engine(tmp_path / "revila-7b", "--precision", "int4-awq", "--calibration", texts)
    assert "holds 'vila': move it" in sentence(result)
    (tmp_path / "plain").symlink_to(tmp_path / "revila-7b")  # As the sentence proposes.
    options = ("--precision", "int4-awq", "--calibration", texts, "--out", tmp_path / "engine")
    assert build_engine(tmp_path / "plain", *options).exit_code == 0


def test_speculation_reaches_the_library(
    build_engine: Build, llama: Path, recorder: Recorder, tmp_path: Path
) -> None:
    out = ("--out", tmp_path / "engine")
    result = build_engine(llama, "--speculation", "lookahead", "--lookahead", "7,7,7", *out)
    assert result.exit_code == 0, result.output
    config: Any = recorder.named("_tensorrt_engine.LLM")[-1].arguments["speculative_config"]
    sizes = (config.max_window_size, config.max_ngram_size, config.max_verification_set_size)
    assert sizes == (7, 7, 7)
    manifest = read_manifest(tmp_path / "engine", task="llm", runtime="tensorrt_llm")
    # TensorRT-LLM's documentation of lookahead gives 83 for [7, 7, 7].
    expected = {"method": "lookahead", "max_draft_len": 83, "lookahead": [7, 7, 7]}
    assert manifest.extra["speculation"] == expected
