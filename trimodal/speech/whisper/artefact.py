"""Reads what engines need from a built Whisper's manifest: contexts, languages, features, banned tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from trimodal.audio.values import SAMPLE_RATE
from trimodal.errors import ArtefactError
from trimodal.manifest import MANIFEST, Manifest, read_manifest
from trimodal.runtimes.gpu_fit import check_checkpoint, check_precision
from trimodal.runtimes.onnx_session import first_line
from trimodal.speech.settings import RecogniseSettings
from trimodal.speech.values import MAX_WINDOW_S
from trimodal.speech.whisper.features import Padding
from trimodal.speech.whisper.tokens import WhisperTokens

Part = TypeVar("Part", bound=BaseModel)


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


def open_artefact(
    directory: Path, settings: RecogniseSettings, *, runtime: str
) -> tuple[Manifest, SpeechShapes]:
    """The manifest of an artefact for `runtime`, checked against the settings, and its shapes.

    Raises ArtefactError: missing, damaged, or of another runtime, checkpoint or precision.
    """
    manifest = read_manifest(directory, task="speech", runtime=runtime)
    check_precision(directory, manifest, settings.precision)
    check_checkpoint(directory, manifest, settings.checkpoint_sha256)
    return manifest, read_shapes(directory, manifest)


def read_shapes(directory: Path, manifest: Manifest) -> SpeechShapes:
    """The shapes. Raises: ArtefactError when one is missing or makes no sense; names it."""
    return _validated(SpeechShapes, directory, manifest, "shapes")


def read_spec(directory: Path, manifest: Manifest) -> GenerationSpec:
    """Which tokens may be written. Raises: ArtefactError when the manifest does not say; names it."""
    return _validated(GenerationSpec, directory, manifest, "extra")


def read_tokens(
    directory: Path, manifest: Manifest, shapes: SpeechShapes, *, multilingual: bool
) -> WhisperTokens:
    """The vocabulary. Raises: ArtefactError: damaged, or without what a Whisper writes."""
    try:
        return WhisperTokens(directory, shapes.languages, multilingual=multilingual)
    except Exception as error:  # `tokenizers` raises plain Exception.
        raise unopened(directory, manifest, error) from None


def unopened(directory: Path, manifest: Manifest, error: Exception) -> ArtefactError:
    """What an operator is told of a model that does not open: the reason in a line, and how to build it."""
    told = f"the Whisper in {directory} cannot be opened ({first_line(error)})"
    return ArtefactError(f"{told}: build again with: {manifest.command}")


def _validated(model: type[Part], directory: Path, manifest: Manifest, field: str) -> Part:
    try:
        return model.model_validate(getattr(manifest, field))
    except ValidationError as error:
        names = ", ".join(f"{field}.{problem['loc'][0]}" for problem in error.errors())
    raise ArtefactError(f"{directory / MANIFEST} is damaged ({names}): build again with: {manifest.command}")
