"""Settings of the vision models, read from their config.pbtxt `parameters`.

What the classifier expects of an image stands in its artefact (`artefact.py`).
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from trimodal.runtimes.onnx_session import OnnxSettings
from trimodal.settings import Settings

TopK = Annotated[int, Field(ge=1, description="labels in an answer; fewer when there are fewer classes")]


class Limits(Settings):
    """Bytes, pixels and sides (in pixels) that one image may have."""

    max_bytes: Annotated[int, Field(ge=64)] = 24 << 20
    max_pixels: Annotated[int, Field(ge=1)] = 50_000_000
    max_side: Annotated[int, Field(ge=1, le=65535)] = 16384


class Decoding(Limits):
    """Limits of one image, and the threads that decode a batch."""

    decode_threads: Annotated[int, Field(ge=1, le=256, description="images decoded at once")] = 2
    shrink_on_load: Annotated[
        bool, Field(description="large JPEGs decoded at 1/2 to 1/8: quicker, not quite torchvision's pixels")
    ] = False


class PreprocessSettings(Decoding):
    """vision_preprocess: what is decoded, and for which classifier."""

    classifier: str = Field(min_length=1, description="artefact directory, absolute or from the version's")


class VisionSettings(OnnxSettings, Decoding):
    """vision: which artefact, opened by which engine, on how many threads; decoding; labels in an answer."""

    warm_up_batch_sizes: tuple[Annotated[int, Field(ge=1, le=1024)], ...] = (1,)
    fake_delay_ms: Annotated[float, Field(ge=0, le=10_000, description="fake engine: time a batch")] = 0
    top_k: TopK = 5

    @field_validator("warm_up_batch_sizes", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return [part for part in value.split(",") if part.strip()] if isinstance(value, str) else value


class RankSettings(Settings):
    """vision_rank: how many labels an answer holds."""

    classifier: str = Field(min_length=1, description="artefact directory, absolute or from the version's")
    top_k: TopK = 5
