"""Serves a repository with some settings changed, without touching it: a copy made of links.

Only the config files of changed models are written anew; version folders with their
artefacts, label files and unchanged models are links into the original. Values are
not checked here: each model checks its own settings when it loads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from google.protobuf import text_format  # type: ignore[import-untyped]

from trimodal.errors import ServerError
from trimodal.server.options import Edit
from trimodal.server.repository import model_names, read_model

Changes = Mapping[str, Mapping[str, str]]


def parse_changes(assignments: Iterable[str]) -> dict[str, dict[str, str]]:
    """`["llm.engine=fake"]` → `{"llm": {"engine": "fake"}}`.

    Raises:
        ServerError: names an assignment that is not model.parameter=value.
    """
    changes: dict[str, dict[str, str]] = {}
    for assignment in assignments:
        target, equals, value = assignment.partition("=")
        model, dot, parameter = target.partition(".")
        if not (equals and dot and model and parameter):
            raise ServerError(f"--set {assignment}: write it as model.parameter=value")
        changes.setdefault(model, {})[parameter] = value
    return changes


def overlay(
    repository: Path, target: Path, changes: Changes, profile: str = "cpu", edit: Edit | None = None
) -> Path:
    """Makes `target` a repository like `repository` with these parameters changed.

    Args:
        changes: model → parameter → text. A Python model may be given one that its file
            leaves at its default: its own settings know it or refuse it by name.
        edit: may change anything else of each parsed ModelConfig in place.

    Raises:
        ServerError: a model that the repository lacks, or a parameter that cannot have an effect.
    """
    repository = repository.resolve()
    names = model_names(repository)
    for name in changes:
        if name not in names:
            raise ServerError(f"cannot set a parameter of '{name}': the models are {', '.join(names)}")
    target.mkdir(parents=True)
    for name in names:
        if name not in changes and edit is None:
            (target / name).symlink_to(repository / name)
            continue
        model = read_model(repository, name, profile)
        known = model.parameters
        for parameter, value in changes.get(name, {}).items():
            if parameter not in known and model.config.backend != "python":
                has = f"it has {', '.join(known)}" if known else "it has none"
                raise ServerError(f"model {name} has no parameter '{parameter}' ({has})")
            model.config.parameters[parameter].string_value = value
        if edit:
            edit(name, model.config)
        (target / name).mkdir()
        for entry in model.directory.iterdir():
            if entry.name not in ("config.pbtxt", "configs"):
                (target / name / entry.name).symlink_to(entry)
        text = text_format.MessageToString(model.config)
        # The same under both names: whichever profile the server is started with reads it.
        for file in (target / name / "config.pbtxt", target / name / "configs" / f"{profile}.pbtxt"):
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)
    return target
