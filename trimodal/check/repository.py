"""Reads all config files of a repository with the places of their fields; a broken one stops nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from google.protobuf import text_format  # type: ignore[import-untyped]
from tritonclient.grpc import model_config_pb2

from trimodal.check.findings import Finding
from trimodal.check.rules import RULES
from trimodal.check.source import Malformed, Node, SourcePosition, read_fields
from trimodal.repository import as_python_reads, loaded_versions, meant_beside, version_folders
from trimodal.settings import shorten

DEFAULT = "default"  # the profile without --model-config-name: every model's config.pbtxt
PLATFORMS = {
    "tensorrt_plan": "tensorrt",
    "onnxruntime_onnx": "onnxruntime",
    "pytorch_libtorch": "pytorch",
    "libtorch": "pytorch",
    "torch_aoti": "pytorch",
    "tensorflow_graphdef": "tensorflow",
    "tensorflow_savedmodel": "tensorflow",
}
# File in the version folder, by which the server knows a backend that is not named.
FILES = {
    "model.plan": "tensorrt",
    "model.onnx": "onnxruntime",
    "model.xml": "openvino",
    "model.pt": "pytorch",
    "model.pt2": "pytorch",
    "model.py": "python",
    "model.savedmodel": "tensorflow",
    "model.graphdef": "tensorflow",
}
SOURCES = {backend: name for name, backend in reversed(FILES.items())}


@dataclass
class Config:
    """One config file. `message` is None where it cannot be read at all."""

    model: str  # its folder's name
    directory: Path
    file: Path
    text: str
    root: Node
    message: Any
    found: list[Finding] = field(default_factory=list)  # while it was read

    def finding(self, rule: str, sentence: str, *path: str | int, fix: str = "") -> Finding:
        """A finding at a field; `fix` where the rule's own is too general."""
        return self.at(rule, sentence, self.root.find(path).position, fix=fix)

    def at(self, rule: str, sentence: str, position: SourcePosition, *, fix: str = "") -> Finding:
        return RULES[rule].finding(self.file, position, sentence, model=self.model, fix=fix)

    @cached_property
    def versions(self) -> dict[int, Path]:
        """Number → version folder."""
        return version_folders(self.directory)

    @property
    def loaded(self) -> dict[int, Path]:
        """The version folders that version_policy takes."""
        return loaded_versions(self.versions, self.message.version_policy)

    @property
    def is_ensemble(self) -> bool:
        return bool(self.message.platform == "ensemble" or self.message.HasField("ensemble_scheduling"))

    @property
    def backend(self) -> str:
        """As named, else as the server infers it; empty for ensembles and where nothing tells it."""
        message = self.message
        if message.backend or self.is_ensemble:
            return str(message.backend)
        if message.platform:
            return PLATFORMS.get(str(message.platform), "")
        if message.default_model_filename:
            return FILES.get(str(message.default_model_filename), "")
        for folder in self.versions.values():
            for name, backend in FILES.items():
                if (folder / name).exists():
                    return backend
        return ""

    @property
    def relative_file(self) -> str:
        """The file within its repository."""
        return str(self.file.relative_to(self.directory.parent))

    def parameter_path(self, name: str, field: str = "parameters") -> tuple[str | int, ...]:
        """Where a parameter, or an entry of another map, is written; empty: nowhere."""
        keys = [node.find(("key",)).value.strip("\"'") for node in self.root.named(field)]
        return (field, keys.index(name)) if name in keys else ()

    @property
    def parameters(self) -> dict[str, str]:
        return {key: value.string_value for key, value in self.message.parameters.items()}

    @property
    def python_file(self) -> str:
        return str(self.message.default_model_filename) or "model.py"

    @cached_property
    def completes_in_python(self) -> bool:
        """Whether its model.py may add tensors that the file does not name."""
        return self.backend == "python" and any(
            "auto_complete_config" in file.read_text(encoding="utf-8", errors="replace")
            for folder in self.versions.values()
            if (file := folder / self.python_file).is_file()
        )

    def completes(self, kind: str) -> bool:
        """Whether the server may know inputs or outputs (`kind`) that the file does not name."""
        if self.is_ensemble or self.backend == "python":
            return self.completes_in_python
        # These read all or nothing; others, as TensorRT's, also fill up what is named in part.
        whole = self.backend in ("onnxruntime", "openvino", "pytorch")
        return not (whole and len(getattr(self.message, kind)))


