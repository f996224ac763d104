"""Reads a model repository: names, the profile's configs, ensemble steps, artefacts."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from typing import Any

from trimodal.errors import ArtefactError, ServerError, SettingsError
from trimodal.manifest import MANIFEST, read_manifest
from trimodal.paths import PROFILE_VARIABLE, judge_artefact, setting_path
from trimodal.settings import S, parse_parameters

# Parameters by which a Python model names another one that it calls by itself (BLS).
CALLS = ("recognizer", "embedder", "judge", "llm", "speech", "vision")
# … and those that it only calls when another parameter has this value.
ONLY_WITH = {"embedder": ("cache", "semantic"), "judge": ("cache", "semantic")}
# Engines that reserve a KV pool: of a GPU's memory they take nearly all that is free when they open.
POOLING_ENGINES = ("tensorrt_llm_pytorch", "vllm")
GPU_ENGINES = ("tensorrt", *POOLING_ENGINES)
# Texts and comments stay as they are.
_INTEGER = re.compile(
    r"""(?:"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|\#[^\n]*)|(?P<minus>-\s+(?=[\d.]))"""
    r"""|(?<![\w.])(?P<number>0[xX][0-9a-fA-F]+|0[0-7]+)(?![\w.])"""
)
JUDGE = "judge"  # its artefact may be that of the package trimodal-judge
OPTIONAL = (JUDGE, "turn")  # others do without them: served where they are built
# Triton writes `_` before it; Prometheus' library throws where two stand at the beginning of a label's name.
_METRIC_TAG = re.compile("(?:[A-Za-z0-9][A-Za-z0-9_]*)?")
FAKE = "fake"  # engine of every Python model that needs no artefact and no GPU


@dataclass(frozen=True)
class Model:
    """One model as its profile's config file describes it. `config` is a parsed ModelConfig."""

    name: str
    directory: Path
    config_file: Path
    config: Any

    @property
    def parameters(self) -> dict[str, str]:
        return {key: value.string_value for key, value in self.config.parameters.items()}

    def settings(self, cls: type[S], changes: Mapping[str, str] | None = None) -> S:
        """What its code makes of its parameters. Raises: SettingsError naming the file and the key."""
        source = str(self.config_file.relative_to(self.directory.parent))
        return parse_parameters(cls, {**self.parameters, **(changes or {})}, source=source)

    @property
    def steps(self) -> tuple[str, ...]:
        """Models that this one runs as an ensemble."""
        return tuple(step.model_name for step in self.config.ensemble_scheduling.step)

    @property
    def calls(self) -> tuple[str, ...]:
        """Models that this one calls by itself while it works on a request."""
        parameters = self.parameters
        named = {key: parameters[key] for key in CALLS if parameters.get(key)}
        for key, (other, value) in ONLY_WITH.items():
            if parameters.get(other) != value:
                named.pop(key, None)
        return tuple(named.values())

    @property
    def backend(self) -> str:
        """The folder of Triton's `backends` that it needs; empty for an ensemble."""
        if self.config.backend or self.steps:
            return str(self.config.backend)
        return str(self.config.platform).partition("_")[0]  # as tensorrt_plan

    @property
    def engine(self) -> str:
        """What runs it: a Python model's engine, else the backend."""
        return self.parameters.get("engine", str(self.config.backend or self.config.platform or "?"))

    @property
    def artefact(self) -> str:
        """Name of the built artefact that it runs; empty where it runs none."""
        if self.backend != "python":
            return str(self.config.default_model_filename).rpartition("/")[0]
        return "" if self.engine == FAKE else self.parameters.get("artefact", "")

    @property
    def version_directories(self) -> list[Path]:
        """The folders of the versions that Triton loads, the highest first: who names none is sent there."""
        loaded = loaded_versions(version_folders(self.directory), self.config.version_policy)
        return [loaded[number] for number in sorted(loaded, reverse=True)] or [self.directory / "1"]

    @property
    def version_directory(self) -> Path:
        """The folder of the highest version that Triton loads."""
        return self.version_directories[0]

    def artefact_directory(self, artefact: str, version: Path | None = None) -> Path:
        """Where an artefact lies, whether or not it is built; of the highest version unless one is given."""
        version = version or self.version_directory
        if self.name == JUDGE:
            return judge_artefact(version, artefact)
        return (version / setting_path(artefact)).resolve()

    @property
    def wants_gpu(self) -> bool:
        if self.backend == "python":
            device = self.parameters.get("device", "cuda" if self.engine in GPU_ENGINES else "cpu")
            return device == "cuda" and self.engine != FAKE
        groups = self.config.instance_group
        return self.backend == "tensorrt" or any(group.kind == group.KIND_GPU for group in groups)

    @property
    def instances(self) -> int:
        """Python stubs that it starts (0 for other backends)."""
        if self.config.backend != "python":
            return 0
        groups = self.config.instance_group
        return sum(max(1, group.count) * max(1, len(group.gpus)) for group in groups) or 1

    def precision(self) -> str:
        """The artefact's precision by its manifest, else by its name (`onnx-int8`); empty without one."""
        if not self.artefact:
            return ""
        try:
            manifest = (self.artefact_directory(self.artefact) / MANIFEST).read_bytes()
            return str(json.loads(manifest)["precision"])
        except (ValueError, KeyError, OSError):
            return self.artefact.rpartition("-")[2]


