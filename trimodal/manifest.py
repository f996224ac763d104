"""Writes and reads the manifest beside every built engine: where it came from and what it fits.

A build script writes it last; whoever opens the engine reads it first and refuses one that does not fit.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from trimodal.errors import ArtefactError, OperatorError, legible
from trimodal.files import alone_in
from trimodal.host import free_room, host_cpus
from trimodal.paths import INSTALL_JUDGE

MANIFEST = "manifest.json"
_FULL = 1 << 20  # bytes that are left where a library gave up
Shape = tuple[int, ...]
# What is no text is pydantic's to refuse.
Legible = Annotated[str, BeforeValidator(lambda value: legible(value) if isinstance(value, str) else value)]


class GpuTarget(BaseModel):
    """The GPUs that an engine was compiled on: it runs on others of the same SM only."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sm: str = Field(pattern=r"^\d+\.\d+$", description="compute capability, as 9.0")
    name: str = Field(description="as the driver names it, as NVIDIA H200")
    count: int = Field(1, ge=1, description="GPUs that one engine runs on: tensor × pipeline parallel size")


class InputRange(BaseModel):
    """Shapes of one input that an optimisation profile was built for, the batch first."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    min: Shape
    opt: Shape
    max: Shape


class Manifest(BaseModel):
    """What is known of one built artefact (a directory with `manifest.json` in it)."""

    model_config = ConfigDict(extra="forbid")

    task: str = Field(description="llm, vision, embedding, judge, turn or speech")
    runtime: str = Field(description="openvino, onnxruntime, tensorrt, …")
    runtime_version: str
    precision: str = Field(description="fp32, fp16, int8, int4, …")
    source: Legible = Field(description="name of the checkpoint: a hub id or the directory's own name")
    source_sha256: str = Field(description="hash over the checkpoint's weights and config files")
    built_at: str = Field(default_factory=lambda: datetime.now(timezone.utc).isoformat(timespec="seconds"))
    command: Legible = Field(description="the command that builds it again")
    shapes: dict[str, Any] = Field(default_factory=dict, description="dimensions that a caller relies on")
    gpu: GpuTarget | None = Field(None, description="of a compiled engine; None: it is tied to no GPU")
    profiles: list[dict[str, InputRange]] = Field(
        default_factory=list, description="optimisation profiles: input → shapes"
    )
    calibration: dict[str, Any] = Field(default_factory=dict, description="data behind an INT8 build")
    check: dict[str, Any] = Field(default_factory=dict, description="figures of the numerical check")
    extra: dict[str, Any] = Field(default_factory=dict, description="what the task's engine needs to open it")
    files: dict[str, str] = Field(default_factory=dict, description="file name → SHA-256 of each built file")


def built_at(directory: Path) -> int:
    """When an artefact was built, seconds since 1970; 0 where it has no manifest that says so."""
    try:
        manifest = Manifest.model_validate_json((directory / MANIFEST).read_bytes())
        return int(datetime.fromisoformat(manifest.built_at).timestamp())
    except (OSError, ValueError):
        return 0


def read_manifest(directory: Path, *, task: str, runtime: str | None) -> Manifest:
    """The manifest of `directory`, made for this task and runtime (None: any).

    Raises: ArtefactError: missing, unreadable or made for something else, with the remedy.
    """
    path = directory / MANIFEST
    if not path.is_file():
        remedy = f"build one first (trimodal build {task}, or trimodal build all --recipe starter)"
        if task == "judge":
            remedy = f"install one with: {INSTALL_JUDGE}"
        raise ArtefactError(f"no built {task} engine in {directory}: {remedy}")
    try:
        manifest = Manifest.model_validate_json(path.read_bytes())  # Bytes that are no text are damage, too.
    except OSError as error:
        raise ArtefactError(f"{path} cannot be read: {error.strerror}") from None
    except ValidationError as error:
        fields = ", ".join(".".join(map(str, problem["loc"])) or "JSON" for problem in error.errors())
        raise ArtefactError(f"{path} is damaged ({fields}): build the engine again") from None
    if manifest.task != task or (runtime is not None and manifest.runtime != runtime):
        wanted = f"{task} engine" + (f" for {runtime}" if runtime is not None else "")
        raise ArtefactError(
            f"{directory} holds a {manifest.task} engine for {manifest.runtime}, "
            f"not a {wanted}: build again with: {manifest.command}"
        )
    for name in manifest.files:
        if not (directory / name).is_file():
            raise ArtefactError(f"{directory} lacks {name}: build again with: {manifest.command}")
    return manifest


def check_files(directory: Path, manifest: Manifest, stop: Callable[[], bool] = lambda: False) -> None:
    """Reads all files that were built, several at a time, until `stop()`.

    Raises: ArtefactError: one is not as it was, or was not read to its end; OSError: it cannot be read.
    """
    with ThreadPoolExecutor(host_cpus()) as pool:
        digests = pool.map(lambda name: sha256(directory / name, stop), manifest.files)
        for (name, expected), digest in zip(manifest.files.items(), digests, strict=True):
            if digest != expected:
                raise ArtefactError(
                    f"{directory / name} is not the file that was built: build again with: {manifest.command}"
                )


def check_room(directory: Path, needed: float) -> None:
    """Raises: ArtefactError: a build cannot write there, or not so many bytes, the least that it needs.

    For what takes long: on a full disk it fails at its end, and where a library removes what it has written,
    as OpenVINO (2026.4) does, the disk is not full any more and `told_when_full` knows nothing.
    """
    existing = next(place for place in (directory, *directory.absolute().parents) if place.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        raise ArtefactError(f"nothing can be written to {directory}: name another directory")
    if (free := free_room(existing)) < needed:
        raise ArtefactError(
            f"the build needs at least {needed / 1e6:,.0f} MB in {directory}, whose disk has "
            f"{free / 1e6:,.0f} MB left: free some, or name another directory"
        )


@contextmanager
def told_when_full(directory: Path) -> Iterator[None]:
    """Says so where something fails and the disk of `directory`, or of temporary files, is full.

    Libraries say less: OpenVINO (2026.4) "iostream error", torch nothing of the file. Raises: ArtefactError.
    """
    temporary = None
    with suppress(OSError):  # it is looked for by writing to each: on full disks there is none
        temporary = tempfile.gettempdir()
    try:
        yield
    except Exception as error:
        if _is_full(directory):
            raise ArtefactError(
                f"the disk of {directory} is full: free some, or name another directory"
            ) from None
        # A refusal of ours says what it is about, and that is no temporary file.
        if temporary and not isinstance(error, OperatorError) and _is_full(Path(temporary)):
            raise ArtefactError(
                f"the disk of {temporary} is full: free some, or set TMPDIR to another"
            ) from None
        raise


def _is_full(place: Path) -> bool:
    """Whether there is no room on the disk of `place`, as far as it tells."""
    try:
        return free_room(place) < _FULL
    except OSError:
        return False


@contextmanager
def atomic_directory(target: Path) -> Iterator[Path]:
    """A temporary sibling that replaces `target` when the block ends well. Raises: ArtefactError."""
    if target.is_file():
        raise ArtefactError(f"{target} is a file: move it away, or name another directory")
    with ExitStack() as stack:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            work = stack.enter_context(scratch_directory(target.parent, f".{target.name}-"))
        except OSError as error:
            raise ArtefactError(
                f"{target} cannot be written ({error.strerror}): name another directory, or make it writable"
            ) from None
        work.chmod(0o755)
        with told_when_full(target.parent):
            yield work
        old = work.with_name(work.name + "-old")
        with alone_in(target.parent, where_possible=True):  # another build may end at the same moment
            _put_in_place(work, target, old)
        if old.is_symlink():  # what it leads to is another's
            old.unlink()
        shutil.rmtree(old, ignore_errors=True)


@contextmanager
def scratch_directory(parent: Path, prefix: str) -> Iterator[Path]:
    """A folder in `parent` while the block lasts; those of this prefix that killed processes left go.

    A build that is killed, mostly for memory, leaves gigabytes. Raises: OSError: there can be none.
    """
    with ExitStack() as lock:
        with alone_in(parent, where_possible=True):
            for left in parent.iterdir():
                if re.fullmatch(rf"{re.escape(prefix)}[a-z0-9_]{{8}}", left.name):
                    with suppress(OSError), alone_in(left, patience_s=0):  # whoever works in it has its lock
                        shutil.rmtree(left)
            work = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
            lock.enter_context(alone_in(work, where_possible=True))
        try:
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)


def _put_in_place(work: Path, target: Path, old: Path) -> None:
    """Moves `work` to `target`, and what was there to `old`."""
    try:
        if target.exists():
            os.replace(target, old)
        os.replace(work, target)
    except BaseException:  # also Ctrl-C between the two
        if old.exists() and not target.exists():
            os.replace(old, target)
        raise


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Writes `manifest.json` last, with the hashes of all other files in `directory` (recursively)."""
    manifest.files = {
        str(path.relative_to(directory)): sha256(path)
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != MANIFEST
    }
    (directory / MANIFEST).write_text(manifest.model_dump_json(indent=2) + "\n")


def checkpoint_sha256(directory: Path) -> str:
    """One hash over a checkpoint's weights, config, template and tokenizer files, names included."""
    digest = hashlib.sha256()
    weights = {".safetensors", ".bin", ".pt", ".pth", ".onnx", ".data", ".onnx_data"}
    suffixes = weights | {".json", ".model", ".txt", ".py", ".jinja"}
    for path in sorted(directory.iterdir()):
        if path.is_file() and path.suffix in suffixes:
            digest.update(path.name.encode())
            digest.update(bytes.fromhex(sha256(path)))
    return digest.hexdigest()


def sha256(path: Path, stop: Callable[[], bool] = lambda: False) -> str:
    """Hex SHA-256 of a file; once `stop()` is true, of the part that was read."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while not stop() and (block := file.read(1 << 20)):
            digest.update(block)
    return digest.hexdigest()
