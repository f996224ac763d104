import numpy as np
import pytest
from faster_whisper.vad import get_vad_model

from tests.speech.session.spoken import chunks_of, random_lengths, speak
from trimodal.audio.values import Samples
from trimodal.speech.session.vad import (
    FRAME,
    EnergyDetector,
    SpeechDetector,
    SpeechSpan,
    StreamingSilero,
    detectors,
)
from trimodal.speech.settings import VoiceActivity

THRESHOLD, BETWEEN, LOW = 0.9, 0.4, 0.1  # at least 0.5; neither; below 0.35


class Scripted(SpeechDetector):
    """Judges by a script; notes the frames that it was shown."""

    def __init__(self, probabilities: list[float]) -> None:
        super().__init__(0.5)
        self.left = probabilities
        self.shown: list[Samples] = []

    def judge(self, frames: Samples) -> np.ndarray:
        self.shown.extend(frames)
        now, self.left = self.left[: len(frames)], self.left[len(frames) :]
        return np.array(now, np.float32)


def spans_of(probabilities: list[float]) -> list[SpeechSpan]:
    detector = Scripted(probabilities)
    detector.feed(np.zeros(len(probabilities) * FRAME, np.float32))
    return list(detector.spans)


def test_speech_begins_at_its_first_frame_and_is_known_at_its_third() -> None:
    assert spans_of([LOW] * 5 + [THRESHOLD] * 2) == []
    assert spans_of([LOW] * 5 + [THRESHOLD] * 3) == [SpeechSpan(5 * FRAME, 8 * FRAME)]
    assert spans_of([LOW] * 5 + [THRESHOLD, BETWEEN, BETWEEN]) == [SpeechSpan(5 * FRAME, 8 * FRAME)]


def test_a_click_is_no_speech() -> None:
    assert spans_of([THRESHOLD, THRESHOLD, LOW, THRESHOLD, LOW, LOW]) == []


def test_speech_ends_where_three_quiet_frames_begin() -> None:
    speech = [THRESHOLD] * 4
    assert spans_of([*speech, LOW, LOW])[0].end is None
    closed = SpeechSpan(0, 3 * FRAME, 4 * FRAME, 7 * FRAME)
    assert spans_of([*speech, LOW, LOW, LOW]) == [closed]
    assert spans_of([*speech, LOW, BETWEEN, LOW]) == [closed]
    assert spans_of([*speech, LOW, LOW, THRESHOLD, LOW, LOW])[0].end is None
    assert spans_of([*speech, BETWEEN, BETWEEN, BETWEEN])[0].end is None


