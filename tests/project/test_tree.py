"""What a clone of the tree weighs, and its setup."""

from __future__ import annotations

import os
import shutil
import subprocess
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parents[2]
JUDGE = "model_repository/judge/"
MOST_BYTES = 15_000_000


def test_the_tracked_files_beside_the_judges_model_are_small() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True)
    files = [name for name in listed.stdout.split("\0") if name and not name.startswith(JUDGE)]
    sizes = {name: (ROOT / name).stat().st_size for name in files if (ROOT / name).is_file()}
    assert len(sizes) > 500
    assert sum(sizes.values()) <= MOST_BYTES, sorted(sizes, key=lambda name: -sizes[name])[:5]


def test_setup_does_nothing_where_the_stamp_is_that_of_the_tree_and_the_interpreter(tmp_path: Path) -> None:
    """It does not even look whether the interpreter fits: that was known when the stamp was written."""
    (tmp_path / "scripts").mkdir()
    for name in ("scripts/setup", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path / name)
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\n[ "$1" = -VV ] && echo "Python 3.11.7" && exit\necho "asked: $1"; exit 1\n')
    python.chmod(0o755)
    inputs = [
        (tmp_path / name).read_bytes() for name in ("pyproject.toml", "constraints.txt", "scripts/setup")
    ]
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / ".stamp").write_text(
        sha256(b"".join(inputs) + b"Python 3.11.7\n").hexdigest() + "\n"
    )

    def run() -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHON": str(python)}
        command = [tmp_path / "scripts" / "setup"]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)

    assert (run().returncode, run().stdout) == (0, "")
    with (tmp_path / "constraints.txt").open("a") as file:
        file.write("# another\n")
    assert "Python 3.10, 3.11 or 3.12 with venv is needed" in run().stderr


@pytest.mark.skipif(not shutil.which("flock"), reason="util-linux's flock is not installed")
def test_two_setups_of_one_clone_come_one_after_the_other(tmp_path: Path) -> None:
    """Two demos of a fresh clone had two pips remove and install the same files."""
    (tmp_path / "scripts").mkdir()
    for name in ("scripts/setup", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path / name)
    python, log = tmp_path / "python", tmp_path / "log"
    python.write_text(
        f"""#!/bin/sh
case "$1 $2" in
  -V*) echo "Python 3.11.7" ;;
  "-m venv") mkdir -p .venv/bin; cp "$0" .venv/bin/python ;;
  "-m pip") echo begins >>{log}; sleep 0.2; echo ends >>{log} ;;
esac
"""
    )
    python.chmod(0o755)
    command, environment = [tmp_path / "scripts" / "setup"], {**os.environ, "PYTHON": str(python)}
    setups = [subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    told = [setup.communicate(timeout=60)[1] for setup in setups]
    assert [setup.returncode for setup in setups] == [0, 0]
    assert sum("installing" in one for one in told) == 1
    assert log.read_text().split() == ["begins", "ends"] * 3


def test_what_is_pinned_for_a_python_takes_that_python() -> None:
    """Under 3.10 one pin of pycparser 3.12, which wants 3.11, had pip look for another way without end."""
    wrong, looked = [], 0
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if line.startswith("#"):
            continue
        pin = Requirement(line)
        try:
            installed = distribution(pin.name)
        except PackageNotFoundError:
            continue  # another Python's
        if str(pin.specifier) != f"=={installed.version}":
            continue
        looked += 1
        takes = SpecifierSet(installed.metadata.get("Requires-Python", ""))
        for version in ("3.10", "3.11", "3.12"):
            if (
                pin.marker is None or pin.marker.evaluate({"python_version": version})
            ) and version not in takes:
                wrong.append(f"{line}: not for Python {version}")
    assert wrong == []
    assert looked > 100
