"""Opens the TensorRT plans of build/speech_tensorrt.py.

A plan that was built with another TensorRT, for another GPU or for smaller batches is refused with a
sentence that says so, before TensorRT is asked.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from trimodal.errors import OperatorError, ServerError, SettingsError
from trimodal.manifest import Manifest, Shape
from trimodal.runtimes.gpu_device import visible_gpus
from trimodal.runtimes.gpu_fit import check_gpu, check_shapes, check_version
from trimodal.speech.engines.tensorrt.graphs import TensorRTGraphs
from trimodal.speech.settings import RecogniseSettings
from trimodal.speech.whisper.artefact import SpeechShapes, open_artefact, read_spec, read_tokens, unopened
from trimodal.speech.whisper.features import FRAMES_PER_S
from trimodal.speech.whisper.model import GraphWhisper


def open_engine(directory: Path, settings: RecogniseSettings) -> GraphWhisper:
    """The plans in `directory` with the `tokenizer.json` beside them, on the first visible GPU.

    Raises ArtefactError: damaged or built for something else; ServerError: TensorRT, torch or the GPU is
    missing; SettingsError: more than one beam, or a device that is no GPU.
    """
    if settings.device != "cuda":
        raise SettingsError("parameter 'device': the engine tensorrt runs on a GPU, cuda only")
    manifest, shapes = open_artefact(directory, settings, runtime="tensorrt")
    check_windows(directory, manifest, shapes, settings.max_batch_windows)
    check_gpu(directory, manifest, visible_gpus())
    check_version(directory, manifest, tensorrt_version())
    return open_plans(directory, manifest, shapes, settings.max_batch_windows, device="cuda")


def open_plans(
    directory: Path, manifest: Manifest, shapes: SpeechShapes, max_batch: int, *, device: str
) -> GraphWhisper:
    """What fits, opened, with its memory on torch's `device`. Raises ArtefactError: damaged, or no memory."""
    spec = read_spec(directory, manifest)
    tokens = read_tokens(directory, manifest, shapes, multilingual=spec.multilingual)
    frames = round(shapes.contexts_s[-1] * FRAMES_PER_S)
    try:
        graphs = TensorRTGraphs(
            directory, max_batch=max_batch, frames=frames, places=shapes.positions, device=device
        )
    except OperatorError:
        raise
    except Exception as error:  # TensorRT's refusals, torch's out of memory, CUDA's own.
        raise unopened(directory, manifest, error) from None
    return GraphWhisper(graphs, tokens, shapes, spec, max_batch=max_batch, one_at_a_time=True)


def check_windows(directory: Path, manifest: Manifest, shapes: SpeechShapes, max_batch: int) -> None:
    """Raises: ArtefactError when the profiles do not hold `max_batch` windows of every context."""
    for context_s in shapes.contexts_s:
        frames = round(context_s * FRAMES_PER_S)
        wanted: dict[str, Shape] = {
            "encoder:features": (max_batch, shapes.mel_bins, frames),
            "decoder:tokens": (max_batch, 1),
        }
        check_shapes(directory, manifest, wanted, f"max_batch_windows {max_batch} of {context_s:g} s")


def tensorrt_version() -> str:
    """As 10.14.1.48. Raises: ServerError when TensorRT or torch cannot be imported."""
    for name in ("torch", "tensorrt"):
        try:
            module = import_module(name)
        except ImportError as error:
            raise ServerError(
                f"the engine tensorrt needs the Python package {name} ({error}): use the container, or "
                "install the tensorrt wheel of the version that built the engine, and torch for CUDA"
            ) from None
    return str(vars(module)["__version__"])  # The bindings' published signatures lack the name.
