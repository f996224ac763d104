"""Finds the checkpoint that an artefact was built from."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from trimodal.errors import OperatorError
from trimodal.manifest import Manifest, checkpoint_sha256
from trimodal.paths import data_directory

CONFIG = "config.json"


class Checkpoint(NamedTuple):
    """A directory; `same`: the artefact was built from these very files."""

    directory: Path
    same: bool


def find_checkpoint(manifest: Manifest, artefact: Path, given: Path | None) -> Checkpoint:
    """Returns the directory `given`, else the one that the manifest names, where that is on this machine.

    A manifest has the directory's own name: it is looked for beside the artefact, in `artefacts/` of the
    working directory, and among the demo's.

    Raises:
        OperatorError: there is none, or it holds no checkpoint.
    """
    if given:
        if not (given / CONFIG).is_file():
            raise OperatorError(f"--peer-checkpoint {given}: no checkpoint is there, it lacks {CONFIG}")
        found = given
    else:
        source = manifest.source
        parents = artefact.resolve().parent, Path("artefacts"), data_directory() / "build" / "demo"
        places = [Path(source), *(parent / source for parent in parents)]
        there = [place for place in places if (place / CONFIG).is_file()]
        if not there:
            raise OperatorError(
                f"--peer fastapi: {artefact} was built from '{source}', which is no directory here: "
                "name its checkpoint with --peer-checkpoint DIR"
            )
        found = there[0]
    return Checkpoint(found.resolve(), checkpoint_sha256(found) == manifest.source_sha256)
