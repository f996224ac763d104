"""Decodes a client's audio, bit by bit, into 16 kHz: PCM at 16 or 24 kHz, G.711."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from trimodal.audio.values import SAMPLE_RATE, Samples
from trimodal.gateway.errors import invalid

PCM, PCMU, PCMA = "audio/pcm", "audio/pcmu", "audio/pcma"
_G711_RATE = 8_000
_TAPS = 241
_BETA = 7.0  # of Kaiser's window: what would be mirrored is 70 dB down
_FULL_SCALE = np.float32(32_768)
# Of an event: they take the filter and Silero some 15 ms. What comes in time, 0.02 to 1 s, stays one piece.
_PIECE_S = 4.0


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
    try:  # strictly: to look for line ends in 4 MiB, as in a file's, could take the event loop 0.2 s
        data = base64.b64decode(audio, validate=True)
    except (binascii.Error, ValueError):
        raise invalid("audio is not valid base64", code="invalid_audio") from None
    if not data:
        raise invalid("audio is empty", code="invalid_audio")
    return data


class Resampler:
    """Brings a stream of samples to 16 kHz by a windowed sinc, each as soon as it can be known.

    soxr works in blocks, and gave back what it was given 6 to 37 ms later at 24 kHz and up to 115 ms later at
    8 kHz: with chunks of 100 ms, words came a whole chunk later. This filter is 2.5 and 7.5 ms late.
    """

    def __init__(self, rate: int) -> None:
        common = math.gcd(rate, SAMPLE_RATE)
        self._up, self._down = SAMPLE_RATE // common, rate // common
        self._taps = _low_pass(min(rate, SAMPLE_RATE) / (rate * self._up), self._up)
        # As many seconds come out as went in, each half a filter late: a stream that lacked a few samples
        # of a step of the recogniser's would wait a whole chunk for it.
        self._held = np.zeros(_TAPS - 1, np.float32)

    def __call__(self, samples: Samples) -> Samples:
        """What can be known of them at 16 kHz."""
        if self._up == self._down:
            return samples
        stuffed = np.zeros(len(samples) * self._up, np.float32)
        stuffed[:: self._up] = samples
        self._held = np.concatenate((self._held, stuffed))
        if not len(samples):
            return samples
        heard: Samples = np.convolve(self._held, self._taps, "valid")[:: self._down]
        self._held = self._held[len(heard) * self._down :]
        return heard

    def finish(self) -> Samples:
        """The rest."""
        if self._up == self._down:
            return np.zeros(0, np.float32)
        return self(np.zeros(math.ceil(_TAPS // 2 / self._up), np.float32))


def _low_pass(band: float, gain: int) -> NDArray[np.float32]:
    """Taps that keep `band` of all frequencies, less what the filter needs to fall off."""
    edge = band - (_BETA / 2.0 + 0.5) / _TAPS
    at = np.arange(_TAPS) - _TAPS // 2
    taps: NDArray[np.float64] = np.sinc(edge * at) * np.kaiser(_TAPS, _BETA)
    return np.asarray(taps / taps.sum() * gain, np.float32)


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
        self._check(data)
        if self._table is not None:
            return self._resample(self._table[np.frombuffer(data, np.uint8)])
        return self._resample(np.frombuffer(data, "<i2").astype(np.float32) / _FULL_SCALE)

    def pieces(self, data: bytes) -> Iterator[Samples]:
        """The same piece by piece: the six minutes that an event may bring take the filter 0.2 s."""
        self._check(data)
        size = round(_PIECE_S * self._rate) * (1 if self._table is not None else 2)
        return (self(data[at : at + size]) for at in range(0, len(data), size))

    def _check(self, data: bytes) -> None:
        if self._table is None and len(data) % 2:
            raise invalid(
                f"audio has {len(data)} bytes: 16-bit samples have an even number", code="invalid_audio"
            )

    def flush(self) -> Samples:
        """What was held back; the next piece begins a new stream."""
        rest = self._resample.finish()
        self._resample = Resampler(self._rate)
        return rest
