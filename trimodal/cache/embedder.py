"""What the semantic layer needs of an embedding model, and a scripted one for tests."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from trimodal.cache.values import Vector
from trimodal.errors import (
    ArtefactError,
    InternalError,
    InvalidArgument,
    RequestError,
    SettingsError,
    Unavailable,
)
from trimodal.manifest import read_manifest

_REFUSAL = "text_input"


class TritonEmbedder:
    """`embed(text)` through the model named `model`, whose vectors are of `checkpoint`."""

    def __init__(self, pb_utils: Any, model: str, checkpoint: str) -> None:
        self._pb_utils = pb_utils
        self._model = model
        self.checkpoint = checkpoint

    def embed(self, text: str) -> Vector:
        """The vector float32[d] of `text`, of unit length.

        Raises:
            RequestError: with the model's own code; InternalError when what it sent is no direction.
        """
        pb = self._pb_utils
        request = pb.InferenceRequest(
            model_name=self._model,
            requested_output_names=["embedding"],
            inputs=[pb.Tensor("text_input", np.array([[text.encode()]], dtype=object))],
        )
        response = request.exec()
        if response.has_error():
            raise self._error(response.error())
        vector = np.asarray(
            pb.get_output_tensor_by_name(response, "embedding").as_numpy(), np.float32
        ).reshape(-1)
        length = float(np.linalg.norm(vector))
        if not (np.isfinite(length) and length > 0):
            raise InternalError(f"{self._model}: the embedding has no direction")
        # A copy: what Triton handed over lies in memory that it takes back.
        return (vector / length).astype(np.float32)

    def _error(self, error: Any) -> RequestError:
        codes = self._pb_utils.TritonError
        kinds: dict[Any, type[RequestError]] = {
            codes.INVALID_ARG: InvalidArgument,
            codes.UNAVAILABLE: Unavailable,
        }
        told = error.message()
        # Triton 2.51 hands an error of a called model on without its code; a refusal begins with the input.
        refused = told.startswith(_REFUSAL)
        kind = InvalidArgument if refused else kinds.get(error.code(), InternalError)
        return kind(f"{self._model}: {told}")


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


class FakeEmbedder:
    """A unit vector that the text's words decide: texts with the same words are alike, in whatever order."""

    checkpoint = "fake"

    def __init__(self, dimension: int = 64) -> None:
        self._dimension = dimension

    def embed(self, text: str) -> Vector:
        vector = np.full(self._dimension, 1e-3, np.float32)
        for word in text.lower().split():
            vector[int.from_bytes(hashlib.sha256(word.encode()).digest()[:4], "big") % self._dimension] += 1
        return (vector / np.linalg.norm(vector)).astype(np.float32)
