"""Whisper on ONNX Runtime, on processor or GPU: opens the two graphs of build/speech_onnx.py.

What decodes is in graph_whisper; FP16 and FP32 graphs run on either device, INT8 ones on the processor.
"""

from __future__ import annotations

from pathlib import Path

from trimodal.errors import SettingsError
from trimodal.gpu.fit import check_checkpoint, check_precision
from trimodal.manifest import read_manifest
from trimodal.speech.artefact import read_shapes, read_spec, read_tokens
from trimodal.speech.graph_whisper import GraphWhisper
from trimodal.speech.onnx_graphs import WhisperGraphs
from trimodal.speech.settings import RecognizeSettings


def open_engine(directory: Path, settings: RecognizeSettings) -> GraphWhisper:
    """The graphs in `directory` with the `tokenizer.json` beside them.

    Raises:
        ArtefactError: missing, damaged, of another checkpoint or precision, or refused by the runtime.
        ServerError: the runtime has no provider for the device.
        SettingsError: more than one beam.
    """
    if settings.beam_size != 1:
        raise SettingsError("parameter 'beam_size': the engine onnxruntime decodes greedily, 1 only")
    manifest = read_manifest(directory, task="speech", runtime="onnxruntime")
    check_precision(directory, manifest, settings.precision)
    check_checkpoint(directory, manifest, settings.checkpoint_sha256)
    shapes = read_shapes(directory, manifest)
    spec = read_spec(directory, manifest)
    tokens = read_tokens(directory, manifest, shapes, spec)
    graphs = WhisperGraphs(
        directory, device=settings.device, threads=settings.threads, command=manifest.command
    )
    return GraphWhisper(graphs, tokens, shapes, spec, max_batch=settings.max_batch_windows)
