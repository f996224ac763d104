"""The language of a stream is that of faster-whisper's own detection over as many windows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from trimodal.audio.files import read_blocks
from trimodal.audio.values import SAMPLE_RATE
from trimodal.paths import artefact_root, data_directory
from trimodal.speech.engines.protocol import open_engine
from trimodal.speech.session.language import StreamLanguage
from trimodal.speech.settings import ListeningSettings, RecogniseSettings
from trimodal.speech.values import Recognition, Window

WINDOW = 30 * SAMPLE_RATE
BASE = artefact_root("speech_recognize") / "ctranslate2-int8"


def chosen(guesses: list[tuple[str, float]], segments: int, threshold: float = 0.5) -> tuple[str, float]:
    settings = ListeningSettings(language_detection_segments=segments, language_detection_threshold=threshold)
    language = StreamLanguage("", settings)
    for code, chance in guesses:
        language.hear(Recognition((), code, language_probability=chance), WINDOW)
    return language.code, language.probability


def theirs(guesses: list[tuple[str, float]], threshold: float) -> tuple[str, float]:
    """faster-whisper's method on windows of which its model says this."""
    transcribe = pytest.importorskip("faster_whisper.transcribe")
    waiting = iter(guesses)
    detect = SimpleNamespace(detect_language=lambda _: [[(f"<|{c}|>", p) for c, p in [next(waiting)]]])
    extractor = SimpleNamespace(nb_max_frames=3000)
    model: Any = SimpleNamespace(model=detect, feature_extractor=extractor, encode=lambda features: features)
    found = transcribe.WhisperModel.detect_language(
        model,
        features=np.zeros((80, 3000 * len(guesses)), np.float32),
        language_detection_segments=len(guesses),
        language_detection_threshold=threshold,
    )
    return found[0], found[1]


@pytest.mark.parametrize("threshold", [0.25, 0.5, 1.0])
@pytest.mark.parametrize(
    "guesses",
    [
        [("de", 0.9)],
        [("de", 0.4)],
        [("de", 0.5), ("nl", 0.5), ("nl", 0.3)],
        [("de", 0.4), ("nl", 0.3), ("de", 0.45)],
        [("de", 0.2), ("nl", 0.6), ("de", 0.45)],
        [("nl", 0.2), ("de", 0.2)],
    ],
)
def test_several_windows_are_judged_as_faster_whisper_does(
    guesses: list[tuple[str, float]], threshold: float
) -> None:
    assert chosen(guesses, len(guesses), threshold) == theirs(guesses, threshold)


def test_unless_told_how_many_windows_are_looked_at_until_one_is_sure() -> None:
    assert chosen([("de", 0.4)] * 50, 0) == ("", 1.0)
    assert chosen([*[("de", 0.4)] * 50, ("nl", 0.51)], 0) == ("nl", 0.51)


def test_short_windows_do_not_count() -> None:
    language = StreamLanguage("", ListeningSettings(language_detection_segments=1))
    language.hear(Recognition((), "cy", language_probability=0.99), 3 * SAMPLE_RATE - 1)
    assert language.code == ""


def test_a_language_that_was_given_is_certain() -> None:
    language = StreamLanguage("de", ListeningSettings(language_detection_segments=1))
    language.hear(Recognition((), "en", language_probability=0.99), WINDOW)
    assert (language.code, language.probability) == ("de", 1.0)


@pytest.mark.slow
@pytest.mark.build
@pytest.mark.skipif(not BASE.is_dir(), reason="Whisper base is not built")
def test_of_a_person_it_is_as_likely_as_faster_whisper_says() -> None:
    faster_whisper = pytest.importorskip("faster_whisper")
    folder = data_directory() / "samples" / "speech"
    files = sorted(folder.glob("austen-*.wav"))
    samples = np.concatenate([next(read_blocks(file, 30.0)) for file in files])
    engine = open_engine(BASE.resolve(), RecogniseSettings(artefact="x", intra_op_threads=1))
    (heard,) = engine.recognise([Window(samples)])
    engine.close()
    model = faster_whisper.WhisperModel(str(BASE.resolve()), device="cpu", compute_type="int8", cpu_threads=1)
    code, chance, ranked = model.detect_language(samples)
    assert (heard.language, code) == ("en", "en")
    assert heard.language_probability == pytest.approx(chance, abs=0.02)
    ours, others = dict(heard.language_probabilities), dict(ranked)
    assert next(iter(ours)) == "en"
    assert ours == pytest.approx({code: others[code] for code in ours}, abs=0.02)
