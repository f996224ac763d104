"""A double of TensorRT that computes: its parser reads ONNX files, its plans are ONNX, its contexts run them.

What is scripted here stands for the library's own work; names, arguments and types are still the stubs'.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnxruntime

from tests.doubles.gpu_libraries import make

TYPES = {
    "tensor(float)": ("FLOAT", np.float32),
    "tensor(float16)": ("HALF", np.float16),
    "tensor(uint8)": ("UINT8", np.uint8),
    "tensor(int64)": ("INT64", np.int64),
}


def parses(double: SimpleNamespace) -> None:
    """`parse_from_file` gives the network the graph's inputs, free dimensions as -1; the plan is the file."""
    recorder, trt = double.recorder, double.module
    read: dict[str, Any] = {}

    def parse(parser: object, model: str) -> bool:
        graph = onnx.load(model).graph
        read["model"] = Path(model).read_bytes()
        read["inputs"] = [make(trt.ITensor, name=one.name, shape=_dims(one)) for one in graph.input]
        return True

    recorder.returns("OnnxParser.parse_from_file", parse)
    recorder.returns("INetworkDefinition.num_inputs", lambda network: len(read["inputs"]))
    recorder.returns("INetworkDefinition.get_input", lambda network, index: read["inputs"][index])
    recorder.returns("Builder.build_serialized_network", lambda builder, network, config: read["model"])


def executes(
    double: SimpleNamespace, change: Callable[[np.ndarray], np.ndarray] = lambda output: output
) -> None:
    """`execute_async_v3` runs the plan on the shapes and addresses that it was given (host memory).

    Args:
        change: what becomes of each output, for a GPU that computes something else.
    """
    recorder, trt = double.recorder, double.module
    state: dict[str, Any] = {}

    def deserialize(runtime: object, serialized_engine: Any) -> Any:
        state["session"] = onnxruntime.InferenceSession(
            bytes(serialized_engine), providers=["CPUExecutionProvider"]
        )
        state["tensors"] = {
            one.name: one for one in [*state["session"].get_inputs(), *state["session"].get_outputs()]
        }
        return make(trt.ICudaEngine)

    def is_input(name: str) -> bool:
        return name in {one.name for one in state["session"].get_inputs()}

    def run() -> dict[str, np.ndarray]:
        feeds = {}
        for one in state["session"].get_inputs():
            shape, dtype = tuple(_last("set_input_shape", one.name)["shape"]), TYPES[one.type][1]
            address = _last("set_tensor_address", one.name)["memory"]
            size = int(np.prod(shape)) * np.dtype(dtype).itemsize
            feeds[one.name] = np.frombuffer(ctypes.string_at(address, size), dtype).reshape(shape)
        names = [one.name for one in state["session"].get_outputs()]
        return dict(zip(names, state["session"].run(names, feeds), strict=True))

    def execute(context: object, stream_handle: int) -> bool:
        for name, output in run().items():
            output = np.ascontiguousarray(change(output))
            ctypes.memmove(_last("set_tensor_address", name)["memory"], output.ctypes.data, output.nbytes)
        return True

    def shape_of(context: object, name: str) -> tuple[int, ...]:
        """The first dimension is the batch, the others are the graph's own."""
        batch = tuple(_last("set_input_shape", state["session"].get_inputs()[0].name)["shape"])[0]
        return (batch, *(int(size) for size in state["tensors"][name].shape[1:]))

    def _last(call: str, name: str) -> dict[str, Any]:
        return [one.arguments for one in recorder.named(call) if one.arguments["name"] == name][-1]

    recorder.returns("Runtime.deserialize_cuda_engine", deserialize)
    recorder.returns("ICudaEngine.num_io_tensors", lambda engine: len(state["tensors"]))
    recorder.returns("ICudaEngine.get_tensor_name", lambda engine, index: list(state["tensors"])[index])
    recorder.returns(
        "ICudaEngine.get_tensor_mode",
        lambda engine, name: trt.TensorIOMode.INPUT if is_input(name) else trt.TensorIOMode.OUTPUT,
    )
    recorder.returns(
        "ICudaEngine.get_tensor_dtype",
        lambda engine, name: getattr(trt.DataType, TYPES[state["tensors"][name].type][0]),
    )
    recorder.returns("IExecutionContext.get_tensor_shape", shape_of)
    recorder.returns("IExecutionContext.execute_async_v3", execute)


def _dims(value: onnx.ValueInfoProto) -> tuple[int, ...]:
    return tuple(
        axis.dim_value if axis.HasField("dim_value") else -1 for axis in value.type.tensor_type.shape.dim
    )
