"""The demo Whisper as it is committed: small, complete, within its floors, and hearing its own recordings."""

import json
import random
import sys
from pathlib import Path

import numpy as np
import pytest

DEMO = Path(__file__).resolve().parents[3] / "build" / "demo"
sys.path.insert(0, str(DEMO))
SPEECH = DEMO / "speech"

import soundfile  # noqa: E402
from speech_training import phrases, voices  # noqa: E402

pytestmark = pytest.mark.build
SAMPLES = [
    one | {"file": f"{folder}/{one['file']}"}
    for folder in ("samples", "questions")
    for one in json.loads((SPEECH / folder / "samples.json").read_text(encoding="utf-8"))
]


# It imports torch and transformers: every worker collects this file, and one of them runs it.
@pytest.fixture(scope="module")
def gate():
    from speech_training import gate

    return gate


@pytest.fixture(scope="module")
def served(gate):
    return gate.Served(SPEECH)


def recorded(sample):
    return soundfile.read(SPEECH / sample["file"], dtype="float32")[0]


def test_the_checkpoint_is_small_and_its_figures_hold_the_floors(gate):
    assert sum(path.stat().st_size for path in SPEECH.rglob("*") if path.is_file()) < 12e6
    figures = json.loads((SPEECH / "figures.json").read_text(encoding="utf-8"))
    assert figures["passed"]
    assert figures["words"] == len(phrases.words()) >= 150
    for name, floor in gate.FLOORS.items():
        assert figures["word_error_rate_percent"][name] <= floor


def test_every_word_is_one_token_and_the_special_tokens_have_whispers_order():
    from speech_training import tokens

    ids = tokens.load_ids(phrases.words(), SPEECH)
    config = json.loads((SPEECH / "config.json").read_text(encoding="utf-8"))
    assert config["vocab_size"] == ids.size == ids.timestamp(30.0) + 1
    assert (config["decoder_start_token_id"], config["eos_token_id"]) == (ids.sot, ids.eot)
    assert max(ids.words.values()) < ids.eot  # faster-whisper takes what is smaller for text.
    assert config["trimodal_contexts_s"] == [5, 10, 30]
    assert config["trimodal_padding"] == "zeros"


def test_held_out_sentences_are_never_drawn_for_training_and_their_words_are():
    random_ = random.Random(0)
    trained = {phrases.sentence(random_) for _ in range(4000)}
    known = set(phrases.words())
    for _ in range(300):
        text = phrases.held_out(random_)
        assert text not in trained
        assert set(text.split()) <= known
    assert not set(voices.HELD_OUT_VARIANTS) & set(voices.TRAINED_VARIANTS)


@pytest.mark.parametrize(
    "text", ["explain the while statement", "the while loop is used for the set of the json"]
)
def test_each_spoken_word_has_its_time(text):
    said = voices.speak(text, voices.Voice("en-us+m5", 160, 50))
    assert [word for word, _, _ in said.words] == text.split()
    edges = [edge for _, start, end in said.words for edge in (start, end)]
    assert edges == sorted(edges)
    assert edges[0] >= 0
    assert edges[-1] <= len(said.audio) / voices.RATE
    assert all(end - start > 0.03 for _, start, end in said.words)


def test_an_unknown_voice_is_told():
    with pytest.raises(RuntimeError, match="espeak-ng failed"):
        voices.speak("hello", voices.Voice("xx-nowhere", 160, 50))


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample["file"])
def test_a_recording_is_what_its_entry_says(sample):
    with soundfile.SoundFile(SPEECH / sample["file"]) as file:
        assert (file.samplerate, file.channels, file.subtype) == (16000, 1, "PCM_16")
        assert file.frames / 16000 == pytest.approx(sample["seconds"], abs=1e-3)
    assert " ".join(word for word, _, _ in sample["words"]) == sample["text"]
    edges = [edge for _, start, end in sample["words"] for edge in (start, end)]
    assert edges == sorted(edges)
    assert edges[0] > 0
    assert edges[-1] < sample["seconds"]
    assert sample["voice"].split("+")[1] in voices.HELD_OUT_VARIANTS


def test_the_recordings_are_heard_with_their_times(gate, served):
    heard = served.hear([recorded(sample) for sample in SAMPLES], timed=True)
    assert gate.error_rate(heard, [sample["text"] for sample in SAMPLES]) <= 10
    assert [one.text for one in heard[:2]] == ["what is a lambda", "explain the while statement"]
    for (_, start, end), (_, at, to) in zip(SAMPLES[1]["words"], heard[1].words, strict=True):
        assert at == pytest.approx(start, abs=0.15)
        assert to == pytest.approx(end, abs=0.15)


def test_silence_has_no_words_and_is_known_for_it(served):
    (heard,) = served.hear([np.zeros(3 * 16000, np.float32)])
    assert heard.text == ""
    assert heard.no_speech > 0.9
