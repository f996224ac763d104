"""Settings of the three vision models, read from their config.pbtxt `parameters`.

What the classifier expects of an image stands in its artefact (`artefact.py`).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from trimodal.runtimes.onnx_session import Device
from trimodal.settings import EngineSettings, Settings


class Limits(Settings):
    """Bytes, pixels and sides (in pixels) that one image may have."""

    max_bytes: Annotated[int, Field(ge=64)] = 16 << 20
    max_pixels: Annotated[int, Field(ge=1)] = 40_000_000
    max_side: Annotated[int, Field(ge=1, le=65535)] = 16384
    min_side: Annotated[int, Field(ge=1)] = 1


class PreprocessSettings(Limits):
    """vision_preprocess: limits of one image, and the threads that decode a batch."""

    classifier: str = Field(min_length=1, description="artefact directory, absolute or from the version's")
    threads: Annotated[int, Field(ge=1, le=256)] = 2


class ClassifySettings(EngineSettings):
    """vision_classify: which artefact, opened by which engine, on how many threads."""

    artefact: str = Field(min_length=1, description="artefact directory, absolute or from the version's")
    engine: Literal["onnxruntime", "fake"] = "onnxruntime"
    device: Device = "cpu"
    prefer_nhwc: Annotated[bool, Field(description="on CUDA: convolutions on channels-last tensors")] = False
    fuse_conv_bias: Annotated[bool, Field(description="on CUDA: convolution and bias in one kernel")] = False
    checkpoint_sha256: str = Field("", description="of the checkpoint, or how it begins; empty: any")
    warm_up_batch_sizes: tuple[Annotated[int, Field(ge=1, le=1024)], ...] = (1,)
    fake_delay_ms: Annotated[float, Field(ge=0, le=10_000, description="fake engine: time a batch")] = 0

    @field_validator("warm_up_batch_sizes", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return [part for part in value.split(",") if part.strip()] if isinstance(value, str) else value


class RankSettings(Settings):
    """vision_rank: how many labels an answer holds."""

    classifier: str = Field(min_length=1, description="artefact directory, absolute or from the version's")
    top_k: Annotated[int, Field(ge=1)] = 5
