"""Where things lie on this machine, and the environment variables that say so."""

from __future__ import annotations

import os
import re
from pathlib import Path

import trimodal


def cache_directory() -> Path:
    """This user's cache: TRIMODAL_CACHE, else XDG's."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trimodal"
    return Path(os.environ.get("TRIMODAL_CACHE") or default)


# Set by `trimodal serve` for the models that it starts.
ADDRESS_VARIABLE = "TRIMODAL_OWN_GRPC"


HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


ENGINES_VARIABLE = "TRIMODAL_ENGINES"


def artefact_root(model: str) -> Path:
    """Where a model's artefacts are put: `$TRIMODAL_ENGINES/<model>`, else `model_repository/<model>/1`.

    The launcher looks in both: a read-only repository can be served with engines of a volume.
    """
    if engines := os.environ.get(ENGINES_VARIABLE):
        return Path(engines).expanduser().absolute() / model
    return Path(__file__).resolve().parents[1] / "model_repository" / model / "1"


def default_repository() -> Path:
    """`model_repository` of the working directory, else the one beside the package's source tree."""
    here = Path.cwd() / "model_repository"
    return here if here.is_dir() else Path(trimodal.__file__).resolve().parents[1] / "model_repository"


def default_engines() -> Path | None:
    """Where the build scripts of this environment put artefacts, when that is not the repository itself."""
    directory = os.environ.get(ENGINES_VARIABLE)
    return Path(directory) if directory else None
