"""Does what builds of a Whisper checkpoint have in common: options, and torch's results."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer
from steps.artefact import check_weights_fit, targets
from steps.speech.audio import read_recordings
from steps.speech.check import Reference, reference
from steps.speech.checkpoint import Checkpoint, load, parse_contexts, parse_padding
from steps.speech.converted import is_converted
from steps.speech.openai import resolve_whisper

from trimodal.build_support import progress
from trimodal.errors import ArtefactError

MODEL = "speech_recognize"
Source = Annotated[
    str,
    typer.Argument(
        help="Whisper: a directory (Hugging Face's or CTranslate2's), OpenAI's .pt file, or a hub id"
    ),
]
Name = Annotated[str, typer.Option(help=f"directory under model_repository/{MODEL}/1")]
Out = Annotated[str, typer.Option(help="directory of the artefact, in place of --name")]
Contexts = Annotated[
    str,
    typer.Option(
        help="encoder lengths in seconds: a window is heard in the shortest that is a fifth longer. "
        "A Whisper was trained on 30; shorter is cheaper, and much shorter makes it loop"
    ),
]
Padding = Annotated[
    str,
    typer.Option(
        help="what follows shorter audio: zeros in the features, as faster-whisper has it, or silence, as "
        "openai-whisper has it"
    ),
]
Audio = Annotated[
    Path,
    typer.Option(help="check on this folder of wav, flac and ogg files (samples.json: their texts)"),
]
Language = Annotated[
    str, typer.Option(help="of that audio, as an ISO 639-1 code; the model's first if not told")
]
MinAgreement = Annotated[
    float | None,
    typer.Option(
        min=0, max=1, help="refuse a lower token agreement with torch (default 0.9; 0 for random weights)"
    ),
]


@dataclass(frozen=True)
class Prepared:
    """A checkpoint, what torch hears with it, and what its artefacts are: precision → directory."""

    targets: dict[str, Path]
    checkpoint: Checkpoint
    source: str
    contexts_s: list[float]
    heard: Reference


def prepare(
    source: str, precisions: Iterable[Enum], name: str, out: str, contexts: str, padding: str, audio: Path,
    language: str, beside: float = 0.0,
) -> Prepared:  # fmt: skip
    """Takes the options that all scripts have, loads the checkpoint and decodes the audio with torch.

    `beside`: bytes of a weight that are written beside the artefacts meanwhile.
    """
    places = targets(MODEL, [each.value for each in precisions], name, out)
    directory = resolve_whisper(source)
    if is_converted(directory):
        raise ArtefactError(
            f"{source} is converted for CTranslate2 already (build/speech_ctranslate2.py takes it as it is): "
            "here name the checkpoint that it was made of"
        )
    with progress("Loading torch and the checkpoint"):
        checkpoint = load(directory, source, parse_padding(padding))
    check_weights_fit(checkpoint.model, places, beside)
    contexts_s = parse_contexts(contexts, checkpoint.longest_s)
    heard = reference(checkpoint, read_recordings(audio, contexts_s[-1]), contexts_s, language)
    checkpoint.tell()
    return Prepared(places, checkpoint, source, contexts_s, heard)
