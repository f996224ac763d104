"""What the models of a profile will open, and whether it fits this machine.

The engines check the same when they open. Here, before tritonserver starts, all models are looked at, those
of Triton's TensorRT backend included, which only says that a plan failed to load. While the models load, all
files are read, as an engine takes a flipped bit for a weight.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from trimodal.errors import ArtefactError, OperatorError, ServerError
from trimodal.manifest import MANIFEST, InputRange, Manifest, Shape, check_files, read_manifest
from trimodal.paths import INSTALL_JUDGE, STARTER, setting_path
from trimodal.repository import Model
from trimodal.runtimes import gpu_fit, gpu_libraries
from trimodal.runtimes.gpu_device import Gpu
from trimodal.vision.artefact import read_classifier

TASKS = {
    "llm": "llm",
    "vision": "vision",
    "vision_classify": "vision",
    "speech_recognize": "speech",
    "embedding": "embedding",
    "judge": "judge",
    "turn": "turn",
}
# Engine → runtime that the manifest must name, where that is not the engine's own name.
RUNTIMES = {"tensorrt_llm_pytorch": "checkpoint", "vllm": "checkpoint"}
# Runtime → ending of the build script's name, and beginning of the artefact's, where it is not its own.
SCRIPTS = {"onnxruntime": "onnx", "checkpoint": "place"}
_NICE = 10
_STOP_S = 1.0  # for a block that is being read
DRAFT = "draft"  # artefact of the heads that draft, where none is named


@dataclass(frozen=True)
class Artefact:
    """One directory that a model opens. `runtime` None: any, the model only reads what stands beside it."""

    model: Model
    directory: Path
    task: str
    runtime: str | None

    @property
    def place(self) -> str:
        """As operators name it, `vision_classify/1/onnx-int8`; a path where it is no part of a repository."""
        in_version = self.directory.parent.name.isdecimal()
        return str(Path(*self.directory.parts[-3:]) if in_version else self.directory)

    @property
    def remedy(self) -> str:
        """How it is built, as far as its name tells: `… trimodal build vision … --precision int8`."""
        runtime = self.runtime
        if runtime is None:
            return "build it first"
        if self.task == "judge":  # trained, and not made of a checkpoint alone
            return f"get one with: {INSTALL_JUDGE}"
        if self.task == "turn":  # there is one, and it is taken as it is
            return f"build it with: trimodal build turn {STARTER}smart-turn-v3"
        runtime, name = SCRIPTS.get(runtime, runtime), self.directory.name
        command = f"trimodal build {self.task} CHECKPOINT --runtime {runtime}"
        if name.startswith(f"{runtime}-"):
            command += f" --precision {name[len(runtime) + 1 :]}"
        return f"build one with: {command}"

    @property
    def by_triton(self) -> bool:
        """Whether one of Triton's own backends opens it, and not our code."""
        return self.runtime is not None and self.model.backend != "python"


def artefacts_of(model: Model) -> list[Artefact]:
    """What `model` opens in its versions, the highest's first.

    Nothing for ensembles, fakes and models that this package does not know.
    """
    parameters = model.parameters
    if classifier := parameters.get("classifier"):
        places = ((version / setting_path(classifier)).resolve() for version in model.version_directories)
        return [Artefact(model, place, "vision", None) for place in dict.fromkeys(places)]
    task = TASKS.get(model.name)
    if task is None or not model.artefact:
        return []
    runtime = RUNTIMES.get(model.engine, model.engine) if model.backend == "python" else model.backend
    names = [model.artefact]
    if parameters.get("speculation") == "eagle3":
        names.append(parameters.get("draft_artefact", DRAFT))
    found: dict[Path, None] = {}  # one that is named by its absolute path is the same in every version
    for version in model.version_directories:
        found |= dict.fromkeys(model.artefact_directory(name, version) for name in names)
    return [Artefact(model, directory, task, runtime) for directory in found]


def check_artefacts(models: Iterable[Model], gpus: Sequence[Gpu]) -> FileCheck:
    """Checks all but the files' content: that is for the thread that is returned, and not started yet.

    Raises: ServerError with one line for each sentence that something is wrong, naming its models.
    """
    sentences: dict[str, list[str]] = {}
    missing: dict[Path, str] = {}  # what a model opens, others may read: one line for all of them
    opened: dict[Path, Manifest] = {}
    readers: dict[Path, list[str]] = {}
    artefacts = [artefact for model in models for artefact in artefacts_of(model)]
    for artefact in sorted(artefacts, key=lambda one: one.runtime is None):
        readers.setdefault(artefact.directory, []).append(artefact.model.name)
        try:
            opened[artefact.directory] = check_artefact(artefact, gpus)
        except OperatorError as error:
            sentence = missing.setdefault(artefact.directory, str(error))
            sentences.setdefault(sentence, []).append(artefact.model.name)
    if sentences:
        raise ServerError(
            "\n".join(f"model {', '.join(names)}: {sentence}" for sentence, names in sentences.items())
        )
    return FileCheck(opened, readers)


