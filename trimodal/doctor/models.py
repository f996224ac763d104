"""Checks each model of a profile: its settings are valid, its built engine is there and fits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module

from pydantic import ValidationError

from trimodal.doctor.values import Check, Group
from trimodal.errors import OperatorError
from trimodal.files import folder_size
from trimodal.manifest import MANIFEST, Manifest, check_files
from trimodal.report.numbers import size
from trimodal.repository import Model
from trimodal.runtimes.gpu_device import Gpu
from trimodal.server.artefacts import Artefact, artefacts_of, check_artefact
from trimodal.server.preflight import check_config
from trimodal.settings import Settings, read_as

MODELS = Group("models")
SETTINGS = {
    "assistant": "trimodal.assistant.settings.AssistantSettings",
    "embedding": "trimodal.embedding.settings.EmbeddingSettings",
    "judge": "trimodal.judge.settings.JudgeSettings",
    "llm": "trimodal.llm.settings.LlmSettings",
    "speech": "trimodal.speech.settings.SpeechSettings",
    "speech_recognize": "trimodal.speech.settings.RecogniseSettings",
    "turn": "trimodal.turn.settings.TurnSettings",
    "vision": "trimodal.vision.settings.VisionSettings",
    "vision_preprocess": "trimodal.vision.settings.PreprocessSettings",
    "vision_rank": "trimodal.vision.settings.RankSettings",
}


def check_models(models: Iterable[Model], gpus: Sequence[Gpu] | None, *, deep: bool) -> Iterator[Check]:
    """One line a model, for a wrong one what its loading would end with. `gpus` None: they are not known."""
    models = sorted(models, key=lambda model: model.name)
    opened = {one.directory for model in models for one in artefacts_of(model) if one.runtime is not None}
    classified = any(model.name == "vision_classify" for model in models)
    for model in models:
        artefacts = artefacts_of(model)
        try:
            check_settings(model)
            built = [_built(artefact, gpus, deep) for artefact in artefacts]
        except OperatorError as error:
            yield MODELS.refused(model.name, error)
            continue
        found = "; ".join(built) or _without_engine(model)
        if classified and any(one.runtime is None and one.directory not in opened for one in artefacts):
            yield MODELS.warning(
                model.name,
                f"{found}, which vision_classify does not run: labels and sizes may not fit",
                "name one artefact in the configs of all vision models",
            )
        else:
            yield MODELS.ok(model.name, found)


def settings_class(model: Model) -> type[Settings] | None:
    """The class that reads a model's parameters; None: its code is not this package's."""
    if model.backend != "python" or model.name not in SETTINGS:
        return None
    file = model.version_directory / "model.py"
    if file.is_file() and "trimodal" not in file.read_text(errors="replace"):  # another's, of that name
        return None
    module, _, name = SETTINGS[model.name].rpartition(".")
    found: type[Settings] = getattr(import_module(module), name)
    return found


def check_settings(model: Model) -> None:
    """Raises: SettingsError naming file and key, as the model itself or the launcher would."""
    check_config(model)
    if cls := settings_class(model):
        model.settings(cls)


def weights_on_gpu(models: Iterable[Model]) -> dict[str, int]:
    """Model → bytes of its built engines on the first GPU: of a shared one its part, of none 0."""
    return {
        model.name: sum(
            folder_size(artefact.directory) // _sharing(artefact)
            for artefact in artefacts_of(model)
            if artefact.directory.is_dir()
        )
        for model in models
        if model.wants_gpu
    }


def _sharing(artefact: Artefact) -> int:
    """GPUs that share it: those that it was compiled for, or those that its model names."""
    try:
        built = Manifest.model_validate_json((artefact.directory / MANIFEST).read_bytes())
    except (OSError, ValidationError):  # said elsewhere
        return 1
    if built.gpu:
        return built.gpu.count
    parameters = artefact.model.parameters
    sizes = [parameters.get(f"{kind}_parallel_size", "1") for kind in ("tensor", "pipeline")]
    return math.prod(max(1, read_as(int, size, 1)) for size in sizes)


def _built(artefact: Artefact, gpus: Sequence[Gpu] | None, deep: bool) -> str:
    manifest = check_artefact(artefact, gpus)
    if artefact.runtime is None:
        return f"reads {artefact.place}"
    if deep:
        check_files(artefact.directory, manifest)
    built = [
        f"{artefact.directory.name} of {manifest.source}",
        size(folder_size(artefact.directory)),
        f"{manifest.runtime} {manifest.runtime_version}",
        f"built {manifest.built_at[:10]}",
    ]
    if manifest.gpu:
        built.append(f"for {manifest.gpu.count} × {manifest.gpu.name}, SM {manifest.gpu.sm}")
    if deep:
        built.append(f"{len(manifest.files)} files as they were built")
    return ", ".join(built)


def _without_engine(model: Model) -> str:
    if model.steps:
        return f"a pipeline of {', '.join(model.steps)}"
    if model.calls:
        return f"hands its work to {', '.join(model.calls)}"
    return f"engine {model.engine}, nothing built is needed"
