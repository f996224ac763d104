"""steps/tensorrt/network.py on doubles of both TensorRT versions: what is parsed, profiles that fit it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders.gpu_machine import RANGE, build, refused
from tests.doubles.gpu_libraries import make
from trimodal.manifest import InputRange


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


def test_a_builder_that_cannot_be_made_tells_the_logs_reason(plans, trt, graph):
    def fail(builder: object, logger: Any) -> None:
        logger.log(trt.module.ILogger.Severity.ERROR, "CUDA initialization failure with error: 35")
        raise TypeError("pybind11::init(): factory function returned nullptr")

    trt.recorder.returns("tensorrt.Builder", fail)
    assert refused(plans, graph) == "TensorRT makes no builder: CUDA initialization failure with error: 35"