class FileCheck(threading.Thread):
    """Reads the files of artefacts, `opened`, and compares them with what was built.

    Attributes:
        failure: once it has ended: a line for each artefact of which one differs, naming its `readers`.
    """

    def __init__(self, opened: Mapping[Path, Manifest], readers: Mapping[Path, Sequence[str]]) -> None:
        super().__init__(name="file check", daemon=True)
        self._opened, self._readers = opened, readers
        self._stopped = threading.Event()
        self.failure = "the files of the models were not read to their end"

    def run(self) -> None:
        # On Linux this thread's alone, and of those that it starts: engines measure themselves meanwhile.
        os.nice(_NICE)
        lines = []
        for directory, manifest in self._opened.items():
            if self._stopped.is_set():
                return
            try:
                check_files(directory, manifest, self._stopped.is_set)
            except Exception as error:  # also RuntimeError: the interpreter ends, and starts no thread
                told = str(error) or type(error).__name__
                lines.append(f"model {', '.join(self._readers[directory])}: {told}")
        if not self._stopped.is_set():
            self.failure = "\n".join(lines)

    def stop(self) -> None:
        """Gives up: the server is not started after all. It has ended then, or reads its last block."""
        self._stopped.set()
        if self.is_alive():
            self.join(_STOP_S)


def newer_beside(model: Model) -> str:
    """A sentence on the newest artefact that lies beside the one that `model` serves and was built after it.

    It names both and what to type; empty: there is none. Those of the starter set are left out: several come
    with one command, and the config names the one that is meant.
    """
    if not (artefacts := artefacts_of(model)) or artefacts[0].runtime is None:
        return ""
    served, folder = artefacts[0], (model.version_directory / model.artefact).parent
    found = {}
    for path in folder.glob(f"*/{MANIFEST}"):
        with suppress(ArtefactError):
            found[path.parent.name] = read_manifest(path.parent, task=served.task, runtime=served.runtime)
    name = served.directory.name
    if name not in found:
        return ""
    newer = {
        other: manifest.built_at
        for other, manifest in found.items()
        if manifest.built_at > found[name].built_at and not manifest.source.startswith(STARTER)
    }
    if not newer:
        return ""
    other = max(newer, key=lambda each: newer[each])
    way = f"trimodal serve --set {model.name}.artefact={Path(model.artefact).with_name(other)}"
    if served.by_triton:
        way = f"default_model_filename in {model.config_file.relative_to(model.directory.parent)}"
    return f"{model.name} serves {name}; {other}, beside it, was built later: {way}"


def check_artefact(artefact: Artefact, gpus: Sequence[Gpu] | None) -> Manifest:
    """The manifest of an artefact that fits its config, the libraries here and `gpus` (None: not known).

    Raises: ArtefactError: it does not; one sentence with the command that builds it again.
    """
    directory = artefact.directory
    if not (directory / MANIFEST).is_file():
        raise ArtefactError(f"there is no built engine {artefact.place}: {artefact.remedy}")
    if artefact.runtime is None:
        return read_classifier(directory).manifest
    manifest = read_manifest(directory, task=artefact.task, runtime=artefact.runtime)
    parameters = artefact.model.parameters
    gpu_fit.check_checkpoint(directory, manifest, parameters.get("checkpoint_sha256", ""))
    gpu_fit.check_precision(directory, manifest, parameters.get("precision", ""))
    installed = library_version(artefact)
    if installed is not None and not gpu_libraries.same_version(manifest.runtime_version, installed):
        gpu_fit.check_version(directory, manifest, installed)
    if gpus is not None:
        gpu_fit.check_gpu(directory, manifest, list(gpus))
    if artefact.by_triton:
        _check_plan(artefact, manifest)
    return manifest


def library_version(artefact: Artefact) -> str | None:
    """Version of the library here that opens a compiled engine; None when it is not found or not compiled."""
    if artefact.runtime != "tensorrt":
        return None
    return gpu_libraries.native_tensorrt() if artefact.by_triton else gpu_libraries.python_tensorrt()


def _check_plan(artefact: Artefact, manifest: Manifest) -> None:
    """The smallest and the largest batch of the config must fit a profile of the plan."""
    config = artefact.model.config
    file = str(config.default_model_filename).rpartition("/")[2]
    if not (artefact.directory / file).is_file():
        raise ArtefactError(f"{artefact.directory} lacks {file}: build again with: {manifest.command}")
    names = {name for group in config.instance_group for name in group.profile}
    if unread := sorted(name for name in names if not name.isdecimal()):
        raise ArtefactError(
            f"instance_group of {artefact.model.name} names profile '{unread[0]}': name its number, from 0"
        )
    numbers = sorted(map(int, names))
    if numbers and numbers[-1] >= len(manifest.profiles):
        raise ArtefactError(
            f"the engine in {artefact.directory} has {len(manifest.profiles)} optimisation profiles, and "
            f"instance_group names profile {numbers[-1]}: build again with: {manifest.command}"
        )
    if numbers:  # instances use these alone
        manifest = manifest.model_copy(update={"profiles": [manifest.profiles[each] for each in numbers]})
    best = manifest.profiles[0] if manifest.profiles else {}
    for batch in sorted({1, config.max_batch_size}) if config.max_batch_size else ():
        wanted = {one.name: (batch, *_closed(tuple(one.dims), best.get(one.name))) for one in config.input}
        why = f"max_batch_size {batch}" if batch > 1 else "a batch of 1"
        gpu_fit.check_shapes(artefact.directory, manifest, wanted, why)


def _closed(dims: Shape, likes: InputRange | None) -> Shape:
    """A shape whose open sides are as the plan likes them best."""
    if likes is None or len(dims) != len(likes.opt) - 1:
        return dims
    return tuple(like if size < 0 else size for size, like in zip(dims, likes.opt[1:], strict=True))
