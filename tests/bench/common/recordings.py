"""Makes speech for tests: utterances of noise whose words are known."""

import json

import numpy as np
import soundfile

from trimodal.audio.values import SAMPLE_RATE, Word
from trimodal.bench.common.samples import Recording


def utterance(text, seconds=1.0, level=0.1):
    """Its words follow each other evenly."""
    parts = text.split()
    length = seconds / len(parts)
    words = tuple(Word(f" {part}", at * length, (at + 1) * length, 1.0) for at, part in enumerate(parts))
    return Recording(np.full(round(seconds * SAMPLE_RATE), level, np.float32), text, words)


def write_recordings(directory, utterances):
    """A directory of recordings as `--samples` takes it."""
    listing = []
    for number, one in enumerate(utterances):
        soundfile.write(directory / f"{number}.wav", one.samples, SAMPLE_RATE)
        words = [[word.text.strip(), word.start, word.end] for word in one.words]
        listing.append({"file": f"{number}.wav", "text": one.text, "voice": "test", "words": words})
    (directory / "samples.json").write_text(json.dumps(listing))
    return directory
