"""Turns in a session's audio."""

from __future__ import annotations

import numpy as np
import pytest

from tests.gateway.realtime.hearing import loud
from trimodal.audio.values import Samples
from trimodal.gateway.realtime.hearing import detection
from trimodal.gateway.realtime.hearing.detection import (
    Paused,
    Resumed,
    Speech,
    Started,
    Stopped,
    TurnDetector,
)
from trimodal.speech.session.vad import EnergyDetector


@pytest.fixture(autouse=True)
def _energy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detection, "speech_detector", EnergyDetector)


def turns(detector: TurnDetector, samples: Samples, step: int) -> list[tuple[int, int, Samples]]:
    """Start, end and audio of each."""
    found: list[tuple[int, int, Samples]] = []
    start, parts = 0, []
    for at in range(0, len(samples), step):
        for heard in detector.feed(samples[at : at + step]):
            match heard:
                case Started(begin, audio):
                    start, parts = begin, []
                    assert begin - audio >= 0
                case Speech(more):
                    parts.append(more)
                case Stopped(end):
                    found.append((start, end, np.concatenate(parts)))
    return found


@pytest.mark.parametrize("step", [320, 1_600, 16_000 * 60])
def test_turns_have_their_audio_with_what_was_before(step: int) -> None:
    samples = loud((1.0, 0.0), (2.0, 0.1), (0.3, 0.0), (1.0, 0.1), (1.5, 0.0), (0.5, 0.1), (2.0, 0.0))
    found = turns(TurnDetector(0.5, 0.3, 0.5, at=16_000), samples, step)
    assert [(start / 16_000 - 1, end / 16_000 - 1) for start, end, _ in found] == [
        (pytest.approx(1.0, abs=0.05), pytest.approx(4.3, abs=0.05)),
        (pytest.approx(5.8, abs=0.05), pytest.approx(6.3, abs=0.05)),
    ]
    for start, _, audio in found:
        begin = start - 16_000 - round(0.3 * 16_000)
        assert np.array_equal(audio, samples[begin : begin + len(audio)])


def test_audio_before_the_session_is_none() -> None:
    ((start, _, audio),) = turns(TurnDetector(0.5, 5.0, 0.5, at=0), loud((1.0, 0.1), (1.0, 0.0)), 1_600)
    assert start < 1_000
    assert len(audio) <= 32_000


def test_a_cut_turn_gives_no_end_and_the_next_no_old_audio() -> None:
    detector = TurnDetector(0.5, 0.3, 0.5, at=0)
    first = loud((1.0, 0.1))
    assert isinstance(list(detector.feed(first))[0], Started)
    detector.cut()
    heard = list(detector.feed(loud((1.0, 0.1), (1.0, 0.0))))
    assert [type(one) for one in heard if not isinstance(one, Speech | Paused)] == [Started, Stopped]
    assert isinstance(heard[0], Started)
    assert heard[0].at >= 16_000


def test_silence_keeps_little() -> None:
    detector = TurnDetector(0.5, 0.3, 0.5, at=0)
    for _ in range(100):
        assert not list(detector.feed(np.zeros(16_000, np.float32)))
    assert len(detector._kept) < 16_000


@pytest.mark.parametrize("step", [320, 1_600, 16_000 * 60])
def test_pauses_are_told_once_and_may_end_the_turn_sooner_or_later(step: int) -> None:
    """The first pause is judged long, the second short; what was said of one does not hold for the next."""
    samples = loud((0.5, 0.0), (1.0, 0.1), (0.7, 0.0), (1.0, 0.1), (0.4, 0.0), (0.6, 0.1), (3.0, 0.0))
    detector = TurnDetector(0.5, 0.3, 0.5, at=0)
    waits, seen, at = [2.0, 0.25], [], []
    for begin in range(0, len(samples), step):
        for heard in detector.feed(samples[begin : begin + step]):
            if isinstance(heard, Paused) and waits:
                assert detector.silence_s == 0.5
                detector.end_after(waits.pop(0))
            if isinstance(heard, Stopped):
                at.append(heard.at / 16_000)
            if not isinstance(heard, Speech):
                seen.append(type(heard))
    assert seen == [Started, Paused, Resumed, Paused, Stopped, Started, Paused, Stopped]
    assert at == [pytest.approx(3.2, abs=0.1), pytest.approx(4.2, abs=0.1)]


def test_speech_is_measured_turn_by_turn() -> None:
    detector = TurnDetector(0.5, 0.3, 0.5, at=0)
    for seconds in (1.0, 0.6):
        measured = 0.0
        for heard in detector.feed(loud((0.2, 0.0), (seconds, 0.1), (1.0, 0.0))):
            if isinstance(heard, Speech):
                measured = detector.spoken_s
        assert measured == pytest.approx(seconds, abs=0.15)
