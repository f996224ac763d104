"""Settings of the judge, read from its config.pbtxt `parameters`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from trimodal.runtimes.onnx_session import Device
from trimodal.settings import EngineSettings


class JudgeSettings(EngineSettings):
    """judge: which artefact, opened by which engine, and what a question may be."""

    artefact: str = Field(min_length=1, description="artefact directory, absolute or from the version's")
    engine: Literal["onnxruntime", "fake"] = "onnxruntime"
    device: Device = "cpu"
    checkpoint_sha256: str = Field("", description="of the checkpoint, or how it begins; empty: any")
    max_bytes: Annotated[int, Field(ge=1, description="of one question, in UTF-8")] = 8192
