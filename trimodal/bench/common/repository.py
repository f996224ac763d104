"""Makes the repository that both sides of a bench read: a profile's configs with changes, and its engines."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from trimodal.paths import default_engines, default_repository
from trimodal.repository import Model
from trimodal.server.options import Edit, Profile, ServerOptions
from trimodal.server.overlay import overlay


@contextmanager
def bench_options(
    models: Sequence[str],
    profile: Profile,
    changes: Mapping[str, Mapping[str, str]],
    edit: Edit | None = None,
) -> Iterator[ServerOptions]:
    """Options of a server on free ports whose `repository` has these changes in its files already.

    Raises:
        OperatorError: a change of a model or parameter that the repository lacks.
    """
    with tempfile.TemporaryDirectory(prefix="trimodal-bench-") as folder:
        target = Path(folder) / "models"
        overlay(default_repository(), target, changes, profile, edit, default_engines())
        options = ServerOptions.on_free_ports(*models, repository=target, profile=profile)
        yield replace(options, engines=None)


def built(model: Model, artefact: str) -> Path:
    """Where the server finds an artefact: absolute, else in the engines' volume, else in the repository."""
    engines = default_engines()
    if engines and (found := engines.expanduser().resolve() / model.name / artefact).is_dir():
        return found
    return (model.version_directory / artefact).resolve()
