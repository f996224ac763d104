"""Starts servers from repositories that are damaged, or that change while they load."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.chaos.faults.base import CannotBeMade
from tests.chaos.judge import Row
from tests.chaos.operations import KINDS, clients
from tests.chaos.served import ROOT, START_S, Gone, Served
from trimodal.manifest import MANIFEST

REPOSITORY = ROOT / "model_repository"
# Model and artefact of profile cpu → a kind of request that it answers.
BUILT = {
    "embedding/1/onnx-fp32": "embedding",
    "llm/1/openvino-int8": "text",
    "speech_recognize/1/ctranslate2-int8": "speech",
    "vision_classify/1/onnx-int8": "picture",
}
SERVED_BY = {"vision_classify": "vision", "speech_recognize": "speech"}


def copied(directory: Path) -> Path:
    """The repository with what is built in it; files are links that `changed` breaks first."""
    target = directory / "repository"
    shutil.copytree(
        REPOSITORY, target, copy_function=_link, ignore=shutil.ignore_patterns("__pycache__", "timing-cache")
    )
    return target


def _link(source: str, target: str) -> None:
    Path(target).hardlink_to(Path(source).resolve())


def changed(file: Path, change: Callable[[bytes], bytes]) -> None:
    """Rewrites one file of a copy."""
    data = change(file.read_bytes())
    file.unlink()
    file.write_bytes(data)


def flipped(data: bytes) -> bytes:
    """One byte in the middle, all of its bits."""
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 0xFF]) + data[middle + 1 :]


def _damages(artefact: Path) -> Iterator[tuple[str, str, Callable[[bytes], bytes]]]:
    """File, what is done to it, and how."""
    for file in sorted(path for path in artefact.rglob("*") if path.is_file()):
        yield str(file.relative_to(artefact)), "a byte flipped", flipped
    yield MANIFEST, "cut", lambda data: data[: len(data) // 2]
    yield MANIFEST, "emptied", lambda data: b""
    yield MANIFEST, "of another task", lambda data: data.replace(b'"task": "', b'"task": "x')


async def corrupt(artefact: str, directory: Path) -> Row:
    """Each file of a built artefact damaged in turn: the server must refuse to start, and name it."""
    row = Row(f"corrupt-{artefact.partition('/')[0]}", lost="–")
    place = REPOSITORY / artefact
    if not (place / MANIFEST).is_file():
        raise CannotBeMade(f"{artefact} is not built: trimodal build all --recipe starter")
    model = artefact.partition("/")[0]
    refused, took = 0, 0.0
    damages = list(_damages(place))
    for number, (name, how, change) in enumerate(damages):
        own = directory / str(number)
        own.mkdir()
        repository = copied(own)
        changed(repository / artefact / name, change)
        began = time.monotonic()
        said = await asyncio.to_thread(_said, own, repository, SERVED_BY.get(model, model))
        took = max(took, time.monotonic() - began)
        if said is None:
            row.missed.append(f"{name}, {how}: served all the same")
        elif "Traceback" in said:
            row.missed.append(f"{name}, {how}: a traceback")
        elif Path(name).name not in said and Path(artefact).name not in said:
            row.missed.append(f"{name}, {how}: not named: {said[-200:]}")
        else:
            refused += 1
        shutil.rmtree(own)
    row.saw = f"{refused} of {len(damages)} refused by the file's name, the slowest after {took:.1f} s"
    return row


def _said(directory: Path, repository: Path, model: str) -> str | None:
    """What a server says that does not start; None: it serves."""
    arguments = ["--model-repository", str(repository)]
    try:
        served = Served(directory, real=True, models=[model], arguments=arguments)
    except Gone as gone:
        return str(gone)
    served.kill()
    return None


# What happens to a model's folder while it loads.
CHANGES: dict[str, Callable[[Path], None]] = {
    "config emptied": lambda model: changed(_config(model), lambda data: b""),
    "config garbled": lambda model: changed(_config(model), flipped),
    "config removed": lambda model: _config(model).unlink(),
    "model.py removed": lambda model: (model / "1" / "model.py").unlink(),
    "model.py cut": lambda model: changed(model / "1" / "model.py", lambda data: data[: len(data) // 2]),
    "folder removed": lambda model: shutil.rmtree(model),
}
MOMENTS_S = (0.3, 0.9, 1.5)


def _config(model: Path) -> Path:
    own = model / "configs" / "cpu.pbtxt"
    return own if own.is_file() else model / "config.pbtxt"


async def changes_while_loading(directory: Path) -> Row:
    """Each change at several moments of a start: served as it was, or refused in a sentence."""
    row = Row("repository-changed-while-loading", lost="–")
    served = refused = 0
    for change_name, change in CHANGES.items():
        for moment in MOMENTS_S:
            # No blank in it: the Python backend (2.51) starts its stub by an unquoted line of the shell.
            own = directory / f"{change_name} {moment}".replace(" ", "-")
            own.mkdir()
            try:
                await _start_while(own, change, moment)
                served += 1
            except Gone as gone:
                refused += 1
                said = str(gone)
                if "trimodal serve: " not in said or "Traceback" in said:
                    row.missed.append(f"{change_name} after {moment} s: {said[-300:]}")
            except Exception as error:
                row.missed.append(f"{change_name} after {moment} s: {type(error).__name__}: {error}")
            shutil.rmtree(own)
    row.saw = f"{served} starts served as the repository was, {refused} refused in a sentence"
    return row


async def _start_while(directory: Path, change: Callable[[Path], None], moment: float) -> None:
    repository = copied(directory)
    arguments = ["--model-repository", str(repository)]
    served = Served(directory, models=["embedding", "vision"], arguments=arguments, wait=False)
    try:
        await asyncio.sleep(moment)
        change(repository / "embedding")
        await asyncio.wait_for(asyncio.to_thread(served.wait_ready), START_S)
        async with clients(served.url, served.gateway) as asked:
            for kind in ("embedding", "picture"):
                await KINDS[kind](asked)
    finally:
        await asyncio.to_thread(served.kill)
