"""Reads a microphone in chunks of 16 kHz mono, through sounddevice (PortAudio)."""

from __future__ import annotations

import queue
from collections.abc import Generator
from typing import Any

from trimodal.audio.files import AudioError, Resampler, exactly, package
from trimodal.audio.values import SAMPLE_RATE, Samples

# Audio that is not taken is kept for so long; then the server is too slow for a microphone.
PATIENCE_S = 60.0
_LOOK_S = 1.0  # without audio: is the stream still there?


def record(chunk_s: float) -> Generator[Samples, None, None]:
    """What the default microphone hears until it is closed: float32[n], n = 16,000 · chunk_s.

    Raises AudioError: no PortAudio, no microphone, one that was unplugged, or the audio was not taken for a
        minute.
    """
    sounddevice = package("sounddevice")
    try:
        device = sounddevice.query_devices(kind="input")
        rate = _rate(sounddevice, device)
        recorded: queue.Queue[Samples] = queue.Queue(maxsize=round(PATIENCE_S / chunk_s))
        missed = False

        def take(samples: Any, frames: int, time: Any, status: Any) -> None:
            nonlocal missed
            try:
                recorded.put_nowait(samples[:, 0].copy())
            except queue.Full:
                missed = True

        def blocks(stream: Any) -> Generator[Samples, None, None]:
            resample = Resampler(rate)
            while not missed:
                try:
                    yield resample(recorded.get(timeout=_LOOK_S + chunk_s))
                except queue.Empty:
                    if not stream.active:
                        raise AudioError("microphone: it was unplugged, or its recording ended") from None
            raise AudioError(
                f"microphone: {PATIENCE_S:g} s of audio wait to be sent; the server is too slow for it"
            )

        with sounddevice.InputStream(
            samplerate=rate, channels=1, dtype="float32", blocksize=round(rate * chunk_s), callback=take
        ) as stream:
            yield from exactly(max(1, round(chunk_s * SAMPLE_RATE)), blocks(stream))
    except (sounddevice.PortAudioError, ValueError) as error:
        raise AudioError(f"no microphone: {error}") from None


def _rate(sounddevice: Any, device: Any) -> int:
    """16 kHz where the device can do that, else its own rate."""
    try:
        sounddevice.check_input_settings(channels=1, dtype="float32", samplerate=SAMPLE_RATE)
        return SAMPLE_RATE
    except sounddevice.PortAudioError:
        return round(float(device["default_samplerate"]))