def version_folders(directory: Path) -> dict[int, Path]:
    """Number → folder of a model's versions. As the server does, it passes over those that begin with 0."""
    folders = (path for path in directory.iterdir() if path.is_dir())
    return {int(path.name): path for path in folders if re.fullmatch("0|[1-9][0-9]*", path.name)}


def loaded_versions(folders: Mapping[int, Path], policy: Any) -> dict[int, Path]:
    """Those of the version folders that a `version_policy` takes: by default the highest."""
    numbers = sorted(folders)
    if policy.HasField("all"):
        chosen = numbers
    elif policy.HasField("specific"):
        chosen = [number for number in numbers if number in policy.specific.versions]
    else:
        count = policy.latest.num_versions if policy.HasField("latest") else 1
        chosen = numbers[-count:] if count else []
    return {number: folders[number] for number in chosen}


def unfit_metric_tags(config: Any) -> list[str]:
    """Keys of a config's `metric_tags` that are no label of Prometheus: tritonserver (2.51) aborts on one."""
    return sorted(key for key in config.metric_tags if not _METRIC_TAG.fullmatch(key))


def model_names(repository: Path) -> list[str]:
    """Every model: the folders with a config.pbtxt. Raises: ServerError when there is none."""
    if not repository.is_dir():
        raise ServerError(f"model repository {repository} is no folder: name one with --model-repository")
    names = sorted(path.parent.name for path in repository.glob("*/config.pbtxt"))
    if not names:
        raise ServerError(
            f"model repository {repository} has no model (no */config.pbtxt in it){meant_beside(repository)}"
        )
    return names


def meant_beside(path: Path) -> str:
    """The end of a sentence on a folder without models that holds a repository; else nothing."""
    inside = path / "model_repository"
    return f": name {inside}" if inside.is_dir() else ""


def as_python_reads(text: str) -> str:
    """A config's text with its integers in a form that Python's parser takes, too; columns stay if they can.

    The server's (2.51) takes a blank after a minus, and hexadecimal and octal numbers also for truth values
    and enumerations.
    """
    return _INTEGER.sub(_decimal, text)


def _decimal(found: re.Match[str]) -> str:
    if found["number"]:
        octal = found["number"].isdecimal()
        return str(int(found["number"], 8 if octal else 16)).rjust(len(found[0]))
    return f"{found[0][1:]}-" if found["minus"] else found[0]


def read_model(repository: Path, name: str, profile: str) -> Model:
    """Raises: ServerError naming the file and the line when it is not a valid config."""
    # Here, as they take memory and time: the process of `llm`, which imports this, reads no config.
    from google.protobuf import text_format  # type: ignore[import-untyped]

    model_config_pb2 = _import_messages()
    # Profile `tensorrt` is `config.pbtxt` itself, as Triton's own users expect.
    special = repository / name / "configs" / f"{profile}.pbtxt"
    has_own = profile != "tensorrt" and special.is_file()
    file = special if has_own else repository / name / "config.pbtxt"
    try:
        text = as_python_reads(file.read_text(encoding="utf-8"))
        config = text_format.Parse(text, model_config_pb2.ModelConfig())
    except (text_format.ParseError, OSError, ValueError) as error:  # ValueError: no UTF-8, too large
        shown = file.relative_to(repository)
        raise ServerError(f"model {name}: {shown} is not a valid model configuration: {error}") from None
    return Model(name, repository / name, file, config)


