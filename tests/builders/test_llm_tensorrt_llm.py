"""build/llm_tensorrt_llm.py on a double of TensorRT-LLM made of its signatures: nothing is compiled here."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import typer
from typer.testing import CliRunner, Result

from tests.gpu.doubles import Recorder, make
from trimodal.errors import ServerError
from trimodal.gpu.device import Gpu
from trimodal.llm.architecture import read_architecture
from trimodal.llm.sizing import KvPrecision, Precision
from trimodal.manifest import GpuTarget, read_manifest

pytestmark = [pytest.mark.build, pytest.mark.filterwarnings("ignore")]
BUILD = Path(__file__).resolve().parents[2] / "build"
GIB = 2**30


def command(script: str) -> Callable[..., Result]:
    app = typer.Typer()
    app.command()(importlib.import_module(script).main)
    return lambda *arguments: CliRunner().invoke(app, [str(argument) for argument in arguments])


def sentence(result: Result) -> str:
    """The one red sentence of a failed build, after it is known to be no traceback."""
    assert result.exit_code == 1, result.output
    assert isinstance(result.exception, SystemExit)
    (line,) = [line for line in result.output.splitlines() if line.startswith("error: ")]
    return line


def gpu(index: int = 0, sm: str = "9.0", memory: int = 80 * GIB, free: int | None = None) -> Gpu:
    name = "NVIDIA H100" if sm == "9.0" else "NVIDIA A100"
    return Gpu(index, name, sm, memory, memory if free is None else free, "580.95")


@pytest.fixture(scope="module", autouse=True)
def _scripts() -> Iterator[None]:
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # The tiny model's steps are too small to share.
    with mock.patch.dict(os.environ), mock.patch.object(sys, "path", [str(BUILD), *sys.path]):
        yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("checkpoints") / "tiny"
    result = command("random_checkpoint")("llama-tiny", "--out", directory)
    assert result.exit_code == 0, result.output
    return directory


@pytest.fixture(scope="module")
def torch_answers(checkpoint: Path) -> list[list[int]]:
    """What a faultless engine answers to the check prompts."""
    check, checkpoints = importlib.import_module("llm_check"), importlib.import_module("llm_checkpoint")
    model = checkpoints.Checkpoint(checkpoint, load=False)
    model.load("auto")
    samples = check.greedy_samples(model, [model.encode_prompt(each) for each in prompts()])
    return [sample.ids[sample.start :] for sample in samples]


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("texts") / "texts.txt"
    path.write_text("\n".join(f"sample {index} of a text" for index in range(600)))
    return path


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What the checks see: `gpus` (or an error) and TensorRT-LLM's installed `version`."""
    state = SimpleNamespace(gpus=[gpu(0), gpu(1)], version="1.2.1")

    def visible() -> list[Gpu]:
        if isinstance(state.gpus, Exception):
            raise state.gpus
        return list(state.gpus)

    plan = importlib.import_module("llm_engine_plan")
    monkeypatch.setattr(plan, "visible_gpus", visible)
    monkeypatch.setattr(plan, "installed", lambda names: state.version)
    return state


@pytest.fixture
def recorder(tensorrt_llm_double: SimpleNamespace, torch_answers: list[list[int]]) -> Recorder:
    """A TensorRT-LLM that saves two files and answers as torch does."""
    script: Recorder = tensorrt_llm_double.recorder
    tensorrt_llm_double.module.__version__ = "1.2.1"
    script.returns("_tensorrt_engine.LLM.generate", lambda instance, **_: outputs(torch_answers))
    script.returns("_tensorrt_engine.LLM.save", save)
    return script


def outputs(answers: Sequence[list[int]]) -> list[Any]:
    from tensorrt_llm.llmapi import CompletionOutput, RequestOutput

    return [make(RequestOutput, outputs=[make(CompletionOutput, index=0, token_ids=ids)]) for ids in answers]


def save(instance: object, engine_dir: str) -> None:
    (Path(engine_dir) / "rank0.engine").write_bytes(b"engine")
    (Path(engine_dir) / "config.json").write_text("{}")


@pytest.fixture
def build(
    machine: SimpleNamespace, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., Result]:
    """The script, with few check prompts, and artefacts under tmp_path/engines unless told otherwise."""
    monkeypatch.setenv("TRIMODAL_ENGINES", str(tmp_path / "engines"))
    monkeypatch.setattr(importlib.import_module("llm_tensorrt_llm"), "PROMPTS", prompts())
    return command("llm_tensorrt_llm")


def prompts() -> tuple[str, ...]:
    return tuple(importlib.import_module("llm_check").PROMPTS[:4])


