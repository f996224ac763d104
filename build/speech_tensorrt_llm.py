"""Builds Whisper for TensorRT-LLM's encoder-decoder runtime: checkpoint → engines beside our FP16 graphs.

    python build/speech_tensorrt_llm.py openai/whisper-large-v3-turbo --max-batch 8

The engines write the tokens; language, silence and word times come from the graphs of build/speech_onnx.py,
which it makes first. Compiled engines end with TensorRT-LLM 1.2, whose command trtllm-build this runs. An
alternative: measure it against build/speech_tensorrt.py on your GPU. Only FP16.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import typer
from speech_tensorrt import Precision, find_graphs, judge
from steps.speech.audio import DEMO_SAMPLES, read_recordings
from steps.speech.check import target
from steps.speech.checkpoint import load
from steps.speech.llm_weights import write_checkpoint
from steps.speech.plan_check import compare_words
from steps.speech.profiles import OPENING
from steps.tensorrt import plan

from trimodal.build_support import build_command, operator_errors, progress, report, resolve_checkpoint
from trimodal.errors import ArtefactError
from trimodal.manifest import MANIFEST, InputRange, Manifest, atomic_directory, read_manifest, write_manifest
from trimodal.speech.engines import onnxruntime
from trimodal.speech.engines import tensorrt_llm as engine_tensorrt_llm
from trimodal.speech.settings import RecognizeSettings
from trimodal.speech.whisper.artefact import SpeechShapes, read_shapes
from trimodal.speech.whisper.features import FRAMES_PER_S

LAST_RELEASE = "1.2"


def main(
    source: str = typer.Argument(..., help="checkpoint directory or hub id of a Whisper"),
    name: str = typer.Option("tensorrt-llm-fp16", help="directory under model_repository/speech_recognize/1"),
    out: str = typer.Option("", help="directory of the artefact, in place of --name"),
    max_batch: int = typer.Option(
        8, min=1, max=256, help="windows of one run; at least max_batch_windows of config.pbtxt"
    ),
    contexts: str = typer.Option("", help="encoder lengths, as build/speech_onnx.py"),
    audio: Path = typer.Option(DEMO_SAMPLES, help="check on this folder, as build/speech_onnx.py"),
    min_agreement: float = typer.Option(
        None, min=0, max=1, help="of words with the graphs' (default 0.95; 0 for random weights)"
    ),
    check: bool = typer.Option(True, help="--no-check builds without hearing the audio"),
) -> None:
    """Compile SOURCE for this GPU, compare its words with the graphs', and put it in place."""
    with operator_errors():
        version, gpu = library_version(), plan.gpu_target()
        place = target("fp16", name, out)
        directory = resolve_checkpoint(source)
        graphs = find_graphs(source, Precision.fp16, contexts, audio, place)
        made = read_manifest(graphs, task="speech", runtime="onnxruntime")
        shapes = read_shapes(graphs, made)
        print(f"{source} → {place}: TensorRT-LLM {version}, {gpu.name} (SM {gpu.sm})")
        with atomic_directory(place) as work:
            with tempfile.TemporaryDirectory(prefix=".weights-", dir=place.parent) as scratch:
                with progress("Converting the weights"):
                    write_checkpoint(load(directory, source), Path(scratch) / "fp16")
                for command in commands(Path(scratch) / "fp16", work, shapes, max_batch):
                    run(command)
            for path in graphs.iterdir():
                if path.name != MANIFEST:
                    shutil.copyfile(path, work / path.name)
            manifest = describe(made, shapes, version, max_batch)
            manifest.gpu = gpu
            write_manifest(work, manifest)
            manifest.check = {"not run": "--no-check"}
            if check:
                settings: dict[str, Any] = {"artefact": str(work), "max_batch_windows": max_batch}
                expected = onnxruntime.open_engine(graphs, RecognizeSettings(artefact=str(graphs)))
                found = engine_tensorrt_llm.open_engine(work, RecognizeSettings(**settings, device="cuda"))
                recordings = read_recordings(audio, shapes.contexts_s[-1])
                windows = [window for recording in recordings for window in recording.windows]
                manifest.check = compare_words((expected, found), windows)
                judge(manifest, min_agreement)
            report(f"{place.name}: {manifest.source}", manifest.check)
            write_manifest(work, manifest)


def library_version() -> str:
    """As 1.2.1. Raises: ArtefactError without TensorRT-LLM, or with a release that compiles no engines."""
    try:
        import tensorrt_llm
    except ImportError as error:
        raise ArtefactError(
            f"TensorRT-LLM does not import ({error}): run this in the build container, "
            "or build/speech_tensorrt.py instead"
        ) from None
    version: str = tensorrt_llm.__version__
    if not version.startswith(f"{LAST_RELEASE}."):
        raise ArtefactError(
            f"TensorRT-LLM {version} compiles no engines, {LAST_RELEASE} was the last: "
            "use build/speech_tensorrt.py"
        )
    return version


def commands(weights: Path, work: Path, shapes: SpeechShapes, max_batch: int) -> list[list[str]]:
    """trtllm-build for each half; sizes of the encoder are in feature frames."""
    frames = str(round(shapes.contexts_s[-1] * FRAMES_PER_S))
    opening = str(shapes.positions // 2 + OPENING)
    common = ["--moe_plugin", "disable", "--max_batch_size", str(max_batch)]
    plugin = ["--bert_attention_plugin", "float16"]
    encoder = ["--gemm_plugin", "disable", *plugin, "--max_input_len", frames, "--max_seq_len", frames]
    decoder = [
        *("--gemm_plugin", "float16", *plugin, "--gpt_attention_plugin", "float16", "--max_beam_width", "1"),
        *("--max_input_len", opening, "--max_seq_len", str(shapes.positions)),
        *("--max_encoder_input_len", frames),
    ]
    return [
        [
            *("trtllm-build", "--checkpoint_dir", str(weights / half), "--output_dir", str(work / half)),
            *(*common, *more),
        ]
        for half, more in (("encoder", encoder), ("decoder", decoder))
    ]


def run(command: list[str]) -> None:
    """Its output goes to the screen. Raises: ArtefactError when it fails or is not there."""
    try:
        code = subprocess.run(command).returncode
    except FileNotFoundError:
        raise ArtefactError(f"no {command[0]} here, which TensorRT-LLM's package installs") from None
    if code:
        half = Path(command[command.index("--output_dir") + 1]).name
        raise ArtefactError(
            f"{command[0]} made no engine of the {half} (exit code {code}): it says why above"
        )


def describe(made: Manifest, shapes: SpeechShapes, version: str, max_batch: int) -> Manifest:
    """The manifest: what the graphs' says, and what the engines were compiled for."""
    shortest, longest = (round(shapes.contexts_s[at] * FRAMES_PER_S) for at in (0, -1))
    low, high = (1, shapes.mel_bins, shortest), (max_batch, shapes.mel_bins, longest)
    return Manifest(
        task="speech",
        runtime="tensorrt_llm",
        runtime_version=version,
        precision="fp16",
        source=made.source,
        source_sha256=made.source_sha256,
        command=build_command("build/speech_tensorrt_llm.py"),
        shapes={**made.shapes, "max_batch_size": max_batch},
        profiles=[{"encoder:features": InputRange(min=low, opt=high, max=high)}],
        extra={**made.extra, "graphs": {"command": made.command, "check": made.check}},
    )


if __name__ == "__main__":
    typer.run(main)
