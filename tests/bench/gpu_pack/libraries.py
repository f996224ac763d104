"""Makes tiny shared libraries with GPU code sections, as nvcc lays them out."""

from __future__ import annotations

import struct

from trimodal.bench.gpu_pack.fatbin import CUBIN, MAGIC, PTX

__all__ = ["CUBIN", "PTX", "container", "elf"]


def container(*entries: tuple[int, int, bytes]) -> bytes:
    """Entries: kind, architecture, code (a multiple of 8 bytes)."""
    body = b""
    for kind, arch, code in entries:
        # 64 bytes: kind, version, header, size, compressed size, …, minor, major, arch, name, flags, …
        body += struct.pack(
            "<HHIQIIHHIIIQQQ", kind, 0x101, 64, len(code), len(code), 0, 0, 1, arch, 0, 0, 0x11, 0, 0
        )
        body += code
    return struct.pack("<IHHQ", MAGIC, 1, 16, len(body)) + body


def elf(sections: dict[str, bytes], loaded: set[str] | None = None) -> bytes:
    """A 64-bit ELF file that is nothing but these sections; `loaded` ones have SHF_ALLOC."""
    names = b"\0" + b"".join(name.encode() + b"\0" for name in (*sections, ".shstrtab"))
    data, rows = b"", [struct.pack("<IIQQQQIIQQ", *[0] * 10)]
    for name, content in {**sections, ".shstrtab": names}.items():
        flags = 2 if loaded is None or name in loaded else 0
        at = names.index(name.encode() + b"\0")
        rows.append(struct.pack("<IIQQQQIIQQ", at, 1, flags, 0, 64 + len(data), len(content), 0, 0, 8, 0))
        data += content + bytes(-len(content) % 8)
    header = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHI", 3, 62, 1)
    header += struct.pack("<QQQIHHHHHH", 0, 0, 64 + len(data), 0, 64, 0, 0, 64, len(rows), len(rows) - 1)
    return header + data + b"".join(rows)
