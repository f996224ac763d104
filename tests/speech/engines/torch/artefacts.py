"""A torch artefact of a checkpoint, as build/speech_torch.py makes it, without its check."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

from tests.builders.scripts import importable
from tests.speech.whisper.checkpoints import CONTEXTS_S
from trimodal.manifest import Manifest, write_manifest


def write_torch(
    checkpoint_directory: Path,
    out: Path,
    precision: str = "fp32",
    contexts_s: Sequence[float] = tuple(CONTEXTS_S),
) -> Path:
    """The artefact that the engine opens, in `out`, which is made."""
    out.mkdir()
    with mock.patch.dict(os.environ), importable():
        checkpoint = importlib.import_module("steps.speech.checkpoint").load(checkpoint_directory, "x")
        script = importlib.import_module("speech_torch")
        script.write_weights(checkpoint, out, precision)
        checkpoint.write_files(out)
        shapes, extra = checkpoint.shapes(list(contexts_s)), script.extra(checkpoint)
    manifest = Manifest(
        task="speech", runtime="torch", runtime_version="x", precision=precision, source="random",
        source_sha256="0", command="make it again", shapes=shapes, extra=extra,
    )  # fmt: skip
    write_manifest(out, manifest)
    return out
