"""scripts/ci/audit says what it looked up and what not."""

from __future__ import annotations

import json
import os
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
    reason = "PyPI's advisories are not to be had here, not even of pip==24.0: run it where "
    assert told == (code, f"{nothing}{reason}https://pypi.org answers, without a mirror\n")
    assert audit(tmp_path, "echo no network >&2\nexit 1\n", *options) == (code, f"{nothing}no network\n")
    ended, said = audit(tmp_path, answering(tmp_path, [CLEAN], [CLEAN, SKIPPED]), *options)
    assert ended == code
    assert "1 packages looked up, 0 known vulnerabilities\nnot looked up: a (" in said


def test_a_known_vulnerability_fails(tmp_path: Path) -> None:
    code, told = audit(tmp_path, answering(tmp_path, [CLEAN], [CLEAN, BAD]))
    assert code == 1
    assert told == "b 2: PYSEC-1, fixed in 2.1\n2 packages looked up, 1 known vulnerabilities\n"
    assert audit(tmp_path, answering(tmp_path, [CLEAN], [CLEAN, CLEAN]))[0] == 0
