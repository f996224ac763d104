"""Runs the rules over a repository and leaves out what was not asked for or is switched off."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from trimodal.check.checks.batching import check_batching
from trimodal.check.checks.engines import check_engines
from trimodal.check.checks.ensemble import check_ensemble, check_members
from trimodal.check.checks.knobs import check_delays, check_knobs, check_memory
from trimodal.check.checks.model import check_model
from trimodal.check.checks.profiles import check_profiles
from trimodal.check.checks.python_code import check_python
from trimodal.check.checks.security import check_deployment
from trimodal.check.checks.syntax import check_syntax
from trimodal.check.findings import Finding, Target
from trimodal.check.repository import Repository
from trimodal.check.source import ignored_rules

_OF_ONE = (check_model, check_batching, check_knobs, check_engines, check_python)


def examine(
    repository: Repository, profiles: Sequence[str], target: Target, rules: frozenset[str]
) -> list[Finding]:
    """Findings in the order of files and lines, each once, however many profiles read the file."""
    found = {
        (finding.rule, finding.place, finding.sentence): finding
        for finding in _all(repository, profiles, target)
        if finding.rule in rules
    }
    return sorted(_kept(list(found.values())), key=_order)


def _order(finding: Finding) -> tuple[str, int, int, str, str]:
    place = finding.place
    return str(place.file), place.line, place.column, finding.rule, finding.sentence


def _all(repository: Repository, profiles: Sequence[str], target: Target) -> Iterator[Finding]:
    for config in repository.files(profiles):
        yield from check_syntax(config, target)
        if config.message is not None:
            for check in _OF_ONE:
                yield from check(config, target)
    folders = frozenset(path.name for path in repository.path.iterdir() if path.is_dir())
    for profile in profiles:
        models = {name: one for name, one in repository.of(profile).items() if one.message is not None}
        for config in models.values():
            yield from check_ensemble(config, models, target)
            yield from check_delays(config, models, target)
        yield from check_members(models, folders)
        yield from check_memory(models, target)
    for files in repository.configs.values():
        yield from check_profiles({name: one for name, one in files.items() if name in profiles})
    yield from check_deployment(target)


def _kept(findings: list[Finding]) -> Iterator[Finding]:
    """Without those that a comment in the file switches off."""
    ignored: dict[Path, dict[int, frozenset[str]]] = {}
    for file in {finding.place.file for finding in findings}:
        with suppress(OSError):  # told by a finding
            ignored[file] = ignored_rules(file.read_text(encoding="utf-8", errors="replace"))
    for finding in findings:
        if finding.rule not in ignored.get(finding.place.file, {}).get(finding.place.line, ()):
            yield finding
