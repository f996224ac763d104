"""Checks that a built engine fits the machine and the configuration that open it.

A compiled engine runs only with the library version and the SM that it was built with, and
only for shapes of its profiles. Found here, a misfit is one sentence with the command that
builds it again; found by the runtime, it is a page of its log, or a crash.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from trimodal.errors import ArtefactError
from trimodal.manifest import Manifest, Shape
from trimodal.runtimes.gpu_device import Gpu


def check_version(directory: Path, manifest: Manifest, version: str) -> None:
    """Raises: ArtefactError when the engine was not built with exactly the runtime version `version`."""
    if manifest.runtime_version != version:
        built = f"{manifest.runtime} {manifest.runtime_version}"
        raise _misfit(directory, manifest, f"was built with {built}, here is {version}")


def check_gpu(directory: Path, manifest: Manifest, gpus: list[Gpu]) -> None:
    """Raises: ArtefactError when these GPUs are too few for the engine, or one of them has another SM."""
    target = manifest.gpu
    if target is None:
        return
    if len(gpus) < target.count:
        seen = f"{len(gpus) or 'none'} can be seen here"
        raise _misfit(directory, manifest, f"was built for {target.count} GPUs, and {seen}")
    for gpu in gpus[: target.count]:
        if gpu.sm != target.sm:
            other = f"GPU {gpu.index} has {gpu.sm} ({gpu.name})"
            raise _misfit(directory, manifest, f"was compiled for SM {target.sm} ({target.name}), {other}")


def check_shapes(directory: Path, manifest: Manifest, wanted: Mapping[str, Shape], why: str) -> None:
    """Refuses an engine none of whose profiles takes these inputs together.

    Args:
        wanted: input → shape, the batch first. Inputs that a profile does not name are of a fixed shape.
        why: what asks for them, as "max_batch_size 16".

    Raises:
        ArtefactError: names `why`, the first input that does not fit, and the command.
    """
    if not manifest.profiles:
        return
    misfits: list[str] = []
    for profile in manifest.profiles:
        misfits = [
            f"{name} takes {_shape(profile[name].min)} to {_shape(profile[name].max)}, not {_shape(shape)}"
            for name, shape in wanted.items()
            if name in profile and not within(shape, profile[name].min, profile[name].max)
        ]
        if not misfits:
            return
    raise _misfit(directory, manifest, f"does not fit {why}: {misfits[0]}")


def check_precision(directory: Path, manifest: Manifest, expected: str) -> None:
    """Raises: ArtefactError when `expected` is named and the engine has another precision."""
    if expected and manifest.precision != expected:
        wanted = f"and the configuration asks for {expected}"
        raise _misfit(directory, manifest, f"is {manifest.precision}, {wanted}")


def check_checkpoint(directory: Path, manifest: Manifest, expected: str) -> None:
    """Raises: ArtefactError when `expected` (a hash or its beginning) is set and is not the checkpoint's."""
    if expected and not manifest.source_sha256.startswith(expected):
        other = f"hash {manifest.source_sha256[:12]}, not {expected[:12]}"
        raise _misfit(directory, manifest, f"was built from a checkpoint with {other}")


def check_limit(directory: Path, manifest: Manifest, limit: str, parameter: str, wanted: int) -> None:
    """Raises: ArtefactError when `wanted`, the value of `parameter`, exceeds the `limit` in the shapes."""
    built = manifest.shapes.get(limit)
    if isinstance(built, int) and wanted > built:
        remedy = f"lower it, or raise {limit} and"
        raise _misfit(
            directory, manifest, f"was built with {limit} {built}, and {parameter} is {wanted}: {remedy}"
        )


def within(shape: Shape, low: Shape, high: Shape) -> bool:
    """Whether each dimension lies within its bounds, both included, and there are as many as these have."""
    return len(shape) == len(low) == len(high) and all(
        least <= size <= most for size, least, most in zip(shape, low, high, strict=True)
    )


def _shape(shape: Shape) -> str:
    return "×".join(map(str, shape))


def _misfit(directory: Path, manifest: Manifest, what: str) -> ArtefactError:
    joint = "" if what.endswith(" and") else ":"
    return ArtefactError(f"the engine in {directory} {what}{joint} build again with: {manifest.command}")
