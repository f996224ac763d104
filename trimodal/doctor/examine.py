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
from trimodal.doctor.machine import check_gateway_port, check_machine
from trimodal.doctor.models import MODELS, check_models, weights_on_gpu
from trimodal.doctor.production import check_production
from trimodal.doctor.triton import check_triton
from trimodal.doctor.values import Check
from trimodal.errors import ServerError
from trimodal.repository import Model, select_models
from trimodal.server.options import ServerOptions
from trimodal.server.overlay import ServedRepository


def examine(
    options: ServerOptions,
    *,
    deep: bool = False,
    gateway: Mapping[str, Any] | None = None,
    gateway_address: tuple[str, int],
) -> list[Check]:
    """What `trimodal serve` would meet here.

    Args:
        deep: also compares each built file with its hash.
        gateway: what its command line says, if strangers are to reach it.
        gateway_address: host and port.
    """
    with tempfile.TemporaryDirectory(prefix="trimodal-doctor-") as folder:
        try:  # as the server would see them: with --set, and with the engines of another place
            repository = ServedRepository(options, Path(folder)).path
            models = list(select_models(repository, options.models, options.profile).values())
        except ServerError as error:  # everything else can still be looked at
            machine = [*check_machine(options, []), check_gateway_port(*gateway_address)]
            return [*machine, *check_triton([]), MODELS.refused("repository", error)]
        checks = [*check_machine(options, models), check_gateway_port(*gateway_address)]
        checks += _installed(options, models, deep)
        if gateway is not None:
            checks += check_production(options, models, gateway, os.environ)
        return checks


def _installed(options: ServerOptions, models: list[Model], deep: bool) -> Iterator[Check]:
    found = find_gpus(models)
    gpus = None if isinstance(found, ServerError) else found
    yield from check_triton(models)
    yield from check_gpus(found, models, weights_on_gpu(models))
    yield from check_libraries(models, "cpu" if options.profile == "cpu" else "cuda")
    yield from check_engine_tools(models)
    yield from check_models(models, gpus, deep=deep)
