"""Runs every check for one profile, in the order in which their remedies make sense."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trimodal.doctor.engine_tools import check_engine_tools
from trimodal.doctor.gpu import check_gpus, find_gpus
from trimodal.doctor.libraries import check_libraries
from trimodal.doctor.machine import check_machine
from trimodal.doctor.models import MODELS, check_models, weights_on_gpu
from trimodal.doctor.production import check_production
from trimodal.doctor.triton import check_triton
from trimodal.doctor.values import Check
from trimodal.errors import ServerError
from trimodal.repository import Model, select_models
from trimodal.server.options import ServerOptions
from trimodal.server.overlay import served_repository


def examine(
    options: ServerOptions, *, deep: bool = False, gateway: Mapping[str, Any] | None = None
) -> list[Check]:
    """What `trimodal serve` would meet here.

    Args:
        deep: also compares each built file with its hash.
        gateway: what its command line says, if strangers are to reach it.
    """
    with tempfile.TemporaryDirectory(prefix="trimodal-doctor-") as folder:
        try:  # as the server would see them: with --set, and with the engines of another place
            repository = served_repository(options, Path(folder))
            models = list(select_models(repository, options.models, options.profile).values())
        except ServerError as error:  # everything else can still be looked at
            return [*check_machine(options, []), *check_triton([]), MODELS.refused("repository", error)]
        checks = list(_all(options, models, deep))
        if gateway is not None:
            checks += check_production(options, models, gateway, os.environ)
        return checks


def _all(options: ServerOptions, models: list[Model], deep: bool) -> Iterator[Check]:
    found = find_gpus(models)
    gpus = None if isinstance(found, ServerError) else found
    yield from check_machine(options, models)
    yield from check_triton(models)
    yield from check_gpus(found, models, weights_on_gpu(models))
    yield from check_libraries(models, "cpu" if options.profile == "cpu" else "cuda")
    yield from check_engine_tools(models)
    yield from check_models(models, gpus, deep=deep)
