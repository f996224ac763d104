"""Makes the torch network of a built classifier, of build/steps/vision."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from trimodal.errors import ArtefactError
from trimodal.paths import default_repository
from trimodal.vision.artefact import ClassifierArtefact


def open_network(artefact: ClassifierArtefact, checkpoint: Path | None, option: str) -> Any:
    """The network of the artefact's architecture, for normalised pixels float32[N, 3, H, W].

    Args:
        checkpoint: directory with its weights; None: random ones.
        option: of the bench that wants it, for the sentence of an error.

    Raises:
        ArtefactError: torch or the networks of build/ are not there, the network is none of them, or the
            weights do not fit.
    """
    folder = str(default_repository().resolve().parent / "build")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        models = import_module("steps.vision.models")
        checkpoints = import_module("steps.vision.checkpoint") if checkpoint else None
    except ImportError as error:
        raise ArtefactError(f"{option} needs the networks in {folder} ({error})") from None
    architecture = str(artefact.manifest.extra.get("architecture"))
    if architecture not in models.ARCHITECTURES:
        raise ArtefactError(f"{option}: {artefact.directory} is no network of build/ ({architecture})")
    if checkpoints is None:
        return models.make(architecture, len(artefact.labels), artefact.input)
    config = checkpoints.read_config(checkpoint)
    if config.architecture != architecture:
        raise ArtefactError(
            f"{option}: {checkpoint} holds a {config.architecture}, the artefact is a {architecture}"
        )
    return checkpoints.load_model(checkpoint, config)
