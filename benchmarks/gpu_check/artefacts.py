"""Provides the artefacts that gpu_check measures: built before, or built now by the build scripts."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.gpu_check.steps import Options
from trimodal.errors import ArtefactError
from trimodal.paths import ENGINES_VARIABLE, default_repository

MANIFEST = "manifest.json"  # trimodal.manifest's, whose import needs pydantic
BUILD_S = 1800.0  # seconds that a build may take


@dataclass(frozen=True)
class Artefact:
    """What build/`script`.py makes of a source, in `model`/`name` of its folder.

    Attributes:
        random: shape of build/random_checkpoint.py, whose checkpoint is the source.
    """

    model: str
    script: str
    precision: str
    source: tuple[str, ...] = ()
    random: str = ""

    @property
    def name(self) -> str:
        return f"{self.script.rpartition('_')[2]}-{self.precision}"


def artefacts(options: Options) -> dict[str, Artefact]:
    """Name → artefact: FP16 for the GPU, the starter set for a rehearsal."""
    full, half = options.full, "fp16" if options.full else "fp32"
    vision = ((), "resnet50") if full else (("starter:efficientnet-lite0",), "")
    whisper = options.whisper or ("whisper-small" if full else "starter:whisper-base")
    source: tuple[str, ...] = ()
    if whisper.startswith("starter:"):
        source, whisper = (whisper,), ""
    elif Path(whisper).is_dir():
        source, whisper = (str(Path(whisper).resolve()),), ""
    in_ctranslate2 = "float16" if full else "int8"
    return {
        "vision": Artefact("vision_classify", "vision_onnx", half, *vision),
        "vision-plan": Artefact("vision_classify", "vision_tensorrt", "fp16", *vision),
        "embedding": Artefact("embedding", "embedding_onnx", half, ("starter:minilm-l6-v2",)),
        "speech": Artefact("speech_recognize", "speech_ctranslate2", in_ctranslate2, source, whisper),
        "speech-plan": Artefact("speech_recognize", "speech_tensorrt", "fp16", source, whisper),
    }


def provide(options: Options, name: str) -> Path:
    """Returns the directory of an artefact; builds it into `options.engines` when there is none yet.

    Raises:
        ArtefactError: the build failed.
    """
    wanted, engines = artefacts(options)[name], Path(options.engines).resolve()
    repository = default_repository().resolve()
    built = engines / wanted.model / wanted.name
    starter = repository / wanted.model / "1" / wanted.name  # ./scripts/demo builds it
    for place in (built,) if options.full else (built, starter):
        if (place / MANIFEST).is_file():
            return place
    source = wanted.source
    if wanted.random:
        checkpoint = engines / "checkpoints" / wanted.random
        source = (str(checkpoint),)
        if not checkpoint.is_dir():
            _build(repository.parent, engines, "random_checkpoint", wanted.random, "--out", *source)
    _build(repository.parent, engines, wanted.script, *source, "--precision", wanted.precision)
    if not (built / MANIFEST).is_file():
        raise ArtefactError(f"build/{wanted.script}.py left no {built}")
    return built


def _build(source: Path, engines: Path, script: str, *arguments: str) -> None:
    command = [f"build/{script}.py", *arguments]
    print(f"gpu_check: {' '.join(command)}", flush=True)
    environment = {**os.environ, ENGINES_VARIABLE: str(engines)}
    try:
        ended = subprocess.run([sys.executable, *command], cwd=source, env=environment, timeout=BUILD_S)
    except subprocess.TimeoutExpired:
        raise ArtefactError(f"{' '.join(command)} took more than {BUILD_S / 60:g} min") from None
    if ended.returncode:
        raise ArtefactError(f"{' '.join(command)} failed (exit code {ended.returncode}): see above")
