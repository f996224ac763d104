"""Settings of the embedding model, read from its config.pbtxt `parameters`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from trimodal.runtimes.onnx_session import OnnxSettings


class EmbeddingSettings(OnnxSettings):
    """embedding: which artefact, opened by which engine, and what a text may be."""

    max_bytes: Annotated[int, Field(ge=1, description="of one text, in UTF-8")] = 32768
