"""A double of TensorRT that runs: its plans name ONNX graphs, and ONNX Runtime computes them on the CPU.

It takes what TensorRT would take: shapes within the profile of the context, an address for every tensor,
outputs that do not lie on inputs. Anything else is refused or fails the test. The classes are those of
tests/doubles/gpu_libraries, so that names and arguments are checked, too.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime

from tests.doubles.gpu_libraries import make

Shape = Sequence[int]
# Profile: input → smallest, usual and largest shape.
Profile = Mapping[str, tuple[Shape, Shape, Shape]]
TYPES = {
    "tensor(float)": ("FLOAT", np.float32),
    "tensor(float16)": ("HALF", np.float16),
    "tensor(int64)": ("INT64", np.int64),
    "tensor(uint8)": ("UINT8", np.uint8),
}


def write_plan(path: Path, graph: Path, profiles: Sequence[Profile]) -> None:
    """What the double deserialises instead of a compiled engine."""
    path.write_bytes(plan(graph.name, graph.read_bytes(), profiles))


def plan(name: str, model: bytes, profiles: Sequence[Profile]) -> bytes:
    """The same, for a builder that writes it."""
    ranges = [
        {tensor: [list(shape) for shape in shapes] for tensor, shapes in one.items()} for one in profiles
    ]
    return json.dumps({"name": name, "profiles": ranges}).encode() + b"\n" + model


def builds(double: SimpleNamespace) -> None:
    """Scripts a double so that what it builds is such a plan: of the graph parsed last, with its profiles."""
    recorder = double.recorder
    recorder.returns("OnnxParser.parse_from_file", True)

    def build(builder: Any, network: Any, config: Any) -> bytes:
        graph = Path(str(recorder.named("OnnxParser.parse_from_file")[-1].arguments["model"]))
        added = [
            call.arguments["profile"]
            for call in recorder.named("IBuilderConfig.add_optimization_profile")
            if call.instance is config
        ]
        profiles = [
            {
                str(call.arguments["input"]): tuple(
                    _sizes(call.arguments[end]) for end in ("min", "opt", "max")
                )
                for call in recorder.named("IOptimizationProfile.set_shape")
                if call.instance is profile
            }
            for profile in added
        ]
        return plan(graph.name, graph.read_bytes(), profiles)

    recorder.returns("IBuilderConfig.add_optimization_profile", lambda config, profile: 0)
    recorder.returns("Builder.build_serialized_network", build)


def _sizes(dims: Any) -> list[int]:
    return [int(dims[axis]) for axis in range(len(dims))]


class TensorRTOnOnnx:
    """Scripts a double (`tensorrt_double`).

    Attributes:
        runs: (plan's graph, profile, shapes of the inputs) of every run, in order.
        blocks: address → bytes that may be used there; empty: anything.
        refused: calls that are refused next, by name.
        change: what becomes of logits, for a GPU that computes something else.
    """

    def __init__(self, double: SimpleNamespace) -> None:
        self.runs: list[tuple[str, int, dict[str, tuple[int, ...]]]] = []
        self.blocks: dict[int, int] = {}
        self.refused: set[str] = set()
        self.change: Callable[[np.ndarray], np.ndarray] = lambda logits: logits
        self._module = double.module
        self._engines: dict[int, SimpleNamespace] = {}
        self._contexts: dict[int, SimpleNamespace] = {}
        returns = double.recorder.returns
        returns("Runtime.deserialize_cuda_engine", self._deserialize)
        returns("ICudaEngine.num_io_tensors", lambda engine: len(self._engines[id(engine)].tensors))
        returns("ICudaEngine.num_optimization_profiles", self._count_profiles)
        returns("ICudaEngine.get_tensor_name", lambda engine, index: list(self._tensors(engine))[index])
        returns("ICudaEngine.get_tensor_mode", lambda engine, name: self._tensors(engine)[name].mode)
        returns("ICudaEngine.get_tensor_dtype", lambda engine, name: self._tensors(engine)[name].dtype)
        returns("ICudaEngine.get_tensor_shape", lambda engine, name: self._tensors(engine)[name].shape)
        returns("ICudaEngine.get_tensor_profile_shape", self._profile_shape)
        returns("ICudaEngine.create_execution_context", self._create_context)
        returns("IExecutionContext.set_optimization_profile_async", self._set_profile)
        returns("IExecutionContext.set_input_shape", self._set_shape)
        returns("IExecutionContext.set_tensor_address", self._set_address)
        returns("IExecutionContext.execute_async_v3", self._execute)

    def _deserialize(self, runtime: Any, serialized_engine: bytes) -> Any:
        header, _, model = bytes(serialized_engine).partition(b"\n")
        try:
            described = json.loads(header)
        except ValueError:
            return None
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        modes = self._module.TensorIOMode
        tensors = {
            each.name: SimpleNamespace(
                mode=mode,
                dtype=getattr(self._module.DataType, TYPES[each.type][0]),
                type=TYPES[each.type][1],
                shape=tuple(size if isinstance(size, int) else -1 for size in each.shape),
            )
            for mode, values in ((modes.INPUT, session.get_inputs()), (modes.OUTPUT, session.get_outputs()))
            for each in values
        }
        engine = make(self._module.ICudaEngine)
        self._engines[id(engine)] = SimpleNamespace(
            object=engine,
            session=session,
            tensors=tensors,
            name=described["name"],
            profiles=described["profiles"],
        )
        return engine

    def _tensors(self, engine: Any) -> dict[str, SimpleNamespace]:
        return self._engines[id(engine)].tensors

    def _count_profiles(self, engine: Any) -> int:
        return len(self._engines[id(engine)].profiles)

    def _profile_shape(self, engine: Any, name: str, profile_index: int) -> list[Any]:
        shapes = self._engines[id(engine)].profiles[profile_index][name]
        return [self._module.Dims(shape) for shape in shapes]

    def _create_context(self, engine: Any, strategy: Any) -> Any:
        context = make(self._module.IExecutionContext)
        self._contexts[id(context)] = SimpleNamespace(
            object=context, engine=self._engines[id(engine)], profile=None, shapes={}, addresses={}
        )
        return context

    def _set_profile(self, context: Any, profile_index: int, stream_handle: int) -> bool:
        self._contexts[id(context)].profile = profile_index
        return "set_optimization_profile_async" not in self.refused

    def _set_shape(self, context: Any, name: str, shape: tuple[int, ...]) -> bool:
        state = self._contexts[id(context)]
        low, _, high = state.engine.profiles[state.profile][name]
        state.shapes[name] = tuple(shape)
        return all(a <= size <= b for a, size, b in zip(low, shape, high, strict=True))

    def _set_address(self, context: Any, name: str, memory: int) -> bool:
        self._contexts[id(context)].addresses[name] = memory
        return memory != 0

    def _execute(self, context: Any, stream_handle: int) -> bool:
        if "execute_async_v3" in self.refused:
            return False
        state = self._contexts[id(context)]
        tensors = state.engine.tensors
        assert set(state.addresses) == set(tensors), "every tensor has an address"
        inputs = {
            name: self._read(state.addresses[name], shape, tensors[name].type)
            for name, shape in state.shapes.items()
        }
        # The copies above are what the run reads: where outputs lie on inputs, TensorRT would read its own.
        names = [name for name in tensors if name not in inputs]
        outputs = dict(zip(names, state.engine.session.run(names, inputs), strict=True))
        spans = [(state.addresses[name], value.nbytes) for name, value in inputs.items()]
        for name, value in outputs.items():
            value = self.change(value).astype(value.dtype) if name == "logits" else value
            assert value.dtype == tensors[name].type
            begin = state.addresses[name]
            self._check(begin, value.nbytes)
            assert all(begin >= at + size or at >= begin + value.nbytes for at, size in spans), (
                f"{name} lies on an input"
            )
            ctypes.memmove(begin, np.ascontiguousarray(value).ctypes.data, value.nbytes)
        self.runs.append((state.engine.name, state.profile, dict(state.shapes)))
        return True

    def _read(self, address: int, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        self._check(address, size)
        return np.frombuffer(ctypes.string_at(address, size), dtype).reshape(shape)

    def _check(self, address: int, size: int) -> None:
        if self.blocks:
            assert size <= self.blocks.get(address, -1), "outside of what was allocated"
