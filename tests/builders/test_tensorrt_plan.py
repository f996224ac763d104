"""build/tensorrt_plan.py on doubles of TensorRT 10.14 and 11.4: what is asked, in which order."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.builders.onnx_doubles import parses
from tests.builders.scripts import importable
from tests.builders.tiny_graphs import write_classifier
from tests.gpu.doubles import make
from trimodal.errors import ArtefactError, ServerError
from trimodal.gpu.device import Gpu
from trimodal.manifest import InputRange

H200 = Gpu(0, "NVIDIA H200", "9.0", 150 << 30, 140 << 30, "580.1")
RANGE = InputRange(min=(1, 3, 8, 8), opt=(4, 3, 8, 8), max=(16, 3, 8, 8))


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module, on a machine with one GPU."""
    with importable():
        module = importlib.import_module("tensorrt_plan")
        monkeypatch.setattr(module, "visible_gpus", lambda: [H200])
        yield module


@pytest.fixture
def trt(tensorrt_double: SimpleNamespace) -> SimpleNamespace:
    parses(tensorrt_double)
    tensorrt_double.module.__version__ = f"{tensorrt_double.version}.1.48"
    return tensorrt_double


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    return write_classifier(tmp_path / "model.onnx")


def says(trt: SimpleNamespace, severity: str, text: str) -> None:
    """TensorRT writes a line to the logger that the builder was made with."""
    logger: Any = trt.recorder.named("tensorrt.Builder")[-1].arguments["logger"]
    logger.log(getattr(trt.module.ILogger.Severity, severity), text)


def build(plans: ModuleType, graph: Path, *profiles: dict[str, InputRange], **options: Any) -> Any:
    chosen = list(profiles) or [{"pixels": RANGE}]
    return plans.build_plan(graph, graph.with_name("model.plan"), chosen, plans.PlanOptions(**options))


def refused(plans: ModuleType, graph: Path, *profiles: dict[str, InputRange], **options: Any) -> str:
    """The sentence; the plan of an earlier build is left alone, and nothing else."""
    plan = graph.with_name("model.plan")
    plan.write_bytes(b"old")
    with pytest.raises(ArtefactError) as caught:
        build(plans, graph, *profiles, **options)
    assert plan.read_bytes() == b"old"
    assert {path.name for path in graph.parent.iterdir()} <= {"model.onnx", "model.plan", "caches"}
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_library_is_asked_in_this_order(plans, trt, graph):
    figures = build(plans, graph)
    calls = [call.name.removeprefix("tensorrt.") for call in trt.recorder.calls if "Dims" not in call.name]
    assert [name for name in calls if name not in ("ILogger", "IProgressMonitor")] == [
        "Builder",
        "Builder.create_network",
        "OnnxParser",
        "OnnxParser.parse_from_file",
        "INetworkDefinition.get_input",
        "Builder.create_builder_config",
        "Builder.create_optimization_profile",
        "IOptimizationProfile.set_shape",
        "IBuilderConfig.add_optimization_profile",
        "IBuilderConfig.clear_flag",
        "Builder.build_serialized_network",
    ]
    assert graph.with_name("model.plan").read_bytes() == graph.read_bytes()
    assert (figures.tensorrt_version, figures.gpu.sm) == (f"{trt.version}.1.48", "9.0")
    assert figures.gpu.name == "NVIDIA H200"
    assert figures.profiles == [{"pixels": RANGE}]
    assert figures.bytes == graph.stat().st_size


def test_the_network_is_strongly_typed_and_precision_is_never_a_flag(plans, trt, graph):
    build(plans, graph)
    (network,) = trt.recorder.named("create_network")
    typed = trt.module.NetworkDefinitionCreationFlag.STRONGLY_TYPED
    assert network.arguments == {"flags": 1 << int(typed)}
    (parsed,) = trt.recorder.named("parse_from_file")
    assert parsed.arguments == {"model": str(graph)}, "by its path: weights may lie beside it"
    assert trt.recorder.named("set_flag") == []
    assert [call.arguments["flag"].name for call in trt.recorder.named("clear_flag")] == ["TF32"]


