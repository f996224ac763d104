"""Provides the artefacts that gpu_check measures: given, built before, or built now by the build scripts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from trimodal.errors import ArtefactError
from trimodal.manifest import MANIFEST
from trimodal.paths import ENGINES_VARIABLE, default_repository
from trimodal.runtimes.onnx_session import Device

BUILD_S = 1800.0  # seconds that a build may take


@dataclass(frozen=True)
class Artefact:
    """Where an artefact lies once built (`model`/`name`), and the arguments of Python that build it.

    Attributes:
        given: a directory that is taken instead.
        demo: the repository's own will do, as ./scripts/demo builds it.
    """

    model: str
    name: str
    command: tuple[str, ...]
    given: Path | None = None
    demo: bool = False


def artefacts(device: Device, whisper: Path, given: Sequence[str]) -> Mapping[str, Artefact]:
    """Name → artefact: FP16 for the GPU, what the demo has for a rehearsal.

    Args:
        whisper: checkpoint of the recogniser.
        given: NAME=DIR of artefacts that are built already.

    Raises:
        ArtefactError: a name that is not known.
    """
    full = device == "cuda"
    precision = "fp16" if full else "fp32"
    vision = ("--random", "resnet50") if full else ("build/demo/vision",)
    folder = str(whisper.resolve())

    def made(model: str, script: str, runtime: str, precision: str, *more: str) -> Artefact:
        command = (f"build/{script}_{runtime}.py", *more, "--precision", precision)
        return Artefact(model, f"{runtime}-{precision}", command, demo=not full)

    known = {
        "vision": made("vision_classify", "vision", "onnx", precision, *vision),
        "embedding": made("embedding", "embedding", "onnx", precision),
        "speech": made("speech_recognize", "speech", "ctranslate2", "float16" if full else "int8", folder),
        "speech-onnx": made("speech_recognize", "speech", "onnx", precision, folder),
    }
    known["speech-onnx"] = replace(known["speech-onnx"], demo=False)  # ./scripts/demo builds none
    for text in given:
        name, equals, directory = text.partition("=")
        if not equals or name not in known:
            raise ArtefactError(f"--artefact {text}: NAME=DIR is needed; names: {', '.join(known)}")
        known[name] = replace(known[name], given=Path(directory).resolve())
    return known


def provide(artefact: Artefact, engines: Path, console: Console) -> Path:
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
    console.print(f"building {target}", markup=False)
    environment = {**os.environ, ENGINES_VARIABLE: str(engines.resolve())}
    try:
        ended = subprocess.run(
            [sys.executable, *artefact.command], cwd=repository.parent, env=environment, timeout=BUILD_S
        )
    except subprocess.TimeoutExpired:
        raise ArtefactError(f"{' '.join(artefact.command)} took more than {BUILD_S / 60:g} min") from None
    if ended.returncode or not (target / MANIFEST).is_file():
        raise ArtefactError(f"{' '.join(artefact.command)} failed (exit code {ended.returncode}): see above")
    return target
