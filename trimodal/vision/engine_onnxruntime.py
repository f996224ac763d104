"""Image classifier on ONNX Runtime's CPU provider: FP32 or INT8 (QDQ) `model.onnx`."""

from __future__ import annotations

from typing import Any

import numpy as np

from trimodal.errors import ArtefactError
from trimodal.vision.artefact import ClassifierArtefact
from trimodal.vision.engine import Logits, Pixels
from trimodal.vision.settings import ClassifySettings

MODEL = "model.onnx"


class OnnxRuntimeClassifier:
    """One session; calls may come from several threads."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def classify(self, pixels: Pixels) -> Logits:
        """Logits float32[B, C] of pixels uint8[B, 3, H, W]."""
        (logits,) = self._session.run(["logits"], {"pixels": np.ascontiguousarray(pixels)})
        return np.asarray(logits, dtype=np.float32)


def open_engine(artefact: ClassifierArtefact, settings: ClassifySettings) -> OnnxRuntimeClassifier:
    """A session on `model.onnx` in the artefact's directory.

    Raises:
        ArtefactError: ONNX Runtime cannot load the file.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = settings.threads
    options.inter_op_num_threads = 1
    # Triton's own threads, the decoder and the client share these cores: a thread that spins takes them away.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    path = artefact.directory / MODEL
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime has no common base for its errors.
        raise ArtefactError(
            f"ONNX Runtime {onnxruntime.__version__} refuses {path} ({type(error).__name__}): "
            f"build again with: {artefact.manifest.command}"
        ) from None
    return OnnxRuntimeClassifier(session)
