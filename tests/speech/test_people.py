"""People are heard by a real Whisper (tiny.en) as recordings are: what guards and files leave of them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from trimodal.audio.captions import cues, render
from trimodal.audio.files import read_blocks
from trimodal.audio.values import SAMPLE_RATE, HeardWindow, Samples, Word
from trimodal.audio.word_errors import normalise, word_error_rate
from trimodal.metrics import MemoryMetrics
from trimodal.paths import artefact_root, data_directory
from trimodal.speech.recognise.service import RecogniseService
from trimodal.speech.session.session import LiveSession
from trimodal.speech.session.vad import detectors
from trimodal.speech.settings import RecogniseSettings, SpeechSettings

TINY_EN = artefact_root("speech_recognize") / "ctranslate2-tiny.en"
BASE = artefact_root("speech_recognize") / "ctranslate2-int8"
pytestmark = [
    pytest.mark.build,
    pytest.mark.skipif(not TINY_EN.is_dir(), reason="Whisper tiny.en is not built"),
]
SAID = (
    "And Mr. John Dashwood had then leisure to consider how much there might be prudently in his power"
    " to do for them."
)
MOST_ERRORS = 0.15  # of 22 words three


def opened(**settings: object) -> RecogniseService:
    given = {"artefact": str(TINY_EN.resolve()), "intra_op_threads": 1, "temperatures": (0.0,), **settings}
    return RecogniseService.open(TINY_EN, RecogniseSettings.model_validate(given), MemoryMetrics())


@pytest.fixture(scope="module")
def service() -> Iterator[RecogniseService]:
    service = opened()
    yield service
    service.close()


@pytest.fixture(scope="module")
def person() -> Samples:
    return next(read_blocks(data_directory() / "samples" / "speech" / "austen-1-leisure.wav", 30.0))


def heard(
    service: RecogniseService, samples: Samples, **settings: object
) -> tuple[list[Word], list[HeardWindow]]:
    chosen = SpeechSettings.model_validate(settings)
    session = LiveSession(chosen, policy="file", detector=detectors("silero")(chosen))
    session.feed(samples)
    session.end()
    while planned := session.next_window():
        session.accept(planned, service.recognise_one(planned.window))
    update = session.take()
    return list(update.committed), list(update.windows)


def wrong(words: list[Word]) -> float:
    return word_error_rate([SAID], ["".join(word.text for word in words)])


def test_speech_that_every_guard_doubts_is_kept_and_told(person: Samples) -> None:
    unsure = opened(log_prob_threshold=-0.001, no_speech_threshold=1.0, temperatures=(0.0, 0.2))
    words, (window,) = heard(unsure, person)
    unsure.close()
    assert wrong(words) <= MOST_ERRORS
    assert (window.doubted, window.rejected) == ("probability", "")


def test_a_window_is_dropped_only_where_no_speech_and_doubt_come_together(person: Samples) -> None:
    silent = opened(no_speech_threshold=0.0)
    words, (window,) = heard(silent, person)
    assert (wrong(words) <= MOST_ERRORS, window.rejected) == (True, "")
    silent.close()
    both = opened(no_speech_threshold=0.0, log_prob_threshold=-0.001)
    words, (window,) = heard(both, person)
    both.close()
    assert (words, window.rejected) == ([], "silence")


def test_figures_of_a_person_are_those_of_speech(service: RecogniseService, person: Samples) -> None:
    _, (window,) = heard(service, person)
    assert window.language == "en"
    assert -1 < window.avg_logprob < 0
    assert 0 <= window.no_speech_prob < 0.6
    assert 0.5 < window.compression_ratio < 2.4


def test_a_persons_words_between_long_silences_stay(service: RecogniseService, person: Samples) -> None:
    quiet = np.zeros(4 * SAMPLE_RATE, np.float32)
    words, _ = heard(service, np.concatenate((quiet, person, quiet)), hallucination_silence_threshold=1)
    assert wrong(words) <= MOST_ERRORS
    assert words[0].start == pytest.approx(4.2, abs=0.5)


def test_captions_of_a_person_end_with_the_recording(service: RecogniseService, person: Samples) -> None:
    words, _ = heard(service, person)
    seconds = len(person) / SAMPLE_RATE
    made = cues(words, seconds)
    assert made[0].start_ms == pytest.approx(200, abs=500)
    assert made[-1].end_ms <= 1000 * seconds
    assert wrong([Word(f" {line}", 0, 0, 1) for cue in made for line in cue.lines]) <= MOST_ERRORS
    assert render(words, "srt", seconds=seconds).startswith("1\n00:00:00,")
    assert render(words, "vtt", seconds=seconds).startswith("WEBVTT\n")


def live(before: str, after: str, decoder: str = "auto") -> list[tuple[Word, float]]:
    """Words of two recordings with a pause between, as `base` hears them live; when each was final."""
    samples = data_directory() / "samples" / "speech"
    first, second = (next(read_blocks(samples / name, 30.0)) for name in (before, after))
    quiet = np.zeros(2 * SAMPLE_RATE, np.float32)
    speech = np.concatenate([first, quiet[: round(0.9 * SAMPLE_RATE)], second, quiet])
    service, settings = opened(artefact=str(BASE.resolve()), decoder=decoder), SpeechSettings()
    session = LiveSession(settings, policy="edge", language="en", detector=detectors("silero")(settings))
    words: list[tuple[Word, float]] = []
    for at in range(0, len(speech), SAMPLE_RATE // 10):
        session.feed(speech[at : at + SAMPLE_RATE // 10])
        while planned := session.next_window():
            session.accept(planned, service.recognise_one(planned.window))
        update = session.take()
        words += [(word, update.received_s) for word in update.committed]
    service.close()
    return words


@pytest.mark.skipif(not BASE.is_dir(), reason="Whisper base is not built")
def test_live_words_after_a_pause_are_heard_with_those_before_it() -> None:
    # Without them whisper-base's first guess was "Howdy, Mary", which was final before it knew better.
    words = live("austen-3-selfish.wav", "austen-4-amiable.wav")
    text = normalise("".join(word.text for word, _ in words))
    assert "had he married a more amiable woman" in text
    assert "rather selfish is to be" in text


@pytest.mark.skipif(not BASE.is_dir(), reason="Whisper base is not built")
@pytest.mark.parametrize("decoder", ["ctranslate2", "openvino"])
def test_live_words_after_a_whole_sentence_are_not_waited_for(decoder: str) -> None:
    # Given the sentence, whisper-base ended its text there for 1.4 s of the next one.
    words = live("telephone-2-busy.flac", "austen-1-leisure.wav", decoder)
    said = [normalise(word.text) for word, _ in words]
    lags = [final - word.end for word, final in words]
    first = said.index("representative") + 1
    assert said[first : first + 4] == ["and", "mr", "john", "dashwood"]
    assert max(lags[first : first + 4]) < 1
