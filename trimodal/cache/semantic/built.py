"""Finds what a model that the cache calls was built from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trimodal.errors import ArtefactError, SettingsError
from trimodal.manifest import read_manifest
from trimodal.repository import model_names, read_model

FAKE = "fake"


@dataclass(frozen=True)
class Built:
    """SHA-256 of the checkpoint behind a model, FAKE for a fake, and where its artefacts lie."""

    checkpoint: str
    directories: tuple[Path, ...] = ()


def built_model(llm: Path, model: str, *, parameter: str, task: str) -> Built:
    """What the model `model` that lies beside the llm's was built from.

    Triton does not tell which profile's config file it read, so all of them are looked at:
    those whose artefact was built must agree.

    Args:
        llm: directory of the llm model: `args["model_repository"]` of the glue.
        parameter: of the llm, which named the model.

    Raises:
        OperatorError: there is no such model, nothing is built for it, or its artefacts have different
            checkpoints; one sentence with the remedy.
    """
    if model not in model_names(llm.parent):
        raise SettingsError(f"parameter '{parameter}': there is no model '{model}' beside {llm.name}")
    profiles = ["tensorrt", *sorted(file.stem for file in (llm.parent / model / "configs").glob("*.pbtxt"))]
    found: dict[str, dict[Path, None]] = {}
    missing: ArtefactError | None = None
    for config in (read_model(llm.parent, model, profile) for profile in profiles):
        if not config.artefact:
            found.setdefault(FAKE, {})
            continue
        try:
            directory = (config.version_directory / config.artefact).resolve()
            manifest = read_manifest(directory, task=task, runtime=None)
            found.setdefault(manifest.source_sha256, {})[directory] = None
        except ArtefactError as error:
            missing = error
    if len(found) > 1:
        names = sorted(
            directory.name for some in found.values() for directory in (some or {Path("engine fake"): None})
        )
        raise SettingsError(
            f"cache 'semantic': {', '.join(names)} of {model} have different checkpoints: "
            "keep the artefacts of one"
        )
    for checkpoint, directories in found.items():
        return Built(checkpoint, tuple(directories))
    raise missing or SettingsError(f"parameter '{parameter}': model '{model}' has no artefact")
