"""Opens what OpenVINO runs of a Whisper of CTranslate2: its encoder, and a decoder for live windows."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from trimodal.errors import SettingsError
from trimodal.manifest import Manifest
from trimodal.runtimes.onnx_session import first_line
from trimodal.speech.engines.graphs.model import GraphWhisper
from trimodal.speech.engines.graphs.rows import Floats, Rules
from trimodal.speech.engines.openvino.encoder import Encoder, has_tiles
from trimodal.speech.settings import RecogniseSettings
from trimodal.speech.whisper.artefact import SpeechShapes, unopened
from trimodal.speech.whisper.features import Features
from trimodal.speech.whisper.tokens import WhisperTokens
from trimodal.speech.whisper.weights import WEIGHTS, ModelFile

if TYPE_CHECKING:
    from trimodal.speech.engines.openvino.loop import OpenVINOGraphs

logger = logging.getLogger(__name__)
Parts = tuple["Encoder | None", "GraphWhisper[OpenVINOGraphs] | None"]


def open_parts(
    directory: Path,
    manifest: Manifest,
    settings: RecogniseSettings,
    tokens: WhisperTokens,
    shapes: SpeechShapes,
    encode: Callable[[Features], Floats],
) -> Parts:
    """Encoder, and what recognises windows by its own decoder; None for CTranslate2's.

    `encode`: CTranslate2's own encoder, before that decoder.
    What "auto" cannot read is CTranslate2's, with a warning.
    Raises SettingsError: on a GPU, or more than one beam; ArtefactError: its files cannot be read.
    """
    for name in ("encoder", "decoder"):
        if getattr(settings, name) == "openvino" and settings.device != "cpu":
            raise SettingsError(f"parameter {name!r}: openvino computes on the processor, device cpu only")
    if settings.decoder == "openvino" and settings.beam_size != 1:
        raise SettingsError("parameter 'beam_size': the decoder openvino is greedy, 1 only")
    # What is in FP32 is to be exact: there is nothing that AMX would multiply.
    fits = has_tiles() and settings.device == "cpu" and manifest.precision.startswith("int8")
    encodes = settings.encoder == "openvino" or (settings.encoder == "auto" and fits)
    decodes = settings.decoder == "openvino"
    decodes |= settings.decoder == "auto" and fits and encodes and settings.beam_size == 1
    if not encodes and not decodes:
        return None, None
    threads, precision = settings.threads, manifest.precision
    try:
        # Not above: an installation for GPUs has no OpenVINO.
        from trimodal.speech.engines.openvino.loop import OpenVINOGraphs

        weights = ModelFile(directory / WEIGHTS)
        encoder = Encoder(weights, threads=threads, precision=precision) if encodes else None
        if not decodes:
            return encoder, None
        config = json.loads((directory / "config.json").read_bytes())
        rules = Rules(
            end=tokens.end,
            never=[*(config.get("suppress_ids") or ()), *tokens.never_made()],
            not_first=config.get("suppress_ids_begin") or (),
            positions=shapes.positions,
        )
        heads = config.get("alignment_heads") or ()
        encode = encoder.encode if encoder else encode
        graphs = OpenVINOGraphs(encode, weights, rules, heads, threads=threads, precision=precision)
    except (ImportError, OSError, ValueError, KeyError) as error:
        if "openvino" in (settings.encoder, settings.decoder):
            raise unopened(directory, manifest, error) from None
        logger.warning("%s: CTranslate2 runs it all, OpenVINO cannot (%s)", directory.name, first_line(error))
        return None, None
    return encoder, GraphWhisper(graphs, tokens, shapes, max_batch=settings.max_batch_windows)
