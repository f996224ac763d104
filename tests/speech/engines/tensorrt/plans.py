"""Whisper's static graphs as plans of the double in on_onnx.py: profiles, files, manifest; and its GPU."""

from __future__ import annotations

import importlib
import os
import shutil
from pathlib import Path
from unittest import mock

from tests.builders.scripts import importable
from tests.speech.engines.tensorrt.on_onnx import write_plan
from tests.speech.whisper.checkpoints import CONTEXTS_S
from trimodal.manifest import GpuTarget, Manifest, read_manifest, write_manifest
from trimodal.runtimes.gpu_device import Gpu
from trimodal.speech.whisper.artefact import SpeechShapes

H200 = Gpu(index=0, name="NVIDIA H200", sm="9.0", memory=1 << 37, free=1 << 37, driver="580.1")
LAYERS, HEADS, HEAD, MEL, MAX_BATCH, PLACES = 2, 2, 16, 80, 4, 448
FRAMES = [round(context_s * 100) for context_s in CONTEXTS_S]
BUCKETS = (1, 2, 4)  # each a profile of the decoder; the one after them is of openings


def write_static(checkpoint_directory: Path, directory: Path) -> Path:
    """Plans of the graphs that build/speech_tensorrt.py exports, and what lies beside them."""
    from tests.speech.engines.tensorrt.torch_forward import load  # and torch with it

    checkpoint = load(checkpoint_directory)
    described = checkpoint.shapes(CONTEXTS_S)
    shapes = SpeechShapes.model_validate(described)
    with mock.patch.dict(os.environ), importable():
        export = importlib.import_module("steps.speech.export").export
        profiles = importlib.import_module("steps.speech.profiles")
        graphs = directory.with_name(f"{directory.name}-graphs")
        graphs.mkdir()
        export(checkpoint.network(), graphs, "fp32")
        batch = 1, 2, MAX_BATCH
        for name, ranges in (
            ("encoder", profiles.encoder_profiles(graphs / "encoder.onnx", shapes, batch)),
            ("decoder", profiles.decoder_profiles(graphs / "decoder.onnx", shapes, batch)),
        ):
            plain = [{key: (one.min, one.opt, one.max) for key, one in each.items()} for each in ranges]
            write_plan(directory / f"{name}.plan", graphs / f"{name}.onnx", plain)
    shutil.copyfile(checkpoint_directory / "tokenizer.json", directory / "tokenizer.json")
    manifest = Manifest(
        task="speech", runtime="tensorrt", runtime_version="x", precision="fp32", source="random",
        source_sha256="0", command="make it again", shapes=described | {"max_batch_size": MAX_BATCH},
        extra={"multilingual": True, "suppressed": [], "suppressed_first": checkpoint.suppressed()[1]},
        gpu=GpuTarget(sm="9.0", name="NVIDIA H200"),
    )  # fmt: skip
    write_manifest(directory, manifest)
    return directory


def write_plans(static: Path, directory: Path, version: str) -> Path:
    """A copy of them for a TensorRT of this version."""
    for name in ("encoder.plan", "decoder.plan", "tokenizer.json", "manifest.json"):
        shutil.copyfile(static / name, directory / name)
    manifest = read_manifest(directory, task="speech", runtime="tensorrt")
    manifest.runtime_version = version
    write_manifest(directory, manifest)
    return directory
