"""Puts pieces of packed wheels together: python3 unpack.py SITE, beside pieces.json. Standard library alone.

Archives whose pieces are all here are checked and unpacked into SITE. Pieces may come in several trips:
what SITE has already is left out, and the exit code is 1 as long as pieces are missing.
"""

import hashlib
import io
import json
import lzma
import sys
import tarfile
from pathlib import Path
from typing import Any


class Joined(io.RawIOBase):
    """Files one after the other as one."""

    def __init__(self, files: list[Path]) -> None:
        self._files = [file.open("rb") for file in files]

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        for file in self._files:
            if size := file.readinto(buffer):
                return size
        return 0


def unpack(here: Path, site: Path) -> int:
    site.mkdir(parents=True, exist_ok=True)
    missing = []
    for name, pieces in json.loads((here / "pieces.json").read_text()).items():
        mark = site / f".unpacked-{name}"
        if mark.exists():
            continue
        lacking = [piece for piece in pieces if not (here / piece).is_file()]
        missing += lacking
        if lacking:
            continue
        for piece, wanted in pieces.items():
            if hashlib.sha256((here / piece).read_bytes()).hexdigest() != wanted:
                sys.exit(f"unpack: {piece} is damaged: bring it again")
        joined: Any = Joined([here / piece for piece in pieces])
        with (
            lzma.open(io.BufferedReader(joined)) as packed,
            tarfile.open(fileobj=packed, mode="r|") as archive,
        ):
            # Since Python 3.10.12 and 3.11.4; what is unpacked was hashed when it was packed.
            safely: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
            archive.extractall(site, **safely)
        mark.touch()
        print(f"unpacked {name}")
    if missing:
        print(f"missing: {', '.join(missing)}", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python3 unpack.py SITE")
    sys.exit(unpack(Path(__file__).resolve().parent, Path(sys.argv[1])))