def test_options_reach_the_builder(plans, trt, graph):
    build(plans, graph, workspace_gib=0.5, optimization_level=5, tf32=True)
    (limit,) = trt.recorder.named("set_memory_pool_limit")
    assert limit.arguments == {"pool": trt.module.MemoryPoolType.WORKSPACE, "pool_size": 1 << 29}
    config = trt.recorder.named("create_builder_config")[0].result
    assert config.builder_optimization_level == 5
    assert isinstance(config.progress_monitor, trt.module.IProgressMonitor)
    assert trt.recorder.named("clear_flag") == []


def test_every_profile_has_its_own_shapes(plans, trt, graph):
    small = InputRange(min=(1, 3, 8, 8), opt=(1, 3, 8, 8), max=(2, 3, 8, 8))
    build(plans, graph, {"pixels": RANGE}, {"pixels": small})
    shapes = [call.arguments for call in trt.recorder.named("set_shape")]
    assert shapes == [
        {"input": "pixels", "min": one.min, "opt": one.opt, "max": one.max} for one in (RANGE, small)
    ]
    made = [call.result for call in trt.recorder.named("create_optimization_profile")]
    added = [call.arguments["profile"] for call in trt.recorder.named("add_optimization_profile")]
    assert made[0] is added[0]
    assert made[1] is added[1]


@pytest.mark.parametrize(
    ("profiles", "told"),
    [
        ([{}], "profile 0 of model.onnx does not name pixels ?×3×8×8"),
        (
            [{"pixels": RANGE}, {"pixels": RANGE, "mask": RANGE}],
            "profile 1 of model.onnx: no input 'mask'; the graph has pixels",
        ),
        (
            [{"pixels": InputRange(min=(1,), opt=(1,), max=(2,))}],
            "pixels: 1 has other dimensions than the graph's ?×3×8×8",
        ),
        (
            [{"pixels": RANGE.model_copy(update={"opt": (17, 3, 8, 8)})}],
            "pixels: min 1, opt 17, max 16 are not in order",
        ),
        (
            [{"pixels": RANGE.model_copy(update={"max": (16, 3, 9, 8)})}],
            "1×3×8×8 to 16×3×9×8, the graph has ?×3×8×8",
        ),
    ],
)
def test_profiles_that_do_not_fit_the_graph_are_refused_before_the_build(plans, trt, graph, profiles, told):
    assert told in refused(plans, graph, *profiles)
    assert trt.recorder.named("build_serialized_network") == []


def test_no_profile_for_a_free_dimension_is_refused(plans, trt, graph):
    with pytest.raises(ArtefactError, match="free dimensions and no profile"):
        plans.build_plan(graph, graph.with_name("model.plan"), [])


def test_a_profile_that_tensorrt_refuses(plans, trt, graph):
    trt.recorder.raises("set_shape", ValueError("Shape provided for min is inconsistent with other shapes."))
    sentence = refused(plans, graph)
    assert "TensorRT refuses pixels" in sentence
    assert "inconsistent with other shapes" in sentence


@pytest.mark.parametrize(
    ("call", "value"), [("IOptimizationProfile.__bool__", False), ("add_optimization_profile", -1)]
)
def test_an_invalid_profile(plans, trt, graph, call, value):
    trt.recorder.returns(call, value)
    assert "profile 0 of model.onnx: TensorRT refuses it" in refused(plans, graph)
    assert trt.recorder.named("build_serialized_network") == []


