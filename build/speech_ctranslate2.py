"""Builds Whisper models for CTranslate2, faster-whisper's runtime: checkpoint → artefact directory.

    python build/speech_ctranslate2.py openai/whisper-base --precision int8

Any Whisper goes in: tiny to large-v3-turbo, the distilled ones, fine-tunes; as a Hugging Face checkpoint,
as OpenAI's .pt file, or converted for CTranslate2 already. Every artefact is compared on the same speech
before it replaces an older one, with torch, or, where it was converted already, with faster-whisper.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from enum import Enum
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import typer
from steps.artefact import origin, refuse_below, targets, tell_built, tell_check
from steps.speech import build
from steps.speech.audio import SAMPLES, Recording, read_recordings
from steps.speech.check import MIN_AGREEMENT, compare, compare_words, judge
from steps.speech.checkpoint import Checkpoint, parse_contexts, parse_padding
from steps.speech.converted import (
    ConvertedCheckpoint,
    compare_with_faster_whisper,
    hear_with_faster_whisper,
    is_converted,
)
from steps.speech.openai import resolve_whisper
from steps.speech.weights import write_int8

from trimodal.build_support import operator_errors, progress
from trimodal.errors import ArtefactError
from trimodal.manifest import Manifest, atomic_directory, write_manifest
from trimodal.speech.engines.ctranslate2 import CTranslate2Whisper, open_engine
from trimodal.speech.settings import RecogniseSettings
from trimodal.speech.values import MAX_WINDOW_S
from trimodal.speech.whisper.weights import WEIGHTS


class Precision(str, Enum):
    int8 = "int8"
    float32 = "float32"
    float16 = "float16"
    int8_float16 = "int8_float16"


def main(
    source: build.Source,
    precision: list[Precision] = typer.Option(
        ["int8"], help="of the weights; repeat it to build several; float16 and int8_float16 are for GPUs"
    ),
    name: build.Name = "ctranslate2-{precision}",
    out: build.Out = "",
    contexts: build.Contexts = "15,30",
    padding: build.Padding = "silence",
    audio: build.Audio = SAMPLES,
    language: build.Language = "",
    min_agreement: build.MinAgreement = None,
) -> None:
    """Build SOURCE for CTranslate2, compare it with torch, and put it in place."""
    with operator_errors():
        directory = resolve_whisper(source)
        if is_converted(directory):
            converted = ConvertedCheckpoint(directory, source, parse_padding(padding))
            contexts_s = parse_contexts(contexts, MAX_WINDOW_S)
            if language and language not in converted.languages:
                raise ArtefactError(f"{source} does not know the language {language!r}")
            recordings = read_recordings(audio, contexts_s[-1])
            places = targets(build.MODEL, [each.value for each in precision], name, out, directory)
            for each, place in places.items():
                with described(converted, source, each, contexts_s, place) as (manifest, work):
                    take(converted, manifest, work, recordings, language)
                    tell_check(manifest, place.name, min_agreement, MIN_AGREEMENT, "faster-whisper")
                    refuse_below(manifest, "faster-whisper", "word")
            return
        made = build.prepare(source, precision, name, out, contexts, padding, audio, language)
        for each, place in made.targets.items():
            with described(made.checkpoint, source, each, made.contexts_s, place) as (manifest, work):
                make(made, manifest, work)
                judge(manifest, min_agreement, place.name)


@contextmanager
def described(
    checkpoint: Checkpoint | ConvertedCheckpoint,
    source: str,
    precision: str,
    contexts_s: list[float],
    place: Path,
) -> Iterator[tuple[Manifest, Path]]:
    """A manifest, and a directory that replaces `place` unless the block raises."""
    manifest = Manifest(
        task="speech",
        runtime="ctranslate2",
        runtime_version=version("ctranslate2"),
        precision=precision,
        **origin(checkpoint.directory, source, "speech_ctranslate2"),
        shapes=checkpoint.shapes(contexts_s),
        extra=checkpoint.described(),
    )
    with atomic_directory(place) as work:
        yield manifest, work
        write_manifest(work, manifest)
    tell_built(place)


def take(
    converted: ConvertedCheckpoint, manifest: Manifest, work: Path, recordings: list[Recording], language: str
) -> None:
    """Copies a Whisper that is converted already into `work`, and compares it with faster-whisper."""
    converted.copy(work)
    write_manifest(work, manifest)  # The serving engine reads it.
    spoken = language or (converted.languages[0] if len(converted.languages) == 1 else "")
    expected = hear_with_faster_whisper(work, recordings, spoken)
    if manifest.precision.startswith("int8"):
        write_int8(work / WEIGHTS)
    engine = open_engine(work, serving_settings(work))
    manifest.check = compare_with_faster_whisper(expected, engine, recordings, spoken)


def make(made: build.Prepared, manifest: Manifest, work: Path) -> None:
    """Converts a checkpoint into `work`, and compares it with torch."""
    checkpoint = made.checkpoint
    with progress(f"Writing {manifest.precision}"):
        convert(checkpoint, work, manifest.precision)
        checkpoint.write_files(work)
    write_manifest(work, manifest)  # The serving engine reads it.
    engine = open_engine(work, serving_settings(work))
    manifest.check = compare(checkpoint, made.heard, *runtime(engine, work, checkpoint))
    manifest.check |= compare_words(made.heard, engine, random_weights=checkpoint.random_weights)


def serving_settings(directory: Path) -> RecogniseSettings:
    """As a server has them, on as many threads as torch takes."""
    import torch

    return RecogniseSettings.model_validate(
        {"artefact": str(directory), "intra_op_threads": torch.get_num_threads()}
    )


def convert(checkpoint: Checkpoint, directory: Path, precision: str) -> None:
    """Writes model.bin, config.json and vocabulary.json. Raises: ArtefactError: a vocabulary misleads."""
    import torch
    from ctranslate2.converters.converter import Converter
    from ctranslate2.converters.transformers import WhisperLoader

    class Loaded(Converter):  # type: ignore[misc]  # CTranslate2 declares no types.
        def _load(self) -> Any:
            model = deepcopy(checkpoint.model)  # The converter quantises some weights in place.
            generation: Any = model.generation_config  # Takes names of its own beside the declared ones.
            never, not_first = checkpoint.suppressed()  # Lists, also where a fine-tune has null.
            generation.suppress_tokens, generation.begin_suppress_tokens = never, not_first
            generation.alignment_heads = checkpoint.alignment_heads
            with torch.no_grad():
                return WhisperLoader()(model, checkpoint.tokenizer)

    # CTranslate2 knows a multilingual Whisper by the empty token that only its vocabulary has.
    if checkpoint.multilingual != ("" in checkpoint.tokenizer.get_vocab()):
        raise ArtefactError(
            "CTranslate2 takes a vocabulary for multilingual by its empty token (id 50256), and this "
            f"{'multilingual one lacks' if checkpoint.multilingual else 'English-only one has'} it"
        )
    Loaded().convert(str(directory), quantization=precision, force=True)


def runtime(engine: CTranslate2Whisper, directory: Path, checkpoint: Checkpoint) -> tuple[Any, Any]:
    """The serving engine's encoder, and the built model's greedy decoder without that engine's own limits."""
    import ctranslate2
    import torch

    try:
        model = ctranslate2.models.Whisper(
            str(directory), device="cpu", intra_threads=torch.get_num_threads()
        )
    except (RuntimeError, ValueError) as error:
        raise ArtefactError(f"CTranslate2 does not take this model: {str(error)[:200]}") from None
    never, _ = checkpoint.suppressed()

    def encode(features: Any) -> Any:
        encoded = engine.encode(features).to_device(ctranslate2.Device.cpu)
        return np.array(encoded.to(ctranslate2.DataType.float32), np.float32)

    def write(features: Any, prompt: list[int]) -> list[list[int]]:
        results = model.generate(
            engine.encode(features), [prompt] * len(features), beam_size=1, suppress_tokens=never
        )
        return [list(result.sequences_ids[0]) for result in results]

    return encode, write


if __name__ == "__main__":
    typer.run(main)
