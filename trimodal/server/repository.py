"""Reads a model repository: names, the profile's configs, ensemble steps, artefacts. Loads nothing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf import text_format  # type: ignore[import-untyped]
from tritonclient.grpc import model_config_pb2

from trimodal.errors import ServerError
from trimodal.manifest import MANIFEST

# Parameters by which a Python model names another one that it calls by itself (BLS).
CALLS = ("recognizer",)


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

    @property
    def steps(self) -> tuple[str, ...]:
        """Models that this one runs as an ensemble."""
        return tuple(step.model_name for step in self.config.ensemble_scheduling.step)

    @property
    def calls(self) -> tuple[str, ...]:
        """Models that this one calls by itself while it works on a request."""
        return tuple(name for key, name in self.parameters.items() if key in CALLS)

    @property
    def platform(self) -> str:
        return str(self.config.backend or self.config.platform or "?")

    @property
    def instances(self) -> int:
        """Python stubs that it starts (0 for other backends)."""
        if self.config.backend != "python":
            return 0
        return sum(max(1, group.count) for group in self.config.instance_group) or 1

    def precision(self) -> str:
        """The artefact's precision by its manifest, else by its name (`onnx-int8`); empty without one."""
        artefact = self.parameters.get("artefact", "")
        if not artefact:
            return ""
        for manifest in sorted(self.directory.glob(f"*/{artefact}/{MANIFEST}"), reverse=True):
            try:
                return str(json.loads(manifest.read_text())["precision"])
            except (ValueError, KeyError, OSError):
                continue
        return artefact.rpartition("-")[2]


def config_file(directory: Path, profile: str) -> Path:
    """The file that Triton reads: `configs/cpu.pbtxt` where the CPU profile has one, else `config.pbtxt`."""
    special = directory / "configs" / f"{profile}.pbtxt"
    return special if profile != "gpu" and special.is_file() else directory / "config.pbtxt"


def model_names(repository: Path) -> list[str]:
    """Every model of the repository: the folders with a config.pbtxt.

    Raises:
        ServerError: no such directory, or no model in it.
    """
    if not repository.is_dir():
        raise ServerError(f"model repository {repository} does not exist: name one with --model-repository")
    names = sorted(path.parent.name for path in repository.glob("*/config.pbtxt"))
    if not names:
        raise ServerError(f"model repository {repository} has no model (no */config.pbtxt in it)")
    return names


def read_model(repository: Path, name: str, profile: str) -> Model:
    """Raises: ServerError naming the file and the line when it is not a valid config."""
    file = config_file(repository / name, profile)
    try:
        config = text_format.Parse(file.read_text(), model_config_pb2.ModelConfig())
    except text_format.ParseError as error:
        shown = file.relative_to(repository)
        raise ServerError(f"model {name}: {shown} is not a valid model configuration: {error}") from None
    return Model(name, repository / name, file, config)


def select_models(repository: Path, wanted: Iterable[str], profile: str) -> dict[str, Model]:
    """The wanted models (all when none is named), the steps of the ensembles among them, and what they call.

    Raises:
        ServerError: a name that the repository lacks; lists those that it has.
    """
    names = model_names(repository)
    pending = list(wanted) or list(names)
    models: dict[str, Model] = {}
    while pending:
        name = pending.pop(0)
        if name not in names:
            raise ServerError(f"no model '{name}' in {repository}: it has {', '.join(names)}")
        if name not in models:
            models[name] = read_model(repository, name, profile)
            pending += [*models[name].steps, *models[name].calls]
    return models


def waves(models: Mapping[str, Model]) -> list[list[str]]:
    """The order in which models may go: each after all those that call it."""
    left, order = dict(models), []
    while left:
        called = {name for model in left.values() for name in model.calls if name != model.name}
        wave = sorted(name for name in left if name not in called) or sorted(left)
        order.append(wave)
        for name in wave:
            del left[name]
    return order
