"""scripts/ci/audit says what it looked up and what not; scripts/ci/sbom lists what is installed."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SKIPPED = {"name": "a", "skip_reason": "Dependency not found on PyPI and could not be audited: a (1)"}
CLEAN = {"name": "a", "version": "1", "vulns": []}
BAD = {"name": "b", "version": "2", "vulns": [{"id": "PYSEC-1", "fix_versions": ["2.1"]}]}


def audit(folder: Path, program: str, *options: str) -> tuple[int, str]:
    """Exit code and output of scripts/ci/audit with this pip-audit, a shell script."""
    (folder / "pip-audit").write_text(f"#!/bin/sh\n{program}")
    (folder / "pip-audit").chmod(0o755)
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "ci" / "audit", *options],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PIP_AUDIT": str(folder / "pip-audit")},
    )
    return done.returncode, done.stdout + done.stderr


def answering(folder: Path, first: list[object], rest: list[object]) -> str:
    """A pip-audit that answers to one package and to several with these."""
    for name, answer in (("one", first), ("all", rest)):
        (folder / name).write_text(json.dumps({"dependencies": answer}))
    pick = f'[ "$(grep -c . "${{last#*=}}")" = 1 ] && cat {folder}/one || cat {folder}/all\n'
    return f"for last; do :; done\n{pick}"


@pytest.mark.parametrize(("options", "code"), [((), 0), (("--strict",), 1)])
def test_what_could_not_be_looked_up_is_said_and_fails_where_that_is_asked_for(
    options: tuple[str, ...], code: int, tmp_path: Path
) -> None:
    """pip-audit itself calls it "No known vulnerabilities found"."""
    nothing = "scripts/ci/audit: nothing was looked up: "
    told = audit(tmp_path, answering(tmp_path, [SKIPPED], []), *options)
    assert told == (code, f"{nothing}{SKIPPED['skip_reason']}\n")
    assert audit(tmp_path, "echo no network >&2\nexit 1\n", *options) == (code, f"{nothing}no network\n")
    ended, said = audit(tmp_path, answering(tmp_path, [CLEAN], [CLEAN, SKIPPED]), *options)
    assert ended == code
    assert "1 packages looked up, 0 known vulnerabilities\nnot looked up: a (" in said


def test_a_known_vulnerability_fails(tmp_path: Path) -> None:
    code, told = audit(tmp_path, answering(tmp_path, [CLEAN], [CLEAN, BAD]))
    assert code == 1
    assert told == "b 2: PYSEC-1, fixed in 2.1\n2 packages looked up, 1 known vulnerabilities\n"
    assert audit(tmp_path, answering(tmp_path, [CLEAN], [CLEAN, CLEAN]))[0] == 0


@pytest.mark.slow
def test_the_sbom_lists_every_pinned_package_that_is_installed(tmp_path: Path) -> None:
    file = tmp_path / "sbom.json"
    done = subprocess.run(
        [ROOT / "scripts" / "ci" / "sbom", file],
        capture_output=True,
        text=True,
        timeout=170,
        env={**os.environ, "PYTHON": sys.executable},
    )
    if "No matching distribution" in done.stderr or "Could not find a version" in done.stderr:
        pytest.skip(f"no cyclonedx-bom here: {done.stderr[-200:]}")
    assert done.returncode == 0, done.stderr
    sbom = json.loads(file.read_text())
    assert sbom["bomFormat"] == "CycloneDX"
    listed = {canonical(one["name"]): one["version"] for one in sbom["components"]}
    pinned = dict(re.findall(r"^([\w.-]+)==([^ ;\n]+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    assert len(pinned) > 100
    installed = {canonical(one.metadata["Name"]): one.version for one in importlib.metadata.distributions()}
    for name in map(canonical, pinned):
        assert listed.get(name) == installed.get(name), name
    assert "cyclonedx-bom" not in listed


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
