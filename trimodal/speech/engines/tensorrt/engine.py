"""Opens the TensorRT plans of build/speech_tensorrt.py.

A plan that was built with another TensorRT, for another GPU or for smaller batches is refused with a
sentence that says so, before TensorRT is asked.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from trimodal.errors import OperatorError, ServerError, SettingsError
from trimodal.manifest import Manifest
from trimodal.runtimes.gpu_device import visible_gpus
from trimodal.runtimes.gpu_fit import check_gpu, check_limit, check_version
from trimodal.speech.engines.graphs.model import GraphWhisper
from trimodal.speech.engines.graphs.rows import Rules, bucket_sizes
from trimodal.speech.settings import RecogniseSettings
from trimodal.speech.whisper.artefact import SpeechShapes, open_artefact, read_spec, read_tokens, unopened
from trimodal.speech.whisper.features import FRAMES_PER_S

if TYPE_CHECKING:
    from trimodal.speech.engines.tensorrt.loop import DeviceGraphs

BUILT_FOR = "max_batch_size"  # windows of one run at most: a key of the manifest's shapes


def open_engine(directory: Path, settings: RecogniseSettings) -> GraphWhisper[DeviceGraphs]:
    """The plans in `directory` with the `tokenizer.json` beside them, on the first visible GPU.

    Raises ArtefactError: damaged or built for something else; ServerError: TensorRT, torch or the GPU is
    missing; SettingsError: more than one beam, or a device that is no GPU.
    """
    if settings.device != "cuda":
        raise SettingsError("parameter 'device': the engine tensorrt runs on a GPU, cuda only")
    if settings.beam_size != 1:
        raise SettingsError("parameter 'beam_size': the engine tensorrt decodes greedily, 1 only")
    manifest, shapes = open_artefact(directory, settings, runtime="tensorrt")
    check_limit(directory, manifest, BUILT_FOR, "max_batch_windows", settings.max_batch_windows)
    check_gpu(directory, manifest, visible_gpus())
    check_version(directory, manifest, tensorrt_version())
    return open_plans(directory, manifest, shapes, settings.max_batch_windows, device="cuda")


def open_plans(
    directory: Path, manifest: Manifest, shapes: SpeechShapes, max_batch: int, *, device: str
) -> GraphWhisper[DeviceGraphs]:
    """What fits, opened, with its memory on torch's `device`. Raises ArtefactError: damaged, or no memory."""
    from trimodal.speech.engines.tensorrt.forward import TensorRTForward
    from trimodal.speech.engines.tensorrt.loop import DeviceGraphs

    spec = read_spec(directory, manifest)
    tokens = read_tokens(directory, manifest, shapes, multilingual=spec.multilingual)
    rules = Rules.of(tokens, spec, shapes.positions)
    frames = [round(context_s * FRAMES_PER_S) for context_s in shapes.contexts_s]
    # The plans' own: each has a profile. No memory for those above what is asked for.
    built = bucket_sizes(int(manifest.shapes.get(BUILT_FOR, max_batch)))
    largest = next((size for size in built if size >= max_batch), built[-1])
    buckets = [size for size in built if size <= largest]
    try:
        forward = TensorRTForward(directory)
        graphs = DeviceGraphs(forward, rules, buckets=buckets, frames=frames, device=device)
    except OperatorError:
        raise
    except Exception as error:  # TensorRT's refusals, torch's out of memory, CUDA's own.
        raise unopened(directory, manifest, error) from None
    return GraphWhisper(graphs, tokens, shapes, max_batch=max_batch)


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
