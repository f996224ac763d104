"""Keeps the builder's timing cache on disk: how long each kernel took on this GPU.

A directory has a file for each TensorRT version and GPU; a file of another one is refused by TensorRT itself.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, cast

from trimodal.build_support import console
from trimodal.errors import ArtefactError
from trimodal.manifest import GpuTarget

if TYPE_CHECKING:
    import tensorrt
    from typing_extensions import Buffer


def timing_cache_file(path: Path | None, version: str, target: GpuTarget) -> Path | None:
    """`path` itself, or in a directory the file of this version and GPU; None for None."""
    if path is None or (path.suffix and not path.is_dir()):
        return path
    gpu = "-".join(re.findall(r"[a-z0-9]+", target.name.lower()))
    return path / f"tensorrt-{version}-sm{target.sm}-{gpu}.timing"


def load_timing_cache(config: tensorrt.IBuilderConfig, path: Path) -> None:
    """Gives the builder the timings of `path`, or an empty cache. Raises: ArtefactError: it is not taken."""
    try:
        timings = path.read_bytes() if path.is_file() else b""
    except OSError as error:
        raise ArtefactError(f"the timing cache {path} cannot be read: {error.strerror}") from None
    # None for bytes that are no cache: the published signature does not say so.
    cache: tensorrt.ITimingCache | None = config.create_timing_cache(timings)
    if cache is None or not config.set_timing_cache(cache, ignore_mismatch=False):
        raise ArtefactError(
            f"TensorRT does not take the timing cache {path}, of another version or GPU: delete it, or name "
            "another --timing-cache (a directory keeps one for each)"
        )


def store_timing_cache(config: tensorrt.IBuilderConfig, path: Path) -> None:
    """Writes what the builder has learnt. The plan is built by then: a failure here is told, not raised."""
    cache: tensorrt.ITimingCache | None = config.get_timing_cache()
    if cache is None:
        return
    partial = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(bytes(cast("Buffer", cache.serialize())))
        os.replace(partial, path)
    except OSError as error:
        console.print(
            f"timing cache {path} not written: {error.strerror or error}", markup=False, emoji=False
        )