def test_frames_do_not_depend_on_the_chunks() -> None:
    samples = np.random.default_rng(1).normal(size=300_000).astype(np.float32)
    detector = Scripted([LOW] * 1000)
    for chunk in chunks_of(samples, random_lengths(2, shortest=1, longest=20_000)):
        detector.feed(chunk)
    assert len(detector.shown) == 300_000 // FRAME
    np.testing.assert_array_equal(np.concatenate(detector.shown), samples[: 300_000 // FRAME * FRAME])


def test_the_end_judges_the_rest_and_lies_not_behind_it() -> None:
    detector = Scripted([THRESHOLD] * 5)
    detector.feed(np.ones(4 * FRAME + 100, np.float32))
    detector.finish()
    assert list(detector.spans) == [SpeechSpan(0, 3 * FRAME, 4 * FRAME + 100, 4 * FRAME + 100)]
    np.testing.assert_array_equal(detector.shown[-1][100:], 0)
    assert detector.speech == 4 * FRAME + 100

    closing = Scripted([THRESHOLD] * 4 + [LOW] * 3)
    closing.feed(np.ones(6 * FRAME + 100, np.float32))
    closing.finish()
    assert list(closing.spans) == [SpeechSpan(0, 3 * FRAME, 4 * FRAME, 6 * FRAME + 100)]

    late = Scripted([THRESHOLD] * 3)
    late.feed(np.ones(2 * FRAME + 1, np.float32))
    late.finish()
    assert list(late.spans) == [SpeechSpan(0, 2 * FRAME + 1, 2 * FRAME + 1, 2 * FRAME + 1)]


def test_old_spans_are_forgotten_and_still_counted() -> None:
    detector = Scripted(([THRESHOLD] * 4 + [LOW] * 4) * 3 + [THRESHOLD] * 4)
    detector.feed(np.zeros(28 * FRAME, np.float32))
    detector.forget(13 * FRAME)
    assert [span.start for span in detector.spans] == [16 * FRAME, 24 * FRAME]
    detector.forget(10**9)
    assert [span.end for span in detector.spans] == [None]
    assert detector.speech == 16 * FRAME


def test_energy_finds_loud_words_and_no_dc() -> None:
    speech = speak(3, 20)
    detector = EnergyDetector()
    detector.feed(speech.samples + np.float32(0.2))
    detector.finish()
    assert len(detector.spans) > 1
    for word in speech.words:
        middle = (word.start + word.end) * 8000
        assert any(span.start <= middle < (span.end or 0) for span in detector.spans)
    total = sum(word.end - word.start for word in speech.words) * 16_000
    assert detector.speech == pytest.approx(total, rel=0.1)


class Listening(StreamingSilero):
    """Silero that remembers its probabilities."""

    def __init__(self) -> None:
        super().__init__()
        self.probabilities: list[float] = []

    def judge(self, frames: Samples) -> np.ndarray:
        judged = super().judge(frames)
        self.probabilities.extend(judged.tolist())
        return judged


def voice(seconds: float) -> Samples:
    """A buzz through three formants that come and go four times a second: Silero takes it for speech."""
    t = np.arange(round(seconds * 16_000)) / 16_000
    pitch = np.cumsum(120 + 20 * np.sin(2 * np.pi * 0.7 * t)) / 16_000
    sound = sum(
        np.exp(-(((h * 120 - f) / 150) ** 2)) * np.sin(2 * np.pi * h * pitch)
        for f in (500, 1500, 2500)
        for h in range(1, 25)
    )
    return (0.1 * sound * np.clip(np.sin(2 * np.pi * 4 * t) + 0.5, 0, 1)).astype(np.float32)


def mixed() -> Samples:
    noise = np.random.default_rng(0).normal(0, 0.01, 20_000).astype(np.float32)
    return np.concatenate((noise, voice(3), np.zeros(20_000, np.float32), voice(2), noise))


def test_silero_in_chunks_says_what_it_says_of_the_whole() -> None:
    audio = mixed()[: len(mixed()) // FRAME * FRAME]
    whole = get_vad_model()(audio.copy()).ravel()  # zeroes the end of the last frame's context
    assert whole.max() > 0.5 > whole.min()
    for lengths in (random_lengths(5), iter(lambda: 320, None)):
        detector = Listening()
        for chunk in chunks_of(audio, lengths):
            detector.feed(chunk)
        np.testing.assert_allclose(detector.probabilities[:-1], whole[:-1], atol=1e-6)


def test_streams_of_silero_do_not_disturb_each_other() -> None:
    audio = mixed()
    alone, beside, other = Listening(), Listening(), Listening()
    for chunk in chunks_of(audio, iter(lambda: 4000, None)):
        alone.feed(chunk)
    for chunk in chunks_of(audio, iter(lambda: 4000, None)):
        beside.feed(chunk)
        other.feed(chunk[::-1])
    assert beside.probabilities == alone.probabilities != other.probabilities


@pytest.mark.parametrize("make", [
    lambda n: np.zeros(n), lambda n: np.full(n, 0.5), lambda n: np.random.default_rng(1).normal(0, 0.1, n),
    lambda n: 0.3 * np.sin(np.arange(n) * 2 * np.pi * 440 / 16_000),
], ids=["zeros", "dc", "noise", "tone"])  # fmt: skip
def test_silero_takes_no_steady_sound_for_speech(make) -> None:
    detector = StreamingSilero()
    detector.feed(make(80_000).astype(np.float32))
    detector.finish()
    assert list(detector.spans) == []


def test_a_stream_has_silero_by_its_own_thresholds() -> None:
    own = VoiceActivity(threshold=0.6, neg_threshold=0.2, min_speech_duration_ms=64)
    detector = detectors("energy")(own)
    for probability in (0.0, 0.59, 0.6, 0.2, 0.25, 0.19, 0.3, 0.1, 0.1):
        detector._push(probability)
    # Known after two frames; ended at the first frame below 0.2, though 0.3 is below threshold - 0.15.
    assert list(detector.spans) == [SpeechSpan(2 * FRAME, 4 * FRAME, 5 * FRAME, 8 * FRAME)]


def test_at_threshold_0_everything_is_speech() -> None:
    detector = detectors("silero")(VoiceActivity(threshold=0))
    detector.feed(np.zeros(16 * FRAME, np.float32))
    detector.finish()
    assert [(span.start, span.end) for span in detector.spans] == [(0, 16 * FRAME)]
