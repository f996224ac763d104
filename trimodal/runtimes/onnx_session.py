"""Opens an ONNX graph in ONNX Runtime, on the processor or on the GPU; every failure is one sentence.

ONNX Runtime answers on the processor, without a word to the caller, where CUDA does not start; here that is
an error.
"""

from __future__ import annotations

import contextlib
import io
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from pydantic import Field

from trimodal.errors import ArtefactError, ServerError
from trimodal.runtimes.gpu_device import visible_gpus
from trimodal.runtimes.heap import give_back_freed
from trimodal.settings import EngineSettings

Device = Literal["cpu", "cuda"]
PROVIDERS: dict[Device, str] = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
# Both packages write into one folder, so the one installed last wins: only one may stay.
REPLACE = "pip uninstall -y onnxruntime onnxruntime-gpu, then pip install 'onnxruntime-gpu[cuda,cudnn]'"
# Names: ONNX Runtime's documentation of its CUDA execution provider. What is not here keeps its default.
CUDA_OPTIONS = {
    "device_id": "0",  # of those that CUDA_VISIBLE_DEVICES leaves
    # cuDNN's heuristic A plans a new shape in milliseconds; EXHAUSTIVE, the default, took up to a second
    # where it measures every algorithm (before 1.20), and DEFAULT is cuDNN's slow fallback since.
    "cudnn_conv_algo_search": "HEURISTIC",
    # Several models share one GPU: no process takes twice what it needs, as kNextPowerOfTwo does.
    "arena_extend_strategy": "kSameAsRequested",
}


class OnnxSettings(EngineSettings):
    """Of a model that is one ONNX graph: which artefact, opened by which engine."""

    artefact: str = Field(min_length=1, description="artefact directory, absolute or from the version's")
    engine: Literal["onnxruntime", "fake"] = "onnxruntime"
    device: Device = "cpu"
    checkpoint_sha256: str = Field("", description="of the checkpoint, or how it begins; empty: any")


def open_session(path: Path, *, device: Device, threads: int, command: str = "") -> Any:
    """An `onnxruntime.InferenceSession` on the graph in `path`, which `command` builds again.

    Device "cuda" is the first GPU that CUDA_VISIBLE_DEVICES leaves; `threads` are of one operator.

    Raises:
        ArtefactError: the file is missing or ONNX Runtime refuses it.
        ServerError: ONNX Runtime is missing, is built without CUDA, or CUDA does not start.
    """
    try:
        import onnxruntime
    except ImportError as error:
        extra = "cpu" if device == "cpu" else "cuda"
        raise ServerError(
            f"ONNX Runtime cannot be imported ({first_line(error)}): pip install 'trimodal[{extra}]'"
        ) from None
    # Shapes are computed on the processor in either case, so it has to be in the list.
    providers: list[Any] = [PROVIDERS["cpu"]]
    loading = ""
    if device == "cuda":
        loading = _load_cuda(onnxruntime)
        providers.insert(0, (PROVIDERS["cuda"], CUDA_OPTIONS))
    try:
        session = onnxruntime.InferenceSession(
            str(path),
            _options(onnxruntime, threads),
            providers=providers,
            enable_fallback=0,  # else a second try on the processor, told on stdout
        )
    except Exception as error:  # ONNX Runtime has no common base for its errors.
        reason = first_line(error)
        if device == "cuda" and "CUDA" in reason:
            raise _no_cuda(onnxruntime, reason) from None
        again = f": build again with: {command}" if command else ""
        raise ArtefactError(
            f"ONNX Runtime {onnxruntime.__version__} refuses {path} ({type(error).__name__}: {reason}){again}"
        ) from None
    if PROVIDERS[device] not in session.get_providers():
        raise _no_cuda(onnxruntime, loading)
    give_back_freed()
    return session


def _options(onnxruntime: ModuleType, threads: int) -> Any:
    """`SessionOptions` of every session here: these threads for one operator, and none that spins."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Triton's own threads, other models and clients share these cores: a thread that spins takes them away.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    return options


def _load_cuda(onnxruntime: ModuleType) -> str:
    """Loads CUDA's libraries from NVIDIA's wheels; what could not be loaded, if anything.

    Without this, only what the system's loader finds would count.
    """
    if PROVIDERS["cuda"] not in onnxruntime.get_available_providers():
        raise ServerError(f"ONNX Runtime {onnxruntime.__version__} here is built without CUDA: {REPLACE}")
    trouble = _preload(onnxruntime)
    if trouble:
        # It looked beside its own package alone: under a virtual environment they may be the interpreter's.
        for folder in _nvidia_folders():
            _preload(onnxruntime, directory=str(folder))
        trouble = _preload(onnxruntime)
    return trouble


def _preload(onnxruntime: ModuleType, **where: str) -> str:
    """The first line of ONNX Runtime's complaint, which it prints on stdout; empty when all are loaded."""
    complaint = io.StringIO()
    with contextlib.redirect_stdout(complaint):
        onnxruntime.preload_dlls(**where)
    return complaint.getvalue().strip().split("\n")[0]


def _nvidia_folders() -> list[Path]:
    """Folders with libraries of NVIDIA's wheels, wherever this interpreter finds packages."""
    spec = find_spec("nvidia")
    roots = spec.submodule_search_locations if spec else None
    return [folder for root in roots or () for folder in sorted(Path(root).glob("*/lib"))]


def _no_cuda(onnxruntime: ModuleType, reason: str) -> ServerError:
    """CUDA did not start: a machine without a GPU first, since then no library matters."""
    try:
        if not visible_gpus():
            return ServerError("CUDA_VISIBLE_DEVICES hides every GPU: unset it, or use the CPU profile")
    except ServerError as error:
        return error
    needs = f"its log says why; it needs CUDA {onnxruntime.cuda_version} and a driver for it"
    return ServerError(
        f"ONNX Runtime {onnxruntime.__version__} cannot use the GPU ({reason or needs}): "
        "pip install 'onnxruntime-gpu[cuda,cudnn]', or ask `trimodal doctor --profile cuda`"
    )


def first_line(error: BaseException) -> str:
    """What of a library's error fits into a sentence; its stack follows on other lines."""
    return str(error).strip().split("\n")[0][:200]
