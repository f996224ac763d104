"""Decodes a client's audio, bit by bit, into 16 kHz: PCM at 16 or 24 kHz, G.711."""

from __future__ import annotations

import base64
import binascii

import numpy as np
from numpy.typing import NDArray

from trimodal.audio.values import Samples
from trimodal.gateway.errors import invalid
from trimodal.gateway.realtime.hearing.resampler import Resampler

PCM, PCMU, PCMA = "audio/pcm", "audio/pcmu", "audio/pcma"
_G711_RATE = 8_000
_FULL_SCALE = np.float32(32_768)


def _mu_law() -> NDArray[np.float32]:
    code = ~np.arange(256, dtype=np.int32) & 0xFF
    size = ((((code & 15) << 3) + 132) << (code >> 4 & 7)) - 132
    return (np.where(code & 128, -size, size) / _FULL_SCALE).astype(np.float32)


def _a_law() -> NDArray[np.float32]:
    code = np.arange(256, dtype=np.int32) ^ 0x55
    chord, step = code >> 4 & 7, code & 15
    size = np.where(chord, ((step << 4) + 264) << np.maximum(chord - 1, 0), (step << 4) + 8)
    return (np.where(code & 128, size, -size) / _FULL_SCALE).astype(np.float32)


# ITU-T G.711, a sample for each code.
_G711 = {PCMU: _mu_law(), PCMA: _a_law()}


def audio_bytes(audio: object) -> bytes:
    """The bytes of an event's field `audio`. Raises: ApiError."""
    if not isinstance(audio, str):
        raise invalid("audio: a text in base64 is needed", code="invalid_audio")
    try:
        data = base64.b64decode(audio, validate=True)
    except (binascii.Error, ValueError):
        raise invalid("audio is not valid base64", code="invalid_audio") from None
    if not data:
        raise invalid("audio is empty", code="invalid_audio")
    return data


class Decoder:
    """Of one stream: the filter goes on from one piece to the next, without a gap.

    Args:
        kind: PCM (16 bit, little-endian), PCMU or PCMA.
        rate: of PCM, samples a second.
    """

    def __init__(self, kind: str = PCM, rate: int = 16_000) -> None:
        self._table = _G711.get(kind)
        self._rate = rate if self._table is None else _G711_RATE
        self._resample = Resampler(self._rate)

    def __call__(self, data: bytes) -> Samples:
        """As much of it at 16 kHz, a few milliseconds late.

        Raises: ApiError where a sample is cut in two.
        """
        if self._table is not None:
            return self._resample(self._table[np.frombuffer(data, np.uint8)])
        if len(data) % 2:
            raise invalid(
                f"audio has {len(data)} bytes: 16-bit samples have an even number", code="invalid_audio"
            )
        return self._resample(np.frombuffer(data, "<i2").astype(np.float32) / _FULL_SCALE)

    def flush(self) -> Samples:
        """What was held back; the next piece begins a new stream."""
        rest = self._resample.finish()
        self._resample = Resampler(self._rate)
        return rest
