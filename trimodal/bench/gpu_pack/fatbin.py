"""Zeroes the GPU code in a shared library that one GPU does not run, in place: compression removes it.

A library keeps its GPU code in the ELF section `.nv_fatbin` (`__nv_relfatbin` before device linking): one
container for each source file, with one entry for each architecture. The driver reads an entry's header to
choose, and the code of the chosen entry alone. So only code is zeroed: every offset, size and header stays,
and the loader sees the same file. NVIDIA publishes no description of the format; the fields here are those
that its own libraries have (ctranslate2 4.8.5, onnxruntime-gpu 1.31.1, torch 2.11), and whatever does not
read as they do is refused, not changed.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trimodal.errors import OperatorError

SECTIONS = (".nv_fatbin", "__nv_relfatbin")
DEBUG = ".debug_"  # read by debuggers alone
MAGIC = 0xBA55ED50
CONTAINER = struct.Struct("<IHHQ")  # magic, version, bytes of this header, bytes of all entries
# kind, version, bytes of this header, bytes of the code, …, architecture as 90
ENTRY = struct.Struct("<HHIQ12xI")
PTX, CUBIN = 1, 2
_SECTION = struct.Struct("<IIQQQQ")  # name, type, flags, address, offset, size: how a section header begins
_NOBITS, _ALLOC = 8, 2


class PackError(OperatorError):
    """What cannot be packed: the sentence names it."""


@dataclass
class Stripped:
    """Of one library: code that stays and that was zeroed, in bytes.

    Attributes:
        containers: in all; `without`: of them hold nothing that this GPU can run.
    """

    kept: int = 0
    zeroed: int = 0
    containers: int = 0
    without: int = 0


@dataclass(frozen=True)
class Entry:
    """Code for one architecture (90 is SM 9.0): `size` bytes at `start` of the file."""

    kind: int
    arch: int
    start: int
    size: int


def strip(path: Path, sm: int) -> Stripped:
    """Zeroes what a GPU of that SM (90 for 9.0) does not run, and debug information. Not ELF: left alone.

    Raises:
        PackError: a section that is not built as known; the file is unchanged.
    """
    found = Stripped()
    with path.open("r+b") as file:
        if file.read(4) != b"\x7fELF":
            return found
        with mmap.mmap(file.fileno(), 0) as data:
            unwanted: list[tuple[int, int]] = []
            try:
                for name, start, size, allocated in sections(data):
                    if name in SECTIONS:
                        for entries in containers(data, start, size):
                            _choose(entries, sm, found, unwanted)
                    elif name.startswith(DEBUG) and not allocated:
                        unwanted.append((start, size))
                        found.zeroed += size
            except (struct.error, IndexError, ValueError) as error:
                raise PackError(f"{path.name}: {error or 'it is cut off'}") from None
            for start, size in unwanted:  # only now: a file that is refused stays as it was
                data[start : start + size] = bytes(size)
    return found


def wanted(entries: list[Entry], sm: int) -> list[Entry]:
    """The entries that a GPU may run: its newest machine code, else the newest PTX, which it compiles."""
    fitting = [
        one.arch for one in entries if one.kind == CUBIN and one.arch // 10 == sm // 10 and one.arch <= sm
    ]
    if fitting:
        # More than one of an architecture: sm_90 and sm_90a, say.
        return [one for one in entries if one.kind == CUBIN and one.arch == max(fitting)]
    older = [one.arch for one in entries if one.kind == PTX and one.arch <= sm]
    return [one for one in entries if one.kind == PTX and one.arch == max(older)] if older else []


def _choose(entries: list[Entry], sm: int, found: Stripped, unwanted: list[tuple[int, int]]) -> None:
    keep = wanted(entries, sm)
    found.containers += 1
    found.without += not keep
    for one in entries:
        # Other kinds, as code for the linker (LTO), are not chosen by the driver: they stay.
        if one in keep or one.kind not in (PTX, CUBIN):
            found.kept += one.size
        else:
            found.zeroed += one.size
            unwanted.append((one.start, one.size))


def containers(data: mmap.mmap | bytes, start: int, size: int) -> Iterator[list[Entry]]:
    """The entries of each container in a section. Raises ValueError: something else is in it."""
    at, end = start, start + size
    while at < end:
        if not any(data[at : min(at + 8, end)]):  # padding between containers
            at += 8
            continue
        magic, _, header, length = CONTAINER.unpack_from(data, at)
        if magic != MAGIC or at + header + length > end:
            raise ValueError(f"no GPU code container at byte {at}")
        at += header
        yield list(_entries(data, at, at + length))
        at += length


def _entries(data: mmap.mmap | bytes, at: int, end: int) -> Iterator[Entry]:
    while at < end:
        kind, _, header, length, arch = ENTRY.unpack_from(data, at)
        if header < ENTRY.size or at + header + length > end:
            raise ValueError(f"no entry of a GPU code container at byte {at}")
        yield Entry(kind, arch, at + header, length)
        at += header + length


def sections(data: mmap.mmap | bytes) -> Iterator[tuple[str, int, int, bool]]:
    """Name, offset, size of each section that is in the file, and whether it is loaded."""
    if data[4:6] != b"\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF file")
    (table,) = struct.unpack_from("<Q", data, 0x28)
    step, count, names = struct.unpack_from("<HHH", data, 0x3A)
    rows = [_SECTION.unpack_from(data, table + index * step) for index in range(count)]
    if not rows:
        return
    texts = rows[names][4]
    for name, kind, flags, _, offset, size in rows:
        if kind == _NOBITS:
            continue
        if offset + size > len(data):
            raise ValueError("a section ends behind the file")
        text = bytes(data[texts + name : data.find(b"\0", texts + name)]).decode(errors="replace")
        yield text, offset, size, bool(flags & _ALLOC)
