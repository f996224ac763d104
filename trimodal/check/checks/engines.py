"""Built engines with a manifest, and the parameters of this package's own models."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from trimodal.check.findings import Finding, Target
from trimodal.check.repository import Config
from trimodal.doctor.models import settings_class
from trimodal.errors import ArtefactError, SettingsError
from trimodal.manifest import MANIFEST, Manifest, read_manifest
from trimodal.paths import default_engines
from trimodal.repository import Model
from trimodal.server.artefacts import Artefact, artefacts_of
from trimodal.settings import Settings, parse_parameters

ALONE = ("assistant", "llm", "speech")  # their glue begins so: trimodal.triton.stub


def check_engines(config: Config, target: Target) -> Iterator[Finding]:
    """Looks at our own models, and at every folder with a manifest that a configuration names."""
    if config.is_ensemble or not config.versions:
        return
    model = Model(config.model, config.directory, config.file, config.message)
    if cls := settings_class(model):
        yield from _parameters(config, cls)
        if model.name in ALONE and model.instances > 1:
            sentence = f"{model.instances} instances of {model.name}"
            yield config.finding("TRI093", sentence, "instance_group")
        if (model.name in ALONE) == ((most := config.message.max_batch_size) > 0):
            fix = "set it to 0" if most else "set it to 1 or more"
            sentence = f"max_batch_size of {model.name} is {most}"
            yield config.finding("TRI094", sentence, "max_batch_size", fix=fix)
        for artefact in artefacts_of(model):
            # What another model opens is told there; Triton's own backends miss a file (TRI027).
            if artefact.runtime is not None:
                yield from _engine(config, artefact)
    else:
        for folder in config.loaded.values():
            directory = folder / model.artefact
            if model.artefact and (directory / MANIFEST).is_file():
                yield from _manifest(config, directory, None)


def _parameters(config: Config, cls: type[Settings]) -> Iterator[Finding]:
    try:
        parse_parameters(cls, config.parameters, source="")
    except SettingsError as error:
        sentence = re.sub(r" \(known: [^)]*\)", "", str(error).removeprefix(": "))
        named = re.search(r"parameter '(\w+)'", sentence)
        yield config.finding("TRI092", sentence, *config.parameter_path(named[1] if named else ""))


def _engine(config: Config, artefact: Artefact) -> Iterator[Finding]:
    """One of our own engines, in the repository or in the directory that `trimodal serve` takes them from."""
    places = [artefact.directory]
    if engines := default_engines():
        places.insert(0, engines / config.model / artefact.directory.name)
    built = next((place for place in places if (place / MANIFEST).is_file()), None)
    if built is not None:
        yield from _manifest(config, built, artefact)
    elif not artefact.by_triton:
        sentence = f"there is no built engine {artefact.place}"
        yield config.finding("TRI027", sentence, *config.parameter_path("artefact"), fix=artefact.remedy)


def _manifest(config: Config, directory: Path, artefact: Artefact | None) -> Iterator[Finding]:
    try:
        if artefact is None:
            manifest = Manifest.model_validate_json((directory / MANIFEST).read_bytes())
        else:
            manifest = read_manifest(directory, task=artefact.task, runtime=artefact.runtime)
    except (ArtefactError, ValueError) as error:
        sentence = str(error) if artefact else f"{directory.name}/{MANIFEST} is damaged"
        yield config.finding("TRI090", sentence, *config.parameter_path("artefact"))
        return
    yield from _sizes(config, manifest)


def _sizes(config: Config, manifest: Manifest) -> Iterator[Finding]:
    ranges = list(chain.from_iterable(profile.values() for profile in manifest.profiles))
    most = max((shape.max[0] for shape in ranges if shape.max), default=0)
    wanted = config.message.max_batch_size
    if most and wanted > most and config.backend == "tensorrt":
        sentence = f"max_batch_size is {wanted}, the engine was built for {most} at most"
        yield config.finding("TRI091", sentence, "max_batch_size")