def test_an_fp8_engine_from_end_to_end(
    build: Callable[..., Result], checkpoint: Path, recorder: Recorder, texts: Path, tmp_path: Path
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
    result = build(
        *(checkpoint, "--precision", "fp8", "--kv-precision", "fp8", "--calibration", texts, "--tp", "2"),
        *("--max-batch-size", "8", "--max-num-tokens", "1024", "--max-seq-len", "256", "--multiple-profiles"),
        *("--out", tmp_path / "engine"),
    )
    assert result.exit_code == 0, result.output
    calls = [call.name.rpartition(".")[2] for call in recorder.calls if "_tensorrt_engine.LLM" in call.name]
    assert calls == ["LLM", "generate", "save", "shutdown"]
    (opened,) = recorder.named("_tensorrt_engine.LLM")
    assert opened.arguments["model"] == checkpoint
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


def torch_answers_of(recorder: Recorder) -> list[list[int]]:
    """The answers that the recorder's engine would give."""
    from tensorrt_llm._tensorrt_engine import LLM

    rows: Any = LLM(model="x").generate([[1]])
    recorder.calls.clear()
    return [list(row.outputs[0].token_ids) for row in rows]


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
    checkpoint: Path,
    recorder: Recorder,
    tmp_path: Path,
    precision: str,
    kv: str,
    dtype: str,
    algorithm: str | None,
    kv_algorithm: str | None,
    gemm: str | None,
) -> None:
    engines, plans = importlib.import_module("llm_engine_build"), importlib.import_module("llm_engine_plan")
    calibration = importlib.import_module("llm_calibration").Calibration("texts", ["a"] * 128)
    calibrated = plans.needs_calibration(Precision(precision), KvPrecision(kv))
    assert calibrated is (precision not in ("fp16", "int8-wo"))
    plan = plans.EnginePlan(
        model=read_architecture(checkpoint),
        precision=Precision(precision),
        kv_precision=KvPrecision(kv),
        max_seq_len=512,
        calibration=calibration if calibrated else None,
    )
    plans.check_plan(plan)
    with engines.built_engine(plan, checkpoint, tmp_path if calibrated else None, tmp_path):
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
    assert plugins.use_fp8_context_fmha is False
    assert plugins.reduce_fusion is False
    assert given["speculative_config"] is None


def test_check_prompts_are_asked_greedily_with_token_ids(
    build: Callable[..., Result], checkpoint: Path, recorder: Recorder, tmp_path: Path
) -> None:
    assert build(checkpoint, "--out", tmp_path / "engine").exit_code == 0
    (asked,) = recorder.named("_tensorrt_engine.LLM.generate")
    assert len(asked.arguments["inputs"]) == 4
    assert all(isinstance(each, int) for each in asked.arguments["inputs"][0])
    sampling = asked.arguments["sampling_params"]
    assert (sampling.top_k, sampling.max_tokens, sampling.end_id) == (1, 32, 511)
    assert not sampling.detokenize
    assert recorder.named("_tensorrt_engine.LLM")[0].arguments["skip_tokenizer_init"] is True


def test_wrong_answers_leave_the_old_artefact(
    build: Callable[..., Result], checkpoint: Path, recorder: Recorder, tmp_path: Path
) -> None:
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "old").write_text("old")
    recorder.returns("_tensorrt_engine.LLM.generate", lambda instance, **_: outputs([[7] * 32] * 4))
    result = build(checkpoint, "--out", tmp_path / "engine", "--min-agreement", "0.5")
    assert "less than --min-agreement 0.5: nothing was replaced" in sentence(result)
    assert [path.name for path in tmp_path.rglob("*")] == ["engine", "old"]
    recorder.returns("_tensorrt_engine.LLM.generate", lambda instance, **_: outputs([[]] * 4))
    result = build(checkpoint, "--out", tmp_path / "engine")
    assert "answered every check prompt with nothing" in sentence(result)


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
    build: Callable[..., Result],
    checkpoint: Path,
    recorder: Recorder,
    tmp_path: Path,
    call: str,
    error: Exception,
    expected: str,
) -> None:
    recorder.raises(call, error)
    assert expected in sentence(build(checkpoint, "--out", tmp_path / "engine"))
    assert list(tmp_path.iterdir()) == []
    opened = recorder.named("_tensorrt_engine.LLM")
    ended = recorder.named("_tensorrt_engine.LLM.shutdown")
    assert len(ended) == (0 if call.endswith("LLM") else len(opened))