def test_every_parser_error_is_printed_whole(plans, trt, graph, capsys):
    codes = trt.module.ErrorCode
    first, second = errors = [make(trt.module.ParserError) for _ in range(2)]
    said = {
        "desc": ["No importer registered for op: Fancy", "Assertion failed: rank > 0"],
        "code": [codes.UNSUPPORTED_NODE, codes.INVALID_NODE],
        "node": [7, 9],
        "node_name": ["/block/Fancy", "/head/Top"],
        "node_operator": ["Fancy", "TopK"],
        "local_function_stack": [[], ["main", "inner"]],
        "file": ["ModelImporter.cpp"] * 2,
        "line": [42, 43],
        "func": ["parseNode"] * 2,
    }
    for name, values in said.items():
        trt.recorder.returns(
            f"ParserError.{name}", lambda error, values=values: values[0 if error is first else 1]
        )
    trt.recorder.returns("parse_from_file", lambda parser, model: False)
    trt.recorder.returns("OnnxParser.num_errors", len(errors))
    trt.recorder.returns("get_error", lambda parser, index: errors[index])
    sentence = refused(plans, graph)
    assert sentence.endswith("(2 errors above, the first: No importer registered for op: Fancy)")
    assert capsys.readouterr().err.splitlines() == [
        "1. ErrorCode.UNSUPPORTED_NODE at node 7 '/block/Fancy' (Fancy): "
        "No importer registered for op: Fancy [ModelImporter.cpp:42 parseNode]",
        "2. ErrorCode.INVALID_NODE at node 9 '/head/Top' (TopK), inside main > inner: "
        "Assertion failed: rank > 0 [ModelImporter.cpp:43 parseNode]",
    ]
    assert trt.recorder.named("create_builder_config") == []


def test_a_build_that_gives_nothing_says_what_the_log_said(plans, trt, graph):
    def fail(builder: object, network: object, config: object) -> None:
        says(trt, "ERROR", "old error")
        for number in range(3):
            says(trt, "WARNING", "only a warning")
            says(trt, "ERROR", f"[x.cpp::y::{number}] Error Code 10: Could not find any\nimplementation")

    trt.recorder.returns("build_serialized_network", fail)
    sentence = refused(plans, graph)
    assert sentence.startswith("TensorRT built no plan from model.onnx: [x.cpp::y::0] Error Code 10")
    assert sentence.count("Could not find any implementation") == 3
    assert "old error" not in sentence
    assert "warning" not in sentence


def test_a_silent_failure_is_told_too(plans, trt, graph):
    trt.recorder.returns("build_serialized_network", lambda builder, network, config: None)
    assert refused(plans, graph).endswith("built no plan from model.onnx: it did not say why")


def test_out_of_memory_says_what_to_do(plans, trt, graph):
    def fail(builder: object, network: object, config: object) -> None:
        says(
            trt, "INTERNAL_ERROR", "[resizePhysical::154] Error Code 2: OutOfMemory (Requested size was 9 GB)"
        )

    trt.recorder.returns("build_serialized_network", fail)
    sentence = refused(plans, graph)
    assert "ran out of memory building model.onnx ([resizePhysical::154]" in sentence
    assert "lower the largest batch of the profiles" in sentence
    trt.recorder.raises("build_serialized_network", MemoryError("std::bad_alloc"))
    assert "ran out of memory building model.onnx" in refused(plans, graph)
    trt.recorder.raises("build_serialized_network", RuntimeError("driver gone"))
    assert refused(plans, graph).endswith("built no plan from model.onnx: RuntimeError: driver gone")


def test_a_builder_that_cannot_be_made_tells_the_logs_reason(plans, trt, graph):
    def fail(builder: object, logger: Any) -> None:
        logger.log(trt.module.ILogger.Severity.ERROR, "CUDA initialization failure with error: 35")
        raise TypeError("pybind11::init(): factory function returned nullptr")

    trt.recorder.returns("tensorrt.Builder", fail)
    assert refused(plans, graph) == "TensorRT makes no builder: CUDA initialization failure with error: 35"


