"""Compresses a folder into pieces of limited size, with a manifest of their hashes."""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import tarfile
from pathlib import Path

MANIFEST = "pieces.json"
BLOCK = 1 << 20


class Pieces(io.RawIOBase):
    """A file that goes on in a new one, NAME.000, NAME.001, …, after `limit` bytes."""

    def __init__(self, folder: Path, name: str, limit: int) -> None:
        self.files: list[Path] = []
        self._folder, self._name, self._limit = folder, name, limit
        self._room = 0

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        rest = memoryview(data)  # type: ignore[arg-type]
        size = rest.nbytes
        while rest:
            if not self._room:
                self.files.append(self._folder / f"{self._name}.{len(self.files):03}")
                self.files[-1].unlink(missing_ok=True)
                self._room = self._limit
            part, rest = rest[: self._room], rest[self._room :]
            with self.files[-1].open("ab") as file:
                file.write(part)
            self._room -= part.nbytes
        return size


def compress(folder: Path, name: str, out: Path, limit: int, preset: int = 6) -> list[Path]:
    """`folder`'s files as NAME.tar.xz in pieces of at most `limit` bytes in `out`."""
    pieces = Pieces(out, f"{name}.tar.xz", limit)
    with (
        io.BufferedWriter(pieces, BLOCK) as buffer,
        lzma.open(buffer, "wb", preset=preset) as packed,
        tarfile.open(fileobj=packed, mode="w|") as archive,
    ):
        for path in sorted(folder.rglob("*")):
            archive.add(path, path.relative_to(folder), recursive=False, filter=_plain)
    return pieces.files


def _plain(item: tarfile.TarInfo) -> tarfile.TarInfo:
    """Without owner and time: the same wheel gives the same pieces."""
    item.uid = item.gid = item.mtime = 0
    item.uname = item.gname = ""
    return item


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def write_manifest(out: Path, archives: dict[str, list[Path]]) -> None:
    """Writes the pieces of each archive in order, with their hashes."""
    told = {name: {file.name: sha256(file) for file in files} for name, files in archives.items()}
    (out / MANIFEST).write_text(json.dumps(told, indent=1) + "\n")
