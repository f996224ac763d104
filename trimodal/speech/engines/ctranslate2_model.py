"""Opens a Whisper in CTranslate2: compute type, number of threads, and cuBLAS on GPUs."""

from __future__ import annotations

import contextlib
import ctypes
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from trimodal.errors import ArtefactError
from trimodal.manifest import Manifest
from trimodal.speech.settings import RecogniseSettings
from trimodal.speech.whisper.artefact import unopened

# Precision of the artefact → how CTranslate2 computes with it on (processor, GPU).
COMPUTE_TYPES = {
    "int8": ("int8", "int8_float16"),
    "int8_float16": ("int8", "int8_float16"),
    "float16": ("float32", "float16"),
    "float32": ("float32", "float32"),
}
WEIGHTS = "model.bin"
# What the wheel of CTranslate2 looks up by name on a GPU: it is built for CUDA 12, whatever the driver has.
CUBLAS = ("libcublasLt.so.12", "libcublas.so.12")
# Below it a second thread made each run slower (2.6 MB: 8 windows in 63 ms on one thread, 76 on two).
TINY_BYTES = 20_000_000


def threads(directory: Path, settings: RecogniseSettings) -> int:
    """As set. Left open, every core; but one for a tiny model, whose threads would only wait."""
    weights = directory / WEIGHTS
    tiny = weights.is_file() and weights.stat().st_size < TINY_BYTES
    return 1 if tiny and not settings.intra_op_threads else settings.threads


def compute_type(directory: Path, manifest: Manifest, device: str) -> str:
    """How the artefact is computed with on `device`. Raises ArtefactError: its precision is not known."""
    if manifest.precision not in COMPUTE_TYPES:
        raise ArtefactError(
            f"{directory} has precision {manifest.precision} (known: {', '.join(COMPUTE_TYPES)})"
        )
    return COMPUTE_TYPES[manifest.precision][device == "cuda"]


def open_model(directory: Path, manifest: Manifest, settings: RecogniseSettings) -> Any:
    """A `ctranslate2.models.Whisper`. Raises ArtefactError: refused, or of unknown precision."""
    computed = compute_type(directory, manifest, settings.device)
    # Triton's own threads, other engines and clients share these cores: a thread that waits spins for a
    # fraction of a millisecond, which makes a run some per cent quicker, and then sleeps. OpenMP reads
    # it when CTranslate2 is loaded.
    os.environ.setdefault("GOMP_SPINCOUNT", "100000")
    if settings.device == "cuda":
        preload_cublas()
    import ctranslate2

    try:
        return ctranslate2.models.Whisper(
            str(directory),
            device=settings.device,
            compute_type=computed,
            intra_threads=threads(directory, settings),
            inter_threads=1,
        )
    except Exception as error:  # It raises RuntimeError, ValueError and others.
        raise unopened(directory, manifest, error) from None


def preload_cublas() -> None:
    """Loads cuBLAS 12 out of the wheel nvidia-cublas-cu12, where it is installed.

    The loader does not look into site-packages; a library that is already in the process it finds by name.
    Without the wheel the system's is left to be found, and CTranslate2 itself says what it misses.
    """
    spec = find_spec("nvidia")
    for place in (spec.submodule_search_locations or []) if spec else []:
        for name in CUBLAS:
            with contextlib.suppress(OSError):
                ctypes.CDLL(str(Path(place) / "cublas" / "lib" / name), mode=ctypes.RTLD_GLOBAL)