@dataclass
class Repository:
    """`configs` of one model: by profile, where it has a file of its own; `DEFAULT` is config.pbtxt."""

    path: Path
    configs: dict[str, dict[str, Config]]

    @property
    def profiles(self) -> list[str]:
        return sorted({profile for files in self.configs.values() for profile in files} | {DEFAULT})

    def of(self, profile: str) -> dict[str, Config]:
        """Model → the file that a server with this profile reads; models without one are left out."""
        chosen = {name: files.get(profile, files.get(DEFAULT)) for name, files in self.configs.items()}
        return {name: config for name, config in chosen.items() if config is not None}

    def files(self, profiles: Sequence[str]) -> Iterator[Config]:
        """Every config file that one of these profiles reads, once."""
        seen = set()
        for profile in profiles:
            for config in self.of(profile).values():
                if config.file not in seen:
                    seen.add(config.file)
                    yield config


def read_repository(path: Path) -> Repository:
    """Every folder that holds a config.pbtxt or a version. Raises: ValueError when there is none."""
    if not path.is_dir():
        raise ValueError(f"{path} is no directory: name a model repository")
    if (path / "config.pbtxt").is_file():
        raise ValueError(f"{path} is a model: name the repository that holds it, {path.parent}")
    configs: dict[str, dict[str, Config]] = {}
    for directory in sorted(path.iterdir()):
        if not directory.is_dir() or directory.name.startswith("."):
            continue
        files = {DEFAULT: directory / "config.pbtxt"}
        files |= {file.stem: file for file in sorted(directory.glob("configs/*.pbtxt"))}
        read = {name: read_config(directory, file) for name, file in files.items() if file.is_file()}
        if read:
            configs[directory.name] = read
    if not configs:
        raise ValueError(f"{path} has no model (no */config.pbtxt in it){meant_beside(path)}")
    return Repository(path, configs)


def read_config(directory: Path, file: Path) -> Config:
    """Reads what can be read of one file; what cannot is in its findings."""
    config = Config(directory.name, directory, file, "", Node("", SourcePosition(), is_message=True), None)
    try:
        config.text = file.read_text(encoding="utf-8", errors="replace")
        config.root = read_fields(config.text)
        message = _parse(config.text)
    except OSError as error:
        sentence = f"the file cannot be read: {error.strerror}"
        config.found.append(config.at("TRI001", sentence, SourcePosition()))
        return config
    except Malformed as error:
        config.found.append(config.at("TRI001", str(error), error.position))
        return config
    for path, number in _unknown_numbers(message):
        name = next(part for part in reversed(path) if isinstance(part, str))
        sentence = f"{name} is {number}: none of its names has this number"
        config.found.append(config.finding("TRI001", sentence, *path))
    config.message = None if config.found else message
    return config


def _parse(text: str) -> Any:
    """The ModelConfig. Raises: Malformed."""
    try:  # Fields that it does not know are looked for by name, with their places.
        return text_format.Parse(
            as_python_reads(text), model_config_pb2.ModelConfig(), allow_unknown_field=True
        )
    except text_format.ParseError as error:
        # As `5:17 : 'max_batch_size: 8.0': Couldn't parse integer: 8.0`, the line in quotes.
        sentence = re.sub(r"^\d+:\d+ : (?:'.*': )?", "", str(error), flags=re.DOTALL)
        raise Malformed(sentence, SourcePosition(error.GetLine() or 1, error.GetColumn() or 1)) from None
    except ValueError as error:  # what protobuf 6.33 raises where an enumeration's number is too large
        raise Malformed(shorten(str(error)), SourcePosition()) from None


def _unknown_numbers(message: Any) -> Iterator[tuple[tuple[str | int, ...], int]]:
    """Path and value of every enumeration that has no name for its number: the parser lets them pass."""
    for one, value in message.ListFields():
        if one.enum_type is None and (one.message_type is None or one.message_type.GetOptions().map_entry):
            continue
        several = isinstance(value, Sequence)
        for index, each in enumerate(value if several else [value]):
            path: tuple[str | int, ...] = (one.name, index) if several else (one.name,)
            if one.enum_type is None:
                yield from ((path + inner, number) for inner, number in _unknown_numbers(each))
            elif each not in one.enum_type.values_by_number:
                yield path, each