def _import_messages() -> Any:
    """Imports `tritonclient.grpc.model_config_pb2` without `tritonclient.grpc`.

    That brings gRPC, numpy and protocol buffers of requests: 0.1 s of a start before tritonserver's own.
    """
    name = "tritonclient.grpc.model_config_pb2"
    if name not in sys.modules:
        package = find_spec("tritonclient.grpc")
        spec = PathFinder.find_spec(name, package.submodule_search_locations if package else None)
        assert spec
        assert spec.loader
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules.setdefault(name, module)
    return sys.modules[name]


def select_models(repository: Path, wanted: Iterable[str], profile: str) -> dict[str, Model]:
    """The wanted models (none: all of the profile), the steps of ensembles, what these call.

    A model that is a step of an ensemble, in this profile or in `config.pbtxt`, comes with that alone: where
    the ensemble's name is one model by itself, its steps are not of the profile.

    Raises: ServerError: names a model that is not there, or the file that is not a valid config.
    """
    names = model_names(repository)
    pending = list(wanted)
    if not pending:
        files = [read_model(repository, name, one) for name in names for one in {profile, "tensorrt"}]
        steps = {step for model in files for step in model.steps}
        pending = [name for name in names if name not in steps and not _left_out(repository, name, profile)]
    models: dict[str, Model] = {}
    while pending:
        name = pending.pop(0)
        if name not in names:
            raise ServerError(f"no model '{name}' in {repository}: it has {', '.join(names)}")
        if name not in models:
            models[name] = read_model(repository, name, profile)
            pending += [*models[name].steps, *models[name].calls]
    return models


def _left_out(repository: Path, name: str, profile: str) -> bool:
    """Whether others do without it, and it is not built: it comes with who calls it, or by name."""
    if name not in OPTIONAL:
        return False
    model = read_model(repository, name, profile)
    return bool(model.artefact) and not model.artefact_directory(model.artefact).exists()


def callers(models: Mapping[str, Model]) -> dict[str, frozenset[str]]:
    """Model → those that call it, and so have to go before it."""
    return {
        name: frozenset(one for one, model in models.items() if name in model.calls and one != name)
        for name in models
    }


def loaded_last(models: Mapping[str, Model]) -> list[str]:
    """Models that load after the others, in order: those that take the rest of a GPU, and their callers.

    Loaded beside others they would measure a GPU that these are still filling. Empty where no other model
    wants a GPU.
    """
    last = [name for name, model in models.items() if model.engine in POOLING_ENGINES]
    if not any(model.wants_gpu for name, model in models.items() if name not in last):
        return []
    for name in last:  # it grows while it is walked
        last += [caller for caller, model in models.items() if name in model.calls and caller not in last]
    return last


@dataclass(frozen=True)
class Built:
    """SHA-256 of the checkpoint behind a model, "fake" for a fake, and where its artefacts lie."""

    checkpoint: str
    directories: tuple[Path, ...] = ()


def built_model(caller: Path, model: str, *, parameter: str, task: str) -> Built:
    """What the model `model` that lies beside the caller's was built from.

    `trimodal serve` tells which profile it serves. Triton does not, so where it was started by itself all of
    them are looked at: those whose artefact was built must agree. `caller` is the directory of the model that
    calls it, `parameter` its own, which named the model. Raises: OperatorError: with the remedy.
    """
    if model not in model_names(caller.parent):
        raise SettingsError(f"parameter '{parameter}': there is no model '{model}' beside {caller.name}")
    served = os.environ.get(PROFILE_VARIABLE)
    files = (caller.parent / model / "configs").glob("*.pbtxt")
    profiles = [served] if served else ["tensorrt", *sorted(file.stem for file in files)]
    built: dict[str, dict[Path, None]] = {}
    missing: ArtefactError | None = None
    for config in (read_model(caller.parent, model, profile) for profile in profiles):
        if not config.artefact:
            built.setdefault(FAKE, {})
            continue
        try:
            directory = config.artefact_directory(config.artefact)
            manifest = read_manifest(directory, task=task, runtime=None)
            built.setdefault(manifest.source_sha256, {})[directory] = None
        except ArtefactError as error:
            missing = error
    if len(built) > 1:
        names = sorted(
            directory.name for some in built.values() for directory in (some or {Path("engine fake"): None})
        )
        raise SettingsError(
            f"parameter '{parameter}': {', '.join(names)} of {model} have different checkpoints: "
            "keep the artefacts of one"
        )
    for checkpoint, directories in built.items():
        return Built(checkpoint, tuple(directories))
    raise missing or SettingsError(f"parameter '{parameter}': model '{model}' has no artefact")
