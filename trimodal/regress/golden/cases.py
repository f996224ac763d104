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
from trimodal.regress.golden.schema import LINE, Expectation, Line

MAX_IMAGE_BYTES = 64 << 20
_MAX_GOLDEN_BYTES = 256 << 20
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

    @property
    def models(self) -> set[str]:
        """The models that it needs."""
        needed: set[str] = {self.line.task}
        return needed | {"embedding"} if self.expect.similarity_min is not None else needed


def read_cases(path: Path) -> list[Case]:
    """Reads the cases of a golden set (JSON Lines, empty lines are skipped), in their order.

    Raises:
        OperatorError: names the file, and the line and field that is wrong.
    """
    try:
        content = _read(path, _MAX_GOLDEN_BYTES)
    except OSError as error:
        raise OperatorError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from None
    if content is None:
        raise OperatorError(f"{path} has more than {_MAX_GOLDEN_BYTES >> 20} MiB: is it a golden set?")
    cases: list[Case] = []
    seen: dict[str, int] = {}
    for number, text in enumerate(content.removeprefix(b"\xef\xbb\xbf").splitlines(), 1):
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
    """One mistake of a line as a sentence; the first is told."""
    # The first place is the task that the line was read as, a union's branch may follow the field.
    places = [str(place) for place in problem["loc"][1:] if not str(place).startswith(("tuple[", "str"))]
    kind = problem["type"]
    if kind.startswith("union_tag"):
        found = "missing" if kind == "union_tag_not_found" else repr(problem.get("ctx", {}).get("tag"))
        return f"task is {found}: one of llm, vision, speech, embedding, assistant is needed"
    own = {"missing": "it is missing", "extra_forbidden": "there is no such field"}
    reason = own.get(kind) or problem["msg"].removeprefix("Value error, ")
    return f"{'.'.join(places)}: {reason}" if places else reason


def _with_files(line: Line, number: int, folder: Path, where: str) -> Case:
    digest = hashlib.sha256(f"{line.task}\n{line.input.model_dump_json(exclude_none=True)}".encode())
    if line.expect.similarity_min is not None:  # a run keeps the cosine to this text, not the answer's vector
        digest.update(b"text" + (line.expect.text or "").encode())
    image = audio = None
    if name := getattr(line.input, "image", None):
        image = _image(folder / name, where)
        digest.update(b"image" + hashlib.sha256(image).digest())
    if name := getattr(line.input, "audio", None):
        try:
            audio = np.concatenate(list(read_blocks(folder / name, _BLOCK_S)))
        except AudioError as error:
            raise OperatorError(f"{where}: input.audio: {error}") from None
        digest.update(b"audio" + hashlib.sha256(audio.tobytes()).digest())
    return Case(number, line, image, audio, digest.hexdigest())


def _image(path: Path, where: str) -> bytes:
    try:
        content = _read(path, MAX_IMAGE_BYTES)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = getattr(error, "strerror", None) or str(error)
        raise OperatorError(f"{where}: input.image: {path} cannot be read: {reason.lower()}") from None
    if content is None:
        raise OperatorError(f"{where}: input.image: {path} has more than {MAX_IMAGE_BYTES >> 20} MiB")
    return content


def _read(path: Path, most: int) -> bytes | None:
    """What the file holds; None: more than `most` bytes. A device may have no end, and tells no size."""
    with path.open("rb") as file:
        if path.is_file() and path.stat().st_size > most:
            return None
        content = file.read(most + 1)
    return content if len(content) <= most else None