def test_the_first_failure_is_told_when_shutting_down_fails_too(
    build: Callable[..., Result], checkpoint: Path, recorder: Recorder, tmp_path: Path
) -> None:
    recorder.raises("_tensorrt_engine.LLM.shutdown", RuntimeError("worker gone"))
    assert "RuntimeError: worker gone" in sentence(build(checkpoint, "--out", tmp_path / "engine"))
    recorder.raises("_tensorrt_engine.LLM.save", OSError("disk full"))
    assert "OSError: disk full" in sentence(build(checkpoint, "--out", tmp_path / "engine"))
    assert list(tmp_path.iterdir()) == []


def test_an_engine_that_was_not_saved_is_refused(
    build: Callable[..., Result], checkpoint: Path, recorder: Recorder, tmp_path: Path
) -> None:
    recorder.returns("_tensorrt_engine.LLM.save", None)
    assert "saved no engine" in sentence(build(checkpoint, "--out", tmp_path / "engine"))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--precision", "fp8"), "--precision fp8 --kv-precision auto needs --calibration"),
        (("--calibration", "texts"), "--precision fp16 --kv-precision auto uses no --calibration"),
        (("--precision", "int8-wo", "--kv-precision", "int8"), "beside --precision int8-wo: auto it does"),
        (("--precision", "fp8", "--kv-precision", "int8"), "beside --precision fp8: auto or fp8 it does"),
        (("--tp", "3"), "--tp 3 does not divide the 4 attention heads"),
        (("--pp", "4"), "--pp 4 does not divide the 2 layers"),
        (("--max-num-tokens", "8"), "--max-num-tokens 8 is below --max-batch-size 256"),
        (("--max-seq-len", "1024"), "the model knows 512 positions, less than 1024"),
        (("--tp", "2", "--pp", "2"), "--tp 2 --pp 2 takes 4 GPUs, and 2 can be seen"),
        (("--name", "a/b"), "not a plain directory name"),
        (("--speculation", "lookahead", "--lookahead", "4,3"), "window,ngram,verification is needed"),
        (("--speculation", "lookahead", "--lookahead", "4,1,4"), "n-grams of 2"),
        (("--speculation", "medusa"), "needs --draft: the directory"),
        (("--draft", "."), "--speculation none has none"),
    ],
)
def test_unfit_options_are_one_sentence_before_anything_heavy(
    build: Callable[..., Result],
    checkpoint: Path,
    recorder: Recorder,
    texts: Path,
    options: tuple[str, ...],
    expected: str,
) -> None:
    given = [texts if each == "texts" else each for each in options]
    assert expected in sentence(build(checkpoint, *given))
    assert recorder.calls == []


@pytest.mark.parametrize(
    ("gpus", "options", "expected"),
    [
        (ServerError("no NVIDIA driver answers (x): install one"), (), "no NVIDIA driver answers"),
        ([], (), "takes 1 GPUs, and none can be seen"),
        ([gpu(0), gpu(1, sm="8.0")], ("--tp", "2"), "one engine needs GPUs of one SM"),
        (
            [gpu(0, sm="8.0")],
            ("--kv-precision", "fp8", "--calibration", "texts"),
            "has no FP8: it begins with",
        ),
        ([gpu(0, memory=GIB)], (), "weights and activations take"),
        ([gpu(0, free=GIB // 2)], (), "GPU 0 has 0.5 GiB free of 80.0"),
    ],
)
def test_an_unfit_machine_is_one_sentence(
    build: Callable[..., Result],
    machine: SimpleNamespace,
    checkpoint: Path,
    recorder: Recorder,
    texts: Path,
    gpus: Any,
    options: tuple[str, ...],
    expected: str,
) -> None:
    machine.gpus = gpus
    given = [texts if each == "texts" else each for each in options]
    assert expected in sentence(build(checkpoint, *given))
    assert recorder.calls == []


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (None, "TensorRT-LLM is not installed here"),
        ("1.3.0", "later releases have no engines (put the checkpoint in place with build/llm_place.py"),
        ("1.1.0", "TensorRT-LLM 1.1.0 is here, and engines are built with 1.2.x"),
    ],
)
def test_another_version_is_one_sentence(
    build: Callable[..., Result],
    machine: SimpleNamespace,
    checkpoint: Path,
    recorder: Recorder,
    version: str | None,
    expected: str,
) -> None:
    machine.version = version
    assert expected in sentence(build(checkpoint))
    assert recorder.calls == []


def test_a_full_disk_is_one_sentence(
    build: Callable[..., Result], checkpoint: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = SimpleNamespace(free=100)
    monkeypatch.setattr(importlib.import_module("llm_engine_plan").shutil, "disk_usage", lambda _: usage)
    assert "0 GiB free, and the build takes about" in sentence(build(checkpoint))
    assert recorder.calls == []


def test_an_architecture_without_engine_is_refused_by_name(
    build: Callable[..., Result], tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["MambaForCausalLM"]}))
    assert "the architecture MambaForCausalLM" in sentence(build(tmp_path))


