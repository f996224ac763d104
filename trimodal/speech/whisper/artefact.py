"""Reads what engines need from a built Whisper's manifest: contexts, languages, features, banned tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from trimodal.audio.values import SAMPLE_RATE
from trimodal.errors import ArtefactError
from trimodal.manifest import MANIFEST, Manifest
from trimodal.speech.values import MAX_WINDOW_S
from trimodal.speech.whisper.features import Padding
from trimodal.speech.whisper.tokens import WhisperTokens


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


class GenerationSpec(BaseModel):
    """What decoding needs beside the weights: `extra` of the manifest of graphs that this package decodes."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    multilingual: bool
    suppressed: tuple[int, ...]
    suppressed_first: tuple[int, ...]


def read_shapes(directory: Path, manifest: Manifest) -> SpeechShapes:
    """The shapes of the artefact in `directory`.

    Raises:
        ArtefactError: one is missing or makes no sense; names it.
    """
    try:
        return SpeechShapes.model_validate(manifest.shapes)
    except ValidationError as error:
        raise _damaged(directory, manifest, "shapes", error) from None


def read_spec(directory: Path, manifest: Manifest) -> GenerationSpec:
    """Which tokens may be written.

    Raises:
        ArtefactError: the manifest does not say; names what is missing.
    """
    try:
        return GenerationSpec.model_validate(manifest.extra)
    except ValidationError as error:
        raise _damaged(directory, manifest, "extra", error) from None


def read_tokens(
    directory: Path, manifest: Manifest, shapes: SpeechShapes, spec: GenerationSpec
) -> WhisperTokens:
    """The vocabulary in `tokenizer.json`.

    Raises:
        ArtefactError: it is missing or damaged, or lacks what a Whisper writes.
    """
    try:
        return WhisperTokens(directory, shapes.languages, multilingual=spec.multilingual)
    except Exception as error:  # `tokenizers` raises plain Exception.
        raise unopened(directory, manifest, error) from None


def unopened(directory: Path, manifest: Manifest, error: Exception) -> ArtefactError:
    """What an operator is told of a model that does not open: the reason in a line, and how to build it."""
    reason = str(error).strip().split("\n")[0][:200]
    return ArtefactError(
        f"the Whisper in {directory} cannot be opened ({reason}): build again with: {manifest.command}"
    )


def _damaged(directory: Path, manifest: Manifest, field: str, error: ValidationError) -> ArtefactError:
    names = ", ".join(f"{field}.{problem['loc'][0]}" for problem in error.errors())
    return ArtefactError(f"{directory / MANIFEST} is damaged ({names}): build again with: {manifest.command}")
