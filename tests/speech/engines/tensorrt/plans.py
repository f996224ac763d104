"""Whisper's graphs as plans of the double in on_onnx.py: profiles, files, manifest; and its GPU."""

from __future__ import annotations

import shutil

import onnx

from tests.speech.engines.tensorrt.on_onnx import write_plan
from tests.speech.whisper.checkpoints import CONTEXTS_S
from trimodal.manifest import GpuTarget, InputRange, read_manifest, write_manifest
from trimodal.runtimes.gpu_device import Gpu

H200 = Gpu(index=0, name="NVIDIA H200", sm="9.0", memory=1 << 37, free=1 << 37, driver="580.1")
LAYERS, HEADS, HEAD, MEL, MAX_BATCH, PLACES = 2, 2, 16, 80, 4, 448
FRAMES = [round(context_s * 100) for context_s in CONTEXTS_S]


def decoder_profile(tokens, past):
    """Ranges, each as (smallest, usual, largest), of new tokens and of those before."""
    positions = FRAMES[0] // 2, FRAMES[-1] // 2, FRAMES[-1] // 2
    batches = 1, MAX_BATCH, MAX_BATCH
    profile = {"tokens": tuple(zip(batches, tokens, strict=True))}
    for layer in range(LAYERS):
        sizes = list(zip(batches, positions, strict=True))
        profile[f"cross_key_{layer}"] = tuple((rows, HEADS, HEAD, size) for rows, size in sizes)
        profile[f"cross_value_{layer}"] = tuple((rows, HEADS, size, HEAD) for rows, size in sizes)
        before = tuple((rows, HEADS, size, HEAD) for rows, size in zip(batches, past, strict=True))
        profile |= {f"past_key_{layer}": before, f"past_value_{layer}": before}
    return profile


ENCODER = [{"features": ((1, MEL, frames), *[(MAX_BATCH, MEL, frames)] * 2)} for frames in FRAMES]
DECODER = [decoder_profile((1, 1, 1), (1, 16, PLACES - 1)), decoder_profile((1, 4, 228), (0, 4, 228))]


def write_plans(graphs, directory, version):
    """In `directory`: a profile for each context, one for single tokens, one for prompts."""
    encoder = onnx.load(graphs / "encoder.onnx")
    (hidden,) = [output for output in encoder.graph.output if output.name == "hidden"]
    encoder.graph.output.remove(hidden)  # As the build does: nothing reads it.
    onnx.save(encoder, directory / "encoder.onnx")
    write_plan(directory / "encoder.plan", directory / "encoder.onnx", ENCODER)
    write_plan(directory / "decoder.plan", graphs / "decoder.onnx", DECODER)
    shutil.copyfile(graphs / "tokenizer.json", directory / "tokenizer.json")
    manifest = read_manifest(graphs, task="speech", runtime="onnxruntime")
    manifest.runtime, manifest.runtime_version = "tensorrt", version
    manifest.gpu = GpuTarget(sm="9.0", name="NVIDIA H200")
    manifest.profiles = [
        {
            name: InputRange(min=low, opt=usual, max=high)
            for name, (low, usual, high) in {
                "encoder:features": encoder["features"],
                "decoder:tokens": decoder["tokens"],
            }.items()
        }
        for encoder in ENCODER
        for decoder in DECODER
    ]
    write_manifest(directory, manifest)
    return directory
