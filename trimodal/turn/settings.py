"""Settings of the model of turns, read from its config.pbtxt `parameters`."""

from __future__ import annotations

from trimodal.runtimes.onnx_session import OnnxSettings


class TurnSettings(OnnxSettings):
    """turn: which artefact, opened by which engine."""
