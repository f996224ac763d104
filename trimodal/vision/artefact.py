"""Reads a built classifier's directory: its manifest, the input that it expects, its labels.

All steps read the same artefact, so that they cannot disagree.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from trimodal.errors import ArtefactError
from trimodal.manifest import MANIFEST, Manifest, read_manifest

LABELS = "labels.json"
Side = Annotated[int, Field(ge=1, le=4096)]
Channels = tuple[float, float, float]


class InputSpec(BaseModel):
    """How an image becomes the classifier's input.

    The built graph takes uint8 pixels and applies mean and std itself, (value / 255 − mean) / std; here they
    say what it does.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    height: Side
    width: Side
    resize: Literal["exact", "crop", "exact-crop"] = Field(
        "crop",
        description="exact: to height × width; crop: shorter side to resize_to, then the centre; "
        "exact-crop: both sides to resize_to, then the centre",
    )
    resize_to: Side | None = Field(None, description="pixels of the shorter side before the crop")
    crop_offset: Literal["round", "floor"] = Field(
        "round", description="where the centre begins: round as torchvision, floor as transformers"
    )
    filter: Literal["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"] = "bilinear"
    mean: Channels = (0.485, 0.456, 0.406)
    std: Channels = (0.229, 0.224, 0.225)

    @model_validator(mode="after")
    def _agree(self) -> InputSpec:
        if min(self.std) <= 0:
            raise ValueError("std must be above 0")
        if self.resize != "exact" and self.shorter < max(self.height, self.width):
            raise ValueError("resize_to must be at least height and width")
        return self

    @property
    def shorter(self) -> int:
        """Pixels of the shorter side before the crop."""
        return self.resize_to or max(self.height, self.width)


@dataclass(frozen=True)
class ClassifierArtefact:
    """What a directory with a built classifier says of itself."""

    directory: Path
    manifest: Manifest
    input: InputSpec
    labels: tuple[str, ...]


def read_classifier(directory: Path, *, runtime: str | None = None) -> ClassifierArtefact:
    """Reads the classifier in `directory`, whatever runtime it is for unless `runtime` asks for one.

    Raises ArtefactError: missing, damaged, for another runtime, or with other labels.
    """
    manifest = read_manifest(directory, task="vision", runtime=runtime)
    try:
        spec = InputSpec.model_validate(manifest.extra.get("input"))
    except ValidationError as error:
        field = ".".join(["extra.input", *map(str, error.errors()[0]["loc"])])
        raise _damaged(directory, manifest, field) from None
    try:
        labels = json.loads((directory / LABELS).read_bytes())
    except (OSError, ValueError):
        raise _damaged(directory, manifest, LABELS) from None
    classes = manifest.shapes.get("classes")
    if not isinstance(labels, list) or len(labels) != classes or not all(isinstance(x, str) for x in labels):
        raise _damaged(directory, manifest, f"{LABELS}: {classes} strings wanted")
    return ClassifierArtefact(directory, manifest, spec, tuple(labels))


def _damaged(directory: Path, manifest: Manifest, what: str) -> ArtefactError:
    return ArtefactError(f"{directory / MANIFEST} is damaged ({what}): build again with: {manifest.command}")
