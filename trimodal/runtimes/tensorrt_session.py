"""Deserialises a TensorRT plan and runs it on given tensors in a given stream.

An execution context for each kind of run, so that its shapes need not be told again, and a CUDA graph of it
stays valid. trimodal.runtimes.gpu_fit has checked before that the plan fits this machine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from trimodal.manifest import Shape
from trimodal.runtimes.gpu_fit import within

if TYPE_CHECKING:
    import tensorrt
    from torch import Tensor

Range = tuple[Shape, Shape]  # smallest and largest


class TensorRTError(RuntimeError):
    """TensorRT refused something; the message has the last words of its log."""


class Runtime:
    """TensorRT's runtime, and its log's errors."""

    def __init__(self) -> None:
        import tensorrt as trt

        errors: deque[str] = deque(maxlen=3)

        class Log(trt.ILogger):
            def log(self, severity: trt.ILogger.Severity, msg: str) -> None:
                if severity in (trt.ILogger.Severity.ERROR, trt.ILogger.Severity.INTERNAL_ERROR):
                    errors.append(" ".join(msg.split()))

        self._errors = errors
        self._log = Log()  # TensorRT keeps no reference.
        self.runtime = trt.Runtime(self._log)

    def refusal(self, what: str) -> TensorRTError:
        """`what` failed; forgets the errors that it tells."""
        reason = "; ".join(self._errors) or "it did not say why"
        self._errors.clear()
        return TensorRTError(f"{what}: {reason}")


class TensorRTSession:
    """One plan, deserialised, and its execution contexts.

    Attributes:
        shapes: tensor → shape, -1 where it is free.
        halves: tensors of type FP16; the others are of their graph's types.
    """

    def __init__(self, path: Path, runtime: Runtime) -> None:
        """Raises: TensorRTError when it cannot be deserialised, OSError when it cannot be read."""
        import tensorrt as trt

        self._name = path.name
        self._runtime = runtime
        # None on failure, which the published signature does not say.
        engine = runtime.runtime.deserialize_cuda_engine(path.read_bytes())
        if engine is None:
            raise runtime.refusal(f"TensorRT does not take {path.name}")
        self._engine = engine
        names = [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]
        self.shapes = {name: _shape(engine.get_tensor_shape(name)) for name in names}
        self.halves = {name for name in names if engine.get_tensor_dtype(name) == trt.DataType.HALF}
        self._inputs = [name for name in names if engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT]
        self._ranges = [self._range(number) for number in range(engine.num_optimization_profiles)]
        self._contexts: dict[Hashable, tensorrt.IExecutionContext] = {}
        # Shape and address of each tensor that a context has.
        self._bound: dict[Hashable, dict[str, tuple[Shape, int]]] = {}

    def close(self) -> None:
        """Frees the contexts' memory, then the weights."""
        self._contexts.clear()
        del self._engine

    def profile(self, shapes: Mapping[str, Shape]) -> int:
        """The first profile that holds these inputs. Raises: TensorRTError when none does."""
        for number, ranges in enumerate(self._ranges):
            if all(within(shape, *ranges[name]) for name, shape in shapes.items()):
                return number
        wanted = ", ".join(f"{name} {'×'.join(map(str, shape))}" for name, shape in shapes.items())
        raise TensorRTError(f"no profile of {self._name} holds {wanted}")

    def run(self, kind: Hashable, tensors: Mapping[str, Tensor], stream: int) -> None:
        """Puts one run into the stream; contiguous `tensors` must live until the stream is through with it.

        Args:
            kind: runs of one kind share a context, so they fit one profile, that of the first.

        Raises:
            TensorRTError: no profile holds the inputs, or TensorRT refuses one, or the run.
        """
        shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        context = self._context(kind, shapes, stream)
        bound = self._bound[kind]
        for name, tensor in tensors.items():
            shape, address = bound.get(name, ((), 0))
            new = name in self._inputs and shape != shapes[name]
            if new and not context.set_input_shape(name, shapes[name]):
                raise self._runtime.refusal(f"{self._name} does not take {name} of shape {shapes[name]}")
            if address != tensor.data_ptr() and not context.set_tensor_address(name, tensor.data_ptr()):
                raise self._runtime.refusal(f"{self._name} does not take the memory of {name}")
            bound[name] = shapes[name], tensor.data_ptr()
        if not context.execute_async_v3(stream):
            bound.clear()  # Whatever state it is in: set it all again.
            raise self._runtime.refusal(f"{self._name} was not run")

    def _context(
        self, kind: Hashable, shapes: Mapping[str, Shape], stream: int
    ) -> tensorrt.IExecutionContext:
        import tensorrt as trt

        if kind not in self._contexts:
            profile = self.profile({name: shapes[name] for name in self._inputs})
            # Memory for this profile alone: the default is as much as the largest of all needs.
            context = self._engine.create_execution_context(
                trt.ExecutionContextAllocationStrategy.ON_PROFILE_CHANGE
            )
            if context is None:
                raise self._runtime.refusal(f"no execution context of {self._name}")
            if not context.set_optimization_profile_async(profile, stream):
                raise self._runtime.refusal(f"{self._name} does not take profile {profile}")
            self._contexts[kind], self._bound[kind] = context, {}
        return self._contexts[kind]

    def _range(self, profile: int) -> dict[str, Range]:
        ranges = {}
        for name in self._inputs:
            low, _, high = self._engine.get_tensor_profile_shape(name, profile)
            ranges[name] = _shape(low), _shape(high)
        return ranges


def _shape(dims: tensorrt.Dims) -> Shape:
    return tuple(int(dims[axis]) for axis in range(len(dims)))


def stream(tensor: Tensor) -> int:
    """The handle of the stream that torch uses now; 0 on the CPU, where a test stands in for TensorRT."""
    import torch

    return torch.cuda.current_stream(tensor.device).cuda_stream if tensor.is_cuda else 0
