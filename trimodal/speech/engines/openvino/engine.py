"""Opens Whisper's decoder in OpenVINO beside CTranslate2's, of the same artefact."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from trimodal.manifest import Manifest
from trimodal.speech.engines.graphs.model import GraphWhisper
from trimodal.speech.engines.graphs.rows import Floats, Rules
from trimodal.speech.engines.openvino.loop import OpenVINOGraphs
from trimodal.speech.settings import RecogniseSettings
from trimodal.speech.whisper.artefact import SpeechShapes
from trimodal.speech.whisper.features import Features
from trimodal.speech.whisper.tokens import WhisperTokens
from trimodal.speech.whisper.weights import ModelFile


def open_decoder(
    directory: Path,
    manifest: Manifest,
    weights: ModelFile,
    tokens: WhisperTokens,
    shapes: SpeechShapes,
    settings: RecogniseSettings,
    encode: Callable[[Features], Floats],
) -> GraphWhisper[OpenVINOGraphs]:
    """What recognises windows by its own decoder, behind an encoder.

    Raises: OSError, ValueError, KeyError: config.json or weights are not those of a Whisper.
    """
    config = json.loads((directory / "config.json").read_bytes())
    rules = Rules(
        end=tokens.end,
        never=[*(config.get("suppress_ids") or ()), *tokens.never_made()],
        not_first=config.get("suppress_ids_begin") or (),
        positions=shapes.positions,
    )
    threads, precision = settings.threads, manifest.precision
    graphs = OpenVINOGraphs(
        encode, weights, rules, config.get("alignment_heads") or (), threads=threads, precision=precision
    )
    return GraphWhisper(graphs, tokens, shapes, max_batch=settings.max_batch_windows)
