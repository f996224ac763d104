"""Clients' audio at 16 kHz."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import soxr

from trimodal.gateway.realtime.hearing.decoder import PCM, PCMA, PCMU, Decoder, Resampler

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import audioop  # of Python 3.10 to 3.12; the reference

CODES = bytes(range(256))


@pytest.mark.parametrize(("kind", "reference"), [(PCMU, audioop.ulaw2lin), (PCMA, audioop.alaw2lin)])
def test_every_code_of_g711(kind: str, reference) -> None:  # type: ignore[no-untyped-def]
    decoder = Decoder(kind)
    expected = np.frombuffer(reference(CODES, 2), np.int16)
    assert decoder._table is not None
    assert (decoder._table * 32_768).astype(int).tolist() == expected.tolist()


@pytest.mark.parametrize("rate", [8_000, 16_000, 24_000])
def test_pieces_of_any_length_give_the_same_without_a_gap(rate: int) -> None:
    tone = np.sin(np.arange(rate * 2) * 440 * 2 * np.pi / rate) * 0.5
    data = (tone * 32_768).astype("<i2").tobytes()
    decoder, generator, at, parts = Decoder(PCM, rate), np.random.default_rng(1), 0, []
    while at < len(data):
        step = 2 * int(generator.integers(1, 5_000))
        parts.append(decoder(data[at : at + step]))
        at += step
    parts.append(decoder.flush())
    whole = np.concatenate(parts)
    late = 0 if rate == 16_000 else 16_000 * 60 // rate
    assert len(whole) == 32_000 + late
    at_once = Decoder(PCM, rate)
    assert np.allclose(whole, np.concatenate([at_once(data), at_once.flush()]), atol=1e-6)
    samples = np.frombuffer(data, "<i2").astype(np.float32) / 32_768
    expected = samples if rate == 16_000 else soxr.resample(samples, rate, 16_000)
    assert np.abs(whole[late:] - expected)[200:-200].max() < 1e-3


def test_speech_is_kept_and_what_16_khz_cannot_hold_is_not() -> None:
    def level(hertz: float) -> float:
        tone = np.sin(np.arange(24_000) * hertz * 2 * np.pi / 24_000).astype(np.float32)
        return float(np.abs(Resampler(24_000)(tone)[500:-500]).max())

    assert [level(hertz) for hertz in (50, 1_000, 4_000, 7_000)] == pytest.approx([1.0] * 4, abs=0.01)
    assert level(8_100) < 0.02
    assert max(level(hertz) for hertz in range(8_500, 12_000, 250)) < 1e-3


@pytest.mark.parametrize("rate", [8_000, 16_000, 24_000])
def test_as_much_comes_out_as_goes_in(rate: int) -> None:
    resample = Resampler(rate)
    assert {len(resample(np.zeros(rate // 50, np.float32))) for _ in range(50)} == {320}


def test_after_a_flush_a_new_stream_begins() -> None:
    decoder = Decoder(PCM, 24_000)
    for _ in range(2):
        heard = np.concatenate([decoder(bytes(48_000)), decoder.flush()])
        assert len(heard) == 16_040
