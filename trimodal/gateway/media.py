"""Reads the pictures and recordings that requests bring along."""

from __future__ import annotations

import base64
import binascii
import io
import re
from collections.abc import Generator, Sequence
from typing import Any

from trimodal.audio.files import AudioError, read_blocks
from trimodal.audio.values import Samples
from trimodal.gateway.errors import ApiError, invalid

# Characters of keywords and prompt together: of names in English some 200 of the 223 tokens that a Whisper
# takes before a window. In other scripts they may be more, of which the first are cut.
MAX_HINTS = 600
_DATA_URL = re.compile(r"data:(?:[\w.+-]+/[\w.+-]+)?(?:;[\w.+-]+=[^;,]*)*;base64,", re.I)

# OpenAI's names for what the model `speech` does; not gpt-4o-transcribe-diarize, which tells who speaks.
_OPENAI_MODELS = {
    "whisper-1", "gpt-transcribe", "gpt-4o-transcribe", "gpt-4o-mini-transcribe",
    "gpt-4o-mini-transcribe-2025-12-15", "gpt-live-transcribe", "gpt-realtime-whisper",
}  # fmt: skip


def spoken_model(name: Any) -> Any:
    """`speech` for one of OpenAI's models that transcribe, else what was given."""
    return "speech" if isinstance(name, str) and name in _OPENAI_MODELS else name


def with_keywords(keywords: Sequence[str], prompt: str | None) -> str | None:
    """The prompt behind a line of names to expect, which stand where faster-whisper puts its hotwords.

    Raises: ValueError when they would not all be seen; its text is a sentence without the field's name.
    """
    given = [name for name in (" ".join(one.split()) for one in keywords) if name]
    names = ", ".join(given)
    said = " ".join((prompt or "").split())
    hints = f"{names}\n{said}" if names else said
    if names and len(hints) > MAX_HINTS:
        raise ValueError(
            f"{len(given)} of them, with the prompt {len(hints)} characters; at most {MAX_HINTS} are taken"
        )
    return hints or None


def decode_base64(text: str, field: str) -> bytes:
    """The bytes of base64 text. Raises: ApiError 400 naming the field."""
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise invalid(f"{field} is not valid base64") from None


def decode_data_url(url: str, field: str) -> bytes:
    """The bytes of a data URL. Others are not fetched: nobody shall send a gateway to other addresses."""
    match = _DATA_URL.match(url)
    if not match:
        raise invalid(f"{field} must be a data URL with base64: this server fetches nothing")
    return decode_base64(url[match.end() :], field)


def recording(contents: bytes, block_s: float, field: str, name: str = "") -> Generator[Samples, None, None]:
    """The audio of a file's contents, float32[n] at 16 kHz, block by block; decoded as it is read.

    Raises: ApiError 400 when it is no audio, also while the blocks are read.
    """
    try:
        yield from read_blocks(io.BytesIO(contents), block_s, name or field)
    except AudioError as error:
        told = f"{field}{str(error).removeprefix(name or field)}"
        raise ApiError(400, told, param=field, code="invalid_audio") from None
