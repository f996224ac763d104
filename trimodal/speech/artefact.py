"""What a built Whisper's manifest says that every engine needs: contexts, languages, features.

The weights beside it are the engine's affair.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from trimodal.errors import ArtefactError
from trimodal.manifest import MANIFEST, Manifest
from trimodal.speech.features import Padding
from trimodal.speech.values import MAX_WINDOW_S, SAMPLE_RATE


class SpeechShapes(BaseModel):
    """`shapes` of a speech artefact's manifest.

    Attributes:
        contexts_s: encoder lengths in seconds, ascending, at most 30.
        languages: ISO 639-1 codes.
        padding: what follows a window that is shorter than its context, as the checkpoint was trained.
        positions: tokens that the decoder has room for, prompt included.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    contexts_s: Annotated[tuple[Annotated[float, Field(gt=0, le=MAX_WINDOW_S)], ...], Field(min_length=1)]
    languages: Annotated[tuple[str, ...], Field(min_length=1)]
    mel_bins: Annotated[int, Field(ge=1, le=256)]
    sample_rate: Annotated[int, Field(ge=SAMPLE_RATE, le=SAMPLE_RATE)] = SAMPLE_RATE
    padding: Padding = "silence"
    positions: Annotated[int, Field(ge=8)] = 448

    @field_validator("contexts_s")
    @classmethod
    def _ascending(cls, contexts_s: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(sorted(contexts_s))


def read_shapes(directory: Path, manifest: Manifest) -> SpeechShapes:
    """The shapes of the artefact in `directory`.

    Raises:
        ArtefactError: one is missing or makes no sense; names it.
    """
    try:
        return SpeechShapes.model_validate(manifest.shapes)
    except ValidationError as error:
        names = ", ".join(f"shapes.{problem['loc'][0]}" for problem in error.errors())
        raise ArtefactError(
            f"{directory / MANIFEST} is damaged ({names}): build again with: {manifest.command}"
        ) from None
