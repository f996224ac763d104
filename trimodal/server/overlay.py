"""Serves a repository with other settings or engines, without touching it: a copy made of links.

Only the config files of changed models are written anew; version folders with their
artefacts, label files and unchanged models are links into the original. With an
engines directory (`<engines>/<model>/<artefact>`) the version folders are folders
of links themselves, so that a path like ../../vision_classify/1/… stays in the copy.
Values are not checked here: each model checks its own settings when it loads.
"""

from __future__ import annotations

import shlex
import shutil
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path

from google.protobuf import text_format  # type: ignore[import-untyped]

from trimodal.errors import ServerError
from trimodal.repository import Model, model_names, read_model, version_folders
from trimodal.server.options import ServerOptions

Changes = Mapping[str, Mapping[str, str]]


def parse_changes(assignments: Iterable[str]) -> dict[str, dict[str, str]]:
    """`["llm.engine=fake"]` → `{"llm": {"engine": "fake"}}`. Raises: ServerError naming what is not so."""
    changes: dict[str, dict[str, str]] = {}
    for assignment in assignments:
        target, equals, value = assignment.partition("=")
        model, dot, parameter = target.partition(".")
        if not (equals and dot and model and parameter):
            raise ServerError(f"--set {assignment}: write it as model.parameter=value")
        try:
            text = value.encode("utf-8", "surrogateescape").decode()
        except UnicodeDecodeError:
            raise ServerError(f"--set {assignment}: a value is UTF-8") from None
        changes.setdefault(model, {})[parameter] = text
    return changes


class ServedRepository:
    """The repository as a server with these options sees it: itself, or an overlay or a link in `folder`.

    Triton (2.51) starts a Python model by a line of shell that quotes nothing: a blank in the repository's
    path made it wait until --ready-timeout, and what follows a semicolon was executed.

    Attributes:
        path: where Triton reads it.
    """

    def __init__(self, options: ServerOptions, folder: Path) -> None:
        self._options = options
        self._own = options.repository.absolute()
        self._is_copy = bool(options.changes or options.engines)
        self._refreshing = threading.Lock()
        self.path = folder / "model_repository"
        if self._is_copy:
            self._copy_to(self.path)
        elif shlex.quote(str(self._own)) == str(self._own):
            self.path = self._own
        else:
            self.path.symlink_to(self._own)

    def refresh(self) -> None:
        """Makes a copy again, of the files as they are now; what is no copy changes by itself.

        Raises ServerError: as `overlay`; the copy is as it was then.
        """
        if not self._is_copy:
            return
        fresh, old = (self.path.with_name(f"{self.path.name}.{end}") for end in ("new", "old"))
        with self._refreshing:
            try:
                self._copy_to(fresh)
                self.path.rename(old)
                try:
                    fresh.rename(self.path)
                except OSError:
                    old.rename(self.path)
                    raise
            finally:
                for done in (fresh, old) if self.path.exists() else (fresh,):
                    shutil.rmtree(done, ignore_errors=True)

    def _copy_to(self, target: Path) -> None:
        options = self._options
        overlay(self._own, target, options.changes, options.profile, options.engines)


def overlay(
    repository: Path, target: Path, changes: Changes, profile: str = "cpu", engines: Path | None = None
) -> Path:
    """Makes `target` a repository like `repository` with these parameters changed and these engines in it.

    `changes` is model → parameter → text; `engines` holds `<model>/<artefact>` directories, of which one of a
    name that the repository has too takes its place, unless the model has several versions: what one of them
    holds is its own then. What is built or written later is seen when the copy is made again. Triton (2.51)
    tells what to load again by the later of mtime and ctime, so a version's folder that is made, as beside
    engines, counts as changed, and one that is a link has the times of its original.

    Raises: ServerError: no such model or engines directory, or a parameter that cannot have an effect.
    """
    repository = repository.resolve()
    names = model_names(repository)
    for name in changes:
        if name not in names:
            raise ServerError(f"cannot set a parameter of '{name}': the models are {', '.join(names)}")
    if engines is not None:
        engines = engines.resolve()
        if not engines.is_dir():
            raise ServerError(f"--engines {engines} is no folder: build into it first, or leave it out")
    target.mkdir(parents=True)
    for name in names:
        changed = name in changes
        if not changed and engines is None:
            (target / name).symlink_to(repository / name)
            continue
        (target / name).mkdir()
        versions = version_folders(repository / name).values()
        for entry in (repository / name).iterdir():
            if engines is not None and entry in versions:
                _merge(entry, engines / name, target / name / entry.name, own_first=len(versions) > 1)
            elif not changed or entry.name != _file(profile).parts[0]:
                (target / name / entry.name).symlink_to(entry)
        if changed:
            model = _changed(repository, name, changes[name], profile)
            file = target / name / _file(profile)
            file.parent.mkdir(exist_ok=True)
            file.write_text(text_format.MessageToString(model.config), "utf-8")
    return target


def _changed(repository: Path, name: str, parameters: Mapping[str, str], profile: str) -> Model:
    model = read_model(repository, name, profile)
    known = model.parameters
    for parameter, value in parameters.items():
        if parameter not in known and model.config.backend != "python":
            has = f"it has {', '.join(known)}" if known else "it has none"
            raise ServerError(f"model {name} has no parameter '{parameter}' ({has})")
        model.config.parameters[parameter].string_value = value
    return model


def _file(profile: str) -> Path:
    """Where the profile's config of a model stands; the overlay is for that profile alone."""
    return Path("config.pbtxt") if profile == "tensorrt" else Path("configs", f"{profile}.pbtxt")


def _merge(version: Path, artefacts: Path, target: Path, *, own_first: bool) -> None:
    """A folder of links to what is in `version` and, before it unless `own_first`, in `artefacts`."""
    own = {entry.name: entry for entry in version.iterdir()}
    built = {}
    if artefacts.is_dir():
        # Hidden ones are builds that have not ended.
        built = {entry.name: entry for entry in artefacts.iterdir() if not entry.name.startswith(".")}
    target.mkdir()
    for name, entry in (built | own if own_first else own | built).items():
        (target / name).symlink_to(entry)
