"""Fetches wheels for another machine and unpacks them as pip would into a folder."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

from trimodal.bench.gpu_pack.fatbin import PackError

# pip matches a platform by its exact name, so each glibc that wheels are built for has to be named.
GLIBC = (5, 12, 17, 24, 26, 27, 28, 31, 34, 35, 39)
PLATFORMS = (*(f"manylinux_2_{minor}_x86_64" for minor in GLIBC), "manylinux1_x86_64", "manylinux2014_x86_64")


def download(requirements: Sequence[str], folder: Path, python: str, platforms: Sequence[str]) -> None:
    """Fetches the wheel of each requirement, without what it needs itself, by the `pip` that is configured.

    Raises:
        PackError: pip finds none for that Python and platform; says what pip said.
    """
    command = [
        sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
        "--only-binary=:all:", "--implementation", "cp", "--python-version", python, "--dest", str(folder),
    ]  # fmt: skip
    command += [f"--platform={name}" for name in platforms]
    ended = subprocess.run([*command, *requirements], capture_output=True, text=True)
    if ended.returncode:
        said = [line for line in ended.stderr.splitlines() if line.startswith("ERROR")] or [
            ended.stderr[-500:]
        ]
        raise PackError(f"pip download {' '.join(requirements)}: {' '.join(said)}")


def unpack(wheel: Path, folder: Path) -> None:
    """Unpacks a wheel; what it keeps for purelib and platlib goes where it is imported from.

    Raises:
        PackError: not a wheel.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            for item in archive.infolist():
                path = Path(archive.extract(item, folder))
                if item.external_attr >> 16 & 0o111 and path.is_file():
                    path.chmod(0o755)
    except (OSError, zipfile.BadZipFile) as error:
        raise PackError(f"{wheel.name} cannot be unpacked: {error}") from None
    for data in folder.glob("*.data"):
        for kind in ("purelib", "platlib"):
            if (data / kind).is_dir():
                shutil.copytree(data / kind, folder, dirs_exist_ok=True)
        shutil.rmtree(data)  # scripts, headers