def test_phases_are_shown_and_ctrl_c_ends_the_build_at_its_next_step(plans, trt, graph, monkeypatch):
    answers: list[bool] = []
    gone = threading.Event()

    def interrupted(builder: object, network: object, config: Any) -> None:
        assert threading.current_thread() is not threading.main_thread()
        monitor = config.progress_monitor
        monitor.phase_start("Building", None, 3)
        monitor.phase_start("Timing", "Building", 1000)
        answers.append(monitor.step_complete("Timing", 0))
        os.kill(os.getpid(), signal.SIGINT)
        while monitor.step_complete("Timing", len(answers)) and len(answers) < 1000:
            answers.append(True)
            gone.wait(0.01)
        answers.append(False)
        monitor.phase_finish("Timing")
        monitor.phase_finish("Building")

    trt.recorder.returns("build_serialized_network", interrupted)
    # Another library's handler may stand there by now.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert refused(plans, graph) == "the build was cancelled: nothing was written"
    finally:
        signal.signal(signal.SIGINT, before)
    assert answers[0] is True
    assert answers[-1] is False
    assert len(answers) < 1000


def test_timings_are_used_again_and_those_of_another_machine_end_the_build_before_it_begins(
    plans, trt, graph, monkeypatch
):
    caches = graph.parent / "caches"
    trt.recorder.returns("ITimingCache.serialize", b"timings")
    build(plans, graph, timing_cache=caches)
    build(plans, graph, timing_cache=caches)
    given = [call.arguments["serialized_timing_cache"] for call in trt.recorder.named("create_timing_cache")]
    assert given == [b"", b"timings"]
    (cache,) = caches.glob("*.timing")
    trt.recorder.calls.clear()
    other = Gpu(0, "NVIDIA L4", "8.9", 24 << 30, 23 << 30, "580.1")
    monkeypatch.setattr(plans, "visible_gpus", lambda: [other])
    assert "is of TensorRT" in refused(plans, graph, timing_cache=cache)
    assert trt.recorder.calls == []
    assert cache.read_bytes() == b"timings"


def test_warnings_are_shown_once(plans, trt, graph, capsys):
    def warn(builder: object, network: object, config: object) -> bytes:
        for _ in range(3):
            says(trt, "WARNING", "Detected subnormal FP16 values.\nSecond line")
        for number in range(9):
            says(trt, "WARNING", f"other {number}")
        return b"plan"

    trt.recorder.returns("build_serialized_network", warn)
    build(plans, graph)
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("TensorRT warns")]
    assert told == [
        "TensorRT warns: Detected subnormal FP16 values. Second line",
        *(f"TensorRT warns: other {number}" for number in range(4)),
    ]


def test_a_version_without_strong_typing_is_refused(plans, trt, graph):
    trt.module.__version__ = "8.6.1"
    assert refused(plans, graph) == "here is TensorRT 8.6.1: strongly typed plans need 10 or later"
    assert trt.recorder.calls == []


def test_without_the_library(plans, graph, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    assert "TensorRT's Python package does not import" in refused(plans, graph)


def test_without_a_gpu(plans, trt, graph, monkeypatch):
    def no_driver() -> list[Gpu]:
        raise ServerError("no NVIDIA driver answers (Driver Not Loaded): install one")

    monkeypatch.setattr(plans, "visible_gpus", no_driver)
    assert "built on the GPU that it will run on: no NVIDIA driver answers" in refused(plans, graph)
    monkeypatch.setattr(plans, "visible_gpus", list)
    assert "CUDA_VISIBLE_DEVICES leaves none" in refused(plans, graph)
    assert trt.recorder.named("tensorrt.Builder") == []


def test_what_cannot_be_read_or_written_is_named(plans, trt, graph, monkeypatch):
    with pytest.raises(ArtefactError, match="no ONNX graph at"):
        build(plans, graph.with_name("other.onnx"))
    with pytest.raises(ArtefactError, match="nowhere/model.plan could not be written: No such file"):
        plans.build_plan(graph, graph.parent / "nowhere" / "model.plan", [{"pixels": RANGE}])
