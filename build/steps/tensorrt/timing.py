"""Keeps the builder's timing cache on disk: how long each kernel took on this GPU.

Timings of another TensorRT version or SM are refused, never mixed in: a note beside the cache says
whose they are. A cache without a note (trtexec writes such) is left to TensorRT's own check.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, cast

from trimodal.build_support import console
from trimodal.errors import ArtefactError
from trimodal.manifest import GpuTarget

if TYPE_CHECKING:
    import tensorrt
    from typing_extensions import Buffer


def timing_cache_file(path: Path | None, version: str, target: GpuTarget) -> Path | None:
    """`path` itself, or in a directory the file of this version and GPU; None for None.

    Raises:
        ArtefactError: a file whose note names another version, SM or GPU.
    """
    if path is None:
        return None
    if path.is_dir() or not path.suffix:
        return path / f"tensorrt-{version}-sm{target.sm}-{_word(target.name)}.timing"
    note_file = _note_file(path)
    if path.is_file() and note_file.is_file():
        try:
            note = json.loads(note_file.read_bytes())
            whose = f"TensorRT {note['tensorrt']} on SM {note['sm']} ({note['gpu']})"
        except (OSError, ValueError, KeyError, TypeError):
            raise ArtefactError(f"{note_file} is damaged: delete it and {path.name}") from None
        if note != _note(version, target):
            raise ArtefactError(
                f"the timing cache {path} is of {whose}, "
                f"here is {version} on {target.sm} ({target.name}): name another --timing-cache "
                "(a directory keeps one for each)"
            )
    return path


def load_timing_cache(config: tensorrt.IBuilderConfig, path: Path, version: str, target: GpuTarget) -> None:
    """Gives the builder the timings of `path`, or an empty cache. Raises: ArtefactError: it is not taken."""
    try:
        timings = path.read_bytes() if path.is_file() else b""
    except OSError as error:
        raise ArtefactError(f"the timing cache {path} cannot be read: {error.strerror}") from None
    # None for bytes that are no cache: the published signature does not say so.
    cache: tensorrt.ITimingCache | None = config.create_timing_cache(timings)
    if cache is None or not config.set_timing_cache(cache, ignore_mismatch=False):
        raise ArtefactError(
            f"TensorRT {version} does not take the timing cache {path} on {target.name}: delete it, "
            "or name another --timing-cache"
        )


def store_timing_cache(config: tensorrt.IBuilderConfig, path: Path, version: str, target: GpuTarget) -> None:
    """Writes what the builder has learnt. The plan is built by then: a failure here is told, not raised."""
    cache: tensorrt.ITimingCache | None = config.get_timing_cache()
    if cache is None:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # The note first: a cache that is newer than its note would be refused for nothing, or worse.
        _replace(_note_file(path), json.dumps(_note(version, target), indent=2).encode() + b"\n")
        _replace(path, bytes(cast("Buffer", cache.serialize())))
    except OSError as error:
        console.print(
            f"timing cache {path} not written: {error.strerror or error}", markup=False, emoji=False
        )


def _replace(path: Path, data: bytes) -> None:
    partial = path.with_name(f".{path.name}.partial")
    partial.write_bytes(data)
    os.replace(partial, path)


def _note(version: str, target: GpuTarget) -> dict[str, str]:
    return {"tensorrt": version, "sm": target.sm, "gpu": target.name}


def _note_file(path: Path) -> Path:
    return path.with_name(path.name + ".json")


def _word(name: str) -> str:
    return "-".join("".join(letter if letter.isalnum() else " " for letter in name.lower()).split())
