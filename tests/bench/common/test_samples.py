import io
import json

import numpy as np
import pytest
import soundfile
from PIL import Image

from tests.bench.common.recordings import utterance, write_recordings
from trimodal.audio.values import SAMPLE_RATE
from trimodal.audio.word_errors import normalise, word_error_rate
from trimodal.bench.common.samples import PAUSE_S, batch_of, jpegs, read_utterances, speak
from trimodal.errors import OperatorError

UTTERANCES = [
    utterance("one two three", 1.5, 0.1),
    utterance("what is a lambda", 2.0, 0.2),
    utterance("stop", 0.5, 0.3),
]


@pytest.mark.parametrize("seed", range(5))
def test_every_word_lies_where_the_truth_says(seed):
    stream = speak(UTTERANCES, 30.0, seed)
    assert 25 < len(stream.samples) / SAMPLE_RATE <= 30
    assert " ".join(word.text.strip() for word in stream.words) == stream.text
    voiced = stream.samples != 0
    for word in stream.words:
        begin, end = round(word.start * SAMPLE_RATE), round(word.end * SAMPLE_RATE)
        assert voiced[begin:end].all()
    # All that sounds is some word.
    assert voiced.sum() == pytest.approx(sum(w.end - w.start for w in stream.words) * SAMPLE_RATE, abs=50)


def test_pauses_are_within_bounds_and_also_at_both_ends():
    stream = speak(UTTERANCES, 60.0, 3)
    edges = np.flatnonzero(np.diff(np.concatenate([[True], stream.samples != 0, [True]]).astype(int)))
    gaps = np.diff(edges)[::2] / SAMPLE_RATE
    assert PAUSE_S[0] <= gaps.min() + 1e-4
    assert gaps.max() <= PAUSE_S[1] + 1e-4
    assert len({round(float(gap), 3) for gap in gaps}) > len(gaps) / 2


def test_a_seed_is_a_stream():
    one, same, other = (speak(UTTERANCES, 20.0, seed) for seed in (1, 1, 2))
    assert np.array_equal(one.samples, same.samples)
    assert one.text == same.text
    assert one.text != other.text


def test_all_are_said_before_one_is_said_again():
    words = speak(UTTERANCES, 30.0, 0).text
    assert all(one.text in " ".join(words.split()[:8]) for one in UTTERANCES)


def test_one_utterance_is_said_however_long_it_is():
    assert speak(UTTERANCES[1:2], 1.0, 0).text == "what is a lambda"


def test_recordings_are_read(tmp_path):
    found = read_utterances(write_recordings(tmp_path, UTTERANCES))
    assert [one.text for one in found] == [one.text for one in UTTERANCES]
    assert found[0].samples.dtype == np.float32
    assert found[0].words[1].text == " two"
    assert found[0].words[1].start == pytest.approx(0.5)


def test_recordings_that_cannot_be_read_are_one_sentence(tmp_path):
    with pytest.raises(OperatorError, match="samples.json: FileNotFoundError"):
        read_utterances(tmp_path)
    (tmp_path / "samples.json").write_text("[]")
    with pytest.raises(OperatorError, match="lists no recording"):
        read_utterances(tmp_path)
    (tmp_path / "samples.json").write_text(json.dumps([{"file": "none.wav", "text": "x", "words": []}]))
    with pytest.raises(OperatorError, match="none.wav"):
        read_utterances(tmp_path)
    soundfile.write(tmp_path / "none.wav", np.zeros(800, np.float32), 8000)
    with pytest.raises(OperatorError, match="none.wav is not 16 kHz mono"):
        read_utterances(tmp_path)


def test_texts_are_compared_by_their_words_alone():
    assert normalise("  What’s a “list”, forty-two?\n") == "whats a list forty two"
    assert word_error_rate(["What is it?"], [" what IS, it"]) == 0


def test_errors_of_all_texts_over_the_words_of_all():
    # One missing, one wrong, one added: three errors in five words.
    assert word_error_rate(["a b c", "d e"], ["a c", "x e f"]) == pytest.approx(3 / 5)
    assert word_error_rate(["a b"], [""]) == 1


def test_pictures_are_different_jpegs_of_that_size_with_detail():
    files = jpegs(64, 48, count=3)
    assert len(set(files)) == 3
    for file in files:
        image = Image.open(io.BytesIO(file))
        assert (image.format, image.size) == ("JPEG", (64, 48))
        assert np.asarray(image).std() > 10
    assert batch_of(files, 1, 2) == [files[2], files[0]]
