"""Makes speech for tests: utterances of a steady level whose text is known."""

import json

import numpy as np
import soundfile

from trimodal.audio.values import SAMPLE_RATE
from trimodal.bench.samples import Recording


def utterance(text, seconds=1.0, level=0.1):
    return Recording(np.full(round(seconds * SAMPLE_RATE), level, np.float32), text)


def write_recordings(directory, utterances):
    """A directory of recordings as `--samples` takes it."""
    listing = []
    for number, one in enumerate(utterances):
        soundfile.write(directory / f"{number}.wav", one.samples, SAMPLE_RATE)
        listing.append({"file": f"{number}.wav", "text": one.text, "speaker": "test"})
    (directory / "samples.json").write_text(json.dumps(listing))
    return directory
