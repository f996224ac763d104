"""Serves text, images and live audio on NVIDIA Triton.

Nothing in this package imports Triton's Python backend: the glue in
model_repository/*/1/model.py does, and hands plain values over.
"""

import os
import sys

__version__ = "0.1.0"

# Libraries that report their use to those who made them, unless they are told not to before they are loaded.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # ONNX Runtime since 1.31: Microsoft's 1DS
os.environ.setdefault("DO_NOT_TRACK", "1")  # Hugging Face's hub, vLLM, TensorRT-LLM
# OpenVINO's import and NNCF report to Google Analytics by this package (2025.2), which no variable switches
# off; without it both use stand-ins of their own.
sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
