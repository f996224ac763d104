"""Runs a TensorRT plan on this machine's GPU, to compare it with the graph that it was built from.

Memory is torch's. For checks alone: it allocates on every call, and servers open plans in ways of their own.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from steps.tensorrt.messages import Messages, make_logger

from trimodal.errors import ArtefactError

if TYPE_CHECKING:
    import torch

DEVICE = "cuda"  # Tests, whose TensorRT computes on the CPU, name another.
Array = NDArray[np.generic]


def require_cuda() -> None:
    """Raises: ArtefactError when torch, whose memory a plan is run in, has no CUDA here."""
    import torch

    if DEVICE == "cuda" and not torch.cuda.is_available():
        raise ArtefactError(
            "torch has no CUDA here, so the plan cannot be checked: --no-check builds it anyway"
        )


class PlanRunner:
    """One plan, opened with one execution context for one of its profiles.

    Raises:
        ArtefactError: the plan does not load, or lacks the profile.
    """

    def __init__(self, plan: Path, profile: int = 0) -> None:
        import tensorrt as trt
        import torch

        self._messages = Messages()
        self._logger = make_logger(self._messages)
        self._runtime = trt.Runtime(self._logger)
        # None where the signatures promise an object: the library failed, and its log says why.
        engine: trt.ICudaEngine | None = self._runtime.deserialize_cuda_engine(plan.read_bytes())
        if engine is None:
            raise ArtefactError(f"TensorRT does not load {plan}: {self._messages.last_errors()}")
        context: trt.IExecutionContext | None = engine.create_execution_context()
        if context is None:
            raise ArtefactError(f"{plan}: no execution context: {self._messages.last_errors()}")
        self._engine, self._context, self._plan = engine, context, plan
        self._stream = torch.cuda.Stream() if DEVICE == "cuda" else None
        self._handle = self._stream.cuda_stream if self._stream else 0
        if not context.set_optimization_profile_async(profile, self._handle):
            raise ArtefactError(f"{plan} has no profile {profile}: {self._messages.last_errors()}")
        self._synchronise()
        names = [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]
        self._outputs = [name for name in names if engine.get_tensor_mode(name) == trt.TensorIOMode.OUTPUT]

    def run(self, inputs: dict[str, Array]) -> dict[str, Array]:
        """Outputs by name for inputs by name; shapes and types are the graph's.

        Raises:
            ArtefactError: a shape outside of the profile, or the execution failed.
        """
        import torch

        with torch.cuda.stream(self._stream) if self._stream else nullcontext():
            given = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in inputs.items()}
            tensors = {name: tensor.to(DEVICE) for name, tensor in given.items()}
            for name, tensor in tensors.items():
                if not self._context.set_input_shape(name, tuple(tensor.shape)):
                    shape = "×".join(map(str, tensor.shape))
                    raise ArtefactError(
                        f"{self._plan} takes no {name} {shape}: {self._messages.last_errors()}"
                    )
            for name in self._outputs:
                dims = self._context.get_tensor_shape(name)
                sizes = [dims[axis] for axis in range(len(dims))]
                tensors[name] = torch.empty(sizes, dtype=self._dtype(name), device=DEVICE)
            for name, tensor in tensors.items():
                self._context.set_tensor_address(name, tensor.data_ptr())
            if not self._context.execute_async_v3(self._handle):
                raise ArtefactError(f"{self._plan} does not run: {self._messages.last_errors()}")
            self._synchronise()
            return {name: tensors[name].cpu().numpy() for name in self._outputs}

    def _dtype(self, name: str) -> torch.dtype:
        import tensorrt as trt
        import torch

        types = {
            trt.DataType.FLOAT: torch.float32,
            trt.DataType.HALF: torch.float16,
            trt.DataType.INT32: torch.int32,
            trt.DataType.INT64: torch.int64,
            trt.DataType.UINT8: torch.uint8,
            trt.DataType.BOOL: torch.bool,
        }
        return types[self._engine.get_tensor_dtype(name)]

    def _synchronise(self) -> None:
        if self._stream:
            self._stream.synchronize()
