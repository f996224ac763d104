"""Embeds questions for the semantic layer through a Triton model."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import numpy as np

from trimodal.cache.values import Vector
from trimodal.errors import ArtefactError, InternalError, RequestError, SettingsError
from trimodal.manifest import read_manifest
from trimodal.triton.calls import infer


class TritonEmbedder:
    """Calls the embedding model named `model`, whose vectors are of `checkpoint`."""

    def __init__(self, pb_utils: Any, model: str, checkpoint: str) -> None:
        self._pb_utils = pb_utils
        self._model = model
        self.checkpoint = checkpoint

    def embed(self, text: str) -> Vector:
        """The vector float32[d] of `text`, of unit length.

        Raises:
            RequestError: with the model's own code; InternalError when what it sent is no direction.
        """
        inputs = {"text_input": np.array([[text.encode()]], dtype=object)}
        try:
            out = infer(self._pb_utils, self._model, inputs, ("embedding",), fields=("text_input",))
        except RequestError as error:
            raise type(error)(f"{self._model}: {error}") from None
        vector = np.asarray(out["embedding"], np.float32)
        length = float(np.linalg.norm(vector))
        if not (np.isfinite(length) and length > 0):
            raise InternalError(f"{self._model}: the embedding has no direction")
        # A copy: what Triton handed over lies in memory that it takes back.
        return (vector / length).astype(np.float32)


def embedder_checkpoint(llm: Path, model: str) -> str:
    """SHA-256 of the checkpoint behind the model `model` that lies beside the llm's; "fake" for a fake.

    Triton does not tell which profile's config file it read, so all of them are looked at:
    those whose artefact was built must agree.

    Args:
        llm: directory of the llm model: `args["model_repository"]` of the glue.

    Raises:
        OperatorError: there is no such model, nothing is built for it, or its artefacts have different
            checkpoints; one sentence with the remedy.
    """
    from trimodal.repository import model_names, read_model

    if model not in model_names(llm.parent):
        raise SettingsError(f"parameter 'embedder': there is no model '{model}' beside {llm.name}")
    profiles = ["tensorrt", *sorted(file.stem for file in (llm.parent / model / "configs").glob("*.pbtxt"))]
    found: dict[str, str] = {}
    missing: ArtefactError | None = None
    for config in (read_model(llm.parent, model, profile) for profile in profiles):
        if not config.artefact:
            found["fake"] = "engine fake"
            continue
        try:
            directory = (config.version_directory / config.artefact).resolve()
            manifest = read_manifest(directory, task="embedding", runtime=None)
            found[manifest.source_sha256] = config.artefact
        except ArtefactError as error:
            missing = error
    if len(found) > 1:
        raise SettingsError(
            f"cache 'semantic': {', '.join(sorted(found.values()))} of {model} have different checkpoints: "
            "keep the artefacts of one"
        )
    if not found:
        raise missing or SettingsError(f"parameter 'embedder': model '{model}' has no artefact")
    return next(iter(found))


class Embedder(Protocol):
    """Texts to vectors. Called from several threads at once."""

    @property
    def checkpoint(self) -> str:
        """SHA-256 of the embedding model's checkpoint: thresholds are calibrated for one."""

    def embed(self, text: str) -> Vector:
        """float32[d] of unit length. Raises RequestError or any other exception when there is none."""
