"""A double of `onnxruntime` with CUDA: the real one's names and signatures, computing on the processor.

Every call is bound to the signature of the real method, and a name that the installed
`onnxruntime` does not have does not exist here either; so a slip of ours fails as it would on a
GPU machine. `onnxruntime-gpu` has the same Python sources.
"""

from __future__ import annotations

import inspect
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnxruntime

CUDA = "CUDAExecutionProvider"
# As libonnxruntime_providers_cuda.so of onnxruntime-gpu 1.31.1 holds them.
OPTIONS = {
    "device_id", "has_user_compute_stream", "user_compute_stream", "gpu_mem_limit", "arena_extend_strategy",
    "cudnn_conv_algo_search", "do_copy_in_default_stream", "cudnn_conv_use_max_workspace",
    "enable_cuda_graph", "cudnn_conv1d_pad_to_nc1d", "tunable_op_enable", "tunable_op_tuning_enable",
    "tunable_op_max_tuning_duration_ms", "enable_skip_layer_norm_strict_mode", "prefer_nhwc", "use_tf32",
    "sdpa_kernel", "fuse_conv_bias", "use_ep_level_unified_stream",
}  # fmt: skip
VALUES = {
    "cudnn_conv_algo_search": {"EXHAUSTIVE", "HEURISTIC", "DEFAULT"},
    "arena_extend_strategy": {"kNextPowerOfTwo", "kSameAsRequested"},
}


@dataclass
class Machine:
    """What the double answers, and what it was asked.

    Attributes:
        available: providers that it says to be built with.
        starts: CUDA starts; otherwise the session falls back in silence, as the real one does.
        libraries: folder in which CUDA's libraries are found; empty: beside the package.
        prints: what `preload_dlls` says on stdout until it was told that folder.
        refuses: what opening a session on CUDA raises.
        fails: what running one raises.
        calls: name and arguments by name, in order.
    """

    available: tuple[str, ...] = ("TensorrtExecutionProvider", CUDA, "CPUExecutionProvider")
    starts: bool = True
    prints: str = ""
    libraries: str = ""
    refuses: Exception | None = None
    fails: Exception | None = None
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def named(self, name: str) -> list[dict[str, Any]]:
        return [arguments for called, arguments in self.calls if called == name]

    def note(self, real: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The arguments by the names of the real function; TypeError where they do not fit it."""
        arguments = dict(inspect.signature(real).bind(*args, **kwargs).arguments)
        self.calls.append((real.__qualname__, arguments))
        return arguments


class Session:
    """A real session on the processor behind the face of one on CUDA."""

    def __init__(self, machine: Machine, *args: Any, **kwargs: Any) -> None:
        self._machine = machine
        asked = machine.note(onnxruntime.InferenceSession.__init__, self, *args, **kwargs)
        names = [one if isinstance(one, str) else one[0] for one in asked["providers"]]
        for name, options in (one for one in asked["providers"] if not isinstance(one, str)):
            assert name == CUDA
            assert set(options) <= OPTIONS, options
            assert all(options[key] in known for key, known in VALUES.items() if key in options), options
        # A graph that is wrong is told from a GPU that is not there.
        self._real = onnxruntime.InferenceSession(
            asked["path_or_bytes"], asked["sess_options"], providers=["CPUExecutionProvider"]
        )
        if CUDA in names and machine.refuses:
            raise machine.refuses
        self._providers = [name for name in names if name != CUDA or machine.starts]

    def get_providers(self) -> list[str]:
        return self._providers

    def run(self, *args: Any, **kwargs: Any) -> Any:
        self._machine.note(onnxruntime.InferenceSession.run, self, *args, **kwargs)
        if CUDA in self._providers and self._machine.fails:
            raise self._machine.fails
        return self._real.run(*args, **kwargs)


class OnnxRuntime:
    """Stands for the module: what is not doubled is the real module's, or does not exist."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.cuda_version = "13.0"

    def __getattr__(self, name: str) -> Any:
        return getattr(onnxruntime, name)

    def get_available_providers(self) -> list[str]:
        return list(self._machine.available)

    def preload_dlls(self, *args: Any, **kwargs: Any) -> None:
        asked = self._machine.note(onnxruntime.preload_dlls, *args, **kwargs)
        if self._machine.libraries and asked.get("directory") == self._machine.libraries:
            self._machine.prints = ""
        if self._machine.prints:
            print(self._machine.prints)

    def InferenceSession(self, *args: Any, **kwargs: Any) -> Session:  # noqa: N802
        return Session(self._machine, *args, **kwargs)


def install(monkeypatch: Any) -> Machine:
    """Puts the double in the place of `onnxruntime`."""
    machine = Machine()
    monkeypatch.setitem(sys.modules, "onnxruntime", OnnxRuntime(machine))
    return machine


def save_graph(path: Path) -> None:
    """A graph that gives the mean of each channel: pixels uint8[b, 3, h, w] → logits float32[b, 3]."""
    import onnx

    helper, kind = onnx.helper, onnx.TensorProto
    nodes = [
        helper.make_node("Cast", ["pixels"], ["floats"], to=kind.FLOAT),
        helper.make_node("ReduceMean", ["floats"], ["logits"], axes=[2, 3], keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "means",
        [helper.make_tensor_value_info("pixels", kind.UINT8, ["b", 3, "h", "w"])],
        [helper.make_tensor_value_info("logits", kind.FLOAT, ["b", 3])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(path))
