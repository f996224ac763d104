import io
import json
import sys

import numpy as np
import pytest
import soundfile
from PIL import Image

from tests.bench.recordings import utterance, write_recordings
from trimodal.audio.values import SAMPLE_RATE
from trimodal.bench.samples import batch_of, jpegs, read_utterances, speak
from trimodal.errors import OperatorError

UTTERANCES = [
    utterance("one two three", 1.5, 0.1),
    utterance("what is a lambda", 2.0, 0.2),
    utterance("stop", 0.5, 0.3),
]


@pytest.mark.parametrize("seed", range(5))
def test_what_sounds_is_what_the_text_says(seed):
    stream = speak(UTTERANCES, 30.0, seed)
    assert 25 < len(stream.samples) / SAMPLE_RATE <= 30
    starts = np.flatnonzero(np.diff((stream.samples != 0).astype(int), prepend=0) == 1)
    said = {one.samples[0]: one for one in UTTERANCES}
    heard = [said[stream.samples[start]] for start in starts]
    assert " ".join(one.text for one in heard) == stream.text
    assert (stream.samples != 0).sum() == sum(len(one.samples) for one in heard)


def test_a_seed_is_a_stream_in_which_all_are_said_before_one_is_said_again():
    one, same, other = (speak(UTTERANCES, 20.0, seed) for seed in (1, 1, 2))
    assert np.array_equal(one.samples, same.samples)
    assert one.text == same.text != other.text
    assert all(utterance.text in " ".join(one.text.split()[:8]) for utterance in UTTERANCES)
    assert speak(UTTERANCES[1:2], 1.0, 0).text == "what is a lambda", "one is said however long it is"


def test_recordings_are_read(tmp_path):
    found = read_utterances(write_recordings(tmp_path, UTTERANCES))
    assert [one.text for one in found] == [one.text for one in UTTERANCES]
    assert found[0].samples.dtype == np.float32
    assert [len(one.samples) for one in found] == [len(one.samples) for one in UTTERANCES]


def test_recordings_that_cannot_be_read_are_one_sentence(tmp_path, monkeypatch):
    with pytest.raises(OperatorError, match="samples.json: FileNotFoundError"):
        read_utterances(tmp_path)
    (tmp_path / "samples.json").write_text("[]")
    with pytest.raises(OperatorError, match="lists no recording"):
        read_utterances(tmp_path)
    (tmp_path / "samples.json").write_text(json.dumps([{"file": "none.wav", "text": "x"}]))
    with pytest.raises(OperatorError, match="none.wav"):
        read_utterances(tmp_path)
    soundfile.write(tmp_path / "none.wav", np.zeros(31 * SAMPLE_RATE, np.float32), SAMPLE_RATE)
    with pytest.raises(OperatorError, match="none.wav is longer than 30 s"):
        read_utterances(tmp_path)
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(OperatorError, match=r"soundfile: pip install 'trimodal\[audio\]'"):
        read_utterances(tmp_path)


def test_pictures_are_different_pieces_of_the_photos():
    files = jpegs(64, 48, count=9)
    assert len(set(files)) == 9
    for file in files:
        image = Image.open(io.BytesIO(file))
        assert (image.format, image.size) == ("JPEG", (64, 48))
        assert np.asarray(image).std() > 10
    assert batch_of(files[:3], 1, 2) == [files[2], files[0]]


def test_a_folder_without_photos_is_named_and_a_missing_package_too(tmp_path, monkeypatch):
    with pytest.raises(OperatorError, match=f"{tmp_path} holds no photo"):
        jpegs(64, 48, directory=tmp_path)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(OperatorError, match="Pillow: pip install pillow"):
        jpegs(64, 48)
