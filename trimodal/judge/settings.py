"""Settings of the judge, read from its config.pbtxt `parameters`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from trimodal.runtimes.onnx_session import OnnxSettings


class JudgeSettings(OnnxSettings):
    """judge: which artefact, opened by which engine, and what a question may be."""

    max_bytes: Annotated[int, Field(ge=1, description="of one question, in UTF-8")] = 8192