def test_a_checkpoint_whose_path_misleads_the_quantiser(
    build: Callable[..., Result], checkpoint: Path, texts: Path, tmp_path: Path
) -> None:
    import shutil

    shutil.copytree(checkpoint, tmp_path / "revila-7b")
    result = build(tmp_path / "revila-7b", "--precision", "int4-awq", "--calibration", texts)
    assert "holds 'vila': move it" in sentence(result)
    (tmp_path / "plain").symlink_to(tmp_path / "revila-7b")  # As the sentence proposes.
    options = ("--precision", "int4-awq", "--calibration", texts, "--out", tmp_path / "engine")
    assert build(tmp_path / "plain", *options).exit_code == 0


def test_speculation_reaches_the_library(
    build: Callable[..., Result], checkpoint: Path, recorder: Recorder, tmp_path: Path
) -> None:
    out = ("--out", tmp_path / "engine")
    result = build(checkpoint, "--speculation", "lookahead", "--lookahead", "7,7,7", *out)
    assert result.exit_code == 0, result.output
    config: Any = recorder.named("_tensorrt_engine.LLM")[-1].arguments["speculative_config"]
    sizes = (config.max_window_size, config.max_ngram_size, config.max_verification_set_size)
    assert sizes == (7, 7, 7)
    manifest = read_manifest(tmp_path / "engine", task="llm", runtime="tensorrt_llm")
    # TensorRT-LLM's documentation of lookahead gives 83 for [7, 7, 7].
    expected = {"method": "lookahead", "max_draft_len": 83, "lookahead": [7, 7, 7]}
    assert manifest.extra["speculation"] == expected


def test_drafted_speculation_in_the_library_s_terms(
    recorder: Recorder, checkpoint: Path, tmp_path: Path
) -> None:
    module = importlib.import_module("llm_speculation")
    (tmp_path / "tree.json").write_text("[[0], [0, 0], [1]]")
    tree = module.read_choices(tmp_path / "tree.json")
    medusa = module.Speculation(module.Method.medusa, draft=checkpoint, draft_len=8, heads=2, choices=tree)
    config = medusa.config()
    assert type(config).__name__ == "MedusaDecodingConfig"
    assert (config.speculative_model, config.num_medusa_heads, config.max_draft_len) == (checkpoint, 2, 8)
    assert config.medusa_choices == [[0], [0, 0], [1]]
    assert medusa.figures()["draft"] == "tiny"
    eagle = module.Speculation(module.Method.eagle, draft=checkpoint)
    config = eagle.config()
    assert type(config).__name__ == "EagleDecodingConfig"
    assert (config.use_dynamic_tree, config.eagle_choices, config.max_draft_len) == (True, None, 63)
    assert config.dynamic_tree_max_topK == config.max_non_leaves_per_layer
    fixed = module.Speculation(module.Method.eagle, draft=checkpoint, choices=tree).config()
    assert (fixed.use_dynamic_tree, fixed.eagle_choices) == (False, tree)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--speculation", "medusa"), "needs --draft-choices"),
        (("--speculation", "eagle", "--pp", "2"), "works without pipeline stages"),
        (("--speculation", "eagle", "--precision", "int8-wo"), "built from a 16-bit checkpoint"),
        (("--speculation", "eagle", "--max-batch-size", "513"), "at most --max-batch-size 512"),
        (
            ("--speculation", "eagle", "--draft-choices", "[[0], [0, 0, 0]]"),
            "is no path that the tree leads to",
        ),
        (("--speculation", "eagle", "--draft-choices", "{}x"), "is not a JSON list of lists"),
        (
            ("--speculation", "eagle", "--draft-choices", "[[0], [0, 0]]", "--draft-heads", "1"),
            "has 2 paths of up to 2 tokens",
        ),
    ],
)
def test_unfit_speculation_is_one_sentence(
    build: Callable[..., Result],
    checkpoint: Path,
    recorder: Recorder,
    tmp_path: Path,
    options: tuple[str, ...],
    expected: str,
) -> None:
    given: list[object] = list(options)
    if "--draft-choices" in given:
        place = given.index("--draft-choices") + 1
        (tmp_path / "tree.json").write_text(str(given[place]))
        given[place] = tmp_path / "tree.json"
    assert expected in sentence(build(checkpoint, "--draft", checkpoint, *given))
    assert recorder.calls == []
