"""Reads a golden set, with the files that it names; an error names the line and the field."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from trimodal.audio.files import AudioError, read_blocks
from trimodal.audio.values import Samples
from trimodal.errors import OperatorError
from trimodal.files import read_at_most
from trimodal.regress.schema import LINE, Expectation, Line

_BLOCK_S = 30.0


@dataclass(frozen=True)
class Case:
    """One line with what its files hold.

    Attributes:
        number: of the line, from 1.
        image: contents of the file. audio: float32[n], 16 kHz mono.
        digest: SHA-256 in hex of all that is sent; runs of the same one can be compared.
    """

    number: int
    line: Line
    image: bytes | None
    audio: Samples | None
    digest: str

    @property
    def id(self) -> str:
        return self.line.id

    @property
    def expect(self) -> Expectation:
        return self.line.expect


def read_cases(path: Path) -> list[Case]:
    """Reads the cases of a golden set (JSON Lines, empty lines are skipped), in their order.

    Raises:
        OperatorError: names the file, and the line and field that is wrong.
    """
    cases: list[Case] = []
    seen: dict[str, int] = {}
    for number, text in enumerate(_read(path).removeprefix(b"\xef\xbb\xbf").splitlines(), 1):
        if not text.strip():
            continue
        try:
            line = LINE.validate_json(text)
        except ValidationError as error:
            problem = _problem(error.errors(include_url=False)[0])
            raise OperatorError(f"{path}, line {number}: {problem}") from None
        where = f"{path}, line {number} ({line.id})"
        if line.id in seen:
            raise OperatorError(f"{where}: id is that of line {seen[line.id]}, too: each needs its own")
        seen[line.id] = number
        cases.append(_with_files(line, number, path.parent, where))
    if not cases:
        raise OperatorError(f"{path}: there is no case in it")
    return cases


def _problem(problem: ErrorDetails) -> str:
    """One mistake of a line as a sentence."""
    # The first place is the task that the line was read as.
    place = ".".join(map(str, problem["loc"][1:]))
    reason = problem["msg"].removeprefix("Value error, ")
    return f"{place}: {reason}" if place else reason


def _with_files(line: Line, number: int, folder: Path, where: str) -> Case:
    digest = hashlib.sha256(f"{line.task}\n{line.input.model_dump_json(exclude_none=True)}".encode())
    image = audio = None
    if name := getattr(line.input, "image", None):
        image = _read(folder / name, f"{where}: input.image: ")
        digest.update(b"image" + hashlib.sha256(image).digest())
    if name := getattr(line.input, "audio", None):
        try:
            audio = np.concatenate(list(read_blocks(folder / name, _BLOCK_S)))
        except AudioError as error:
            raise OperatorError(f"{where}: input.audio: {error}") from None
        digest.update(b"audio" + hashlib.sha256(audio.tobytes()).digest())
    return Case(number, line, image, audio, digest.hexdigest())


def _read(path: Path, where: str = "") -> bytes:
    try:
        return read_at_most(path)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = getattr(error, "strerror", None) or str(error)
        raise OperatorError(f"{where}{path} cannot be read: {reason.lower()}") from None
