"""Settings of the model of turns, read from its config.pbtxt `parameters`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from trimodal.runtimes.onnx_session import Device
from trimodal.settings import EngineSettings


class TurnSettings(EngineSettings):
    """turn: which artefact, opened by which engine."""

    artefact: str = Field(min_length=1, description="artefact directory, absolute or from the version's")
    engine: Literal["onnxruntime", "fake"] = "onnxruntime"
    device: Device = "cpu"
    checkpoint_sha256: str = Field("", description="of the checkpoint, or how it begins; empty: any")
