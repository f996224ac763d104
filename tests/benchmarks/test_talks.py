"""Turns of recordings: where their pause lies, and after which word one was taken for over."""

from __future__ import annotations

import json
import random

import numpy as np

from benchmarks.common import SAMPLES
from benchmarks.starter.talks import PAUSES_S, SENTENCE_ENDS, SILENCE_S, quiet, with_pause
from trimodal.audio.values import SAMPLE_RATE


def test_a_pause_lies_between_two_words_of_a_sentence() -> None:
    for entry in json.loads((SAMPLES / "samples.json").read_text()):
        turn = with_pause(SAMPLES / entry["file"], entry, random.Random(1))
        ends = [end_s for end_s, _ in turn.ends]
        said = [end_s for _, _, end_s in entry["words"]]
        later = [end_s - before for end_s, before in zip(ends, said, strict=True)]
        cut = later.count(0.0) - 1
        assert PAUSES_S[0] <= later[-1] <= PAUSES_S[1]
        assert max(later[cut + 1 :]) - min(later[cut + 1 :]) < 1e-9
        assert not turn.ends[cut][1].endswith(SENTENCE_ENDS)
        assert turn.word_before(ends[cut]) == turn.ends[cut][1]
        assert len(turn.samples) / SAMPLE_RATE > turn.end_s + SILENCE_S - 0.1


def test_a_pause_sounds_as_the_recording_where_it_is_quietest() -> None:
    samples = np.concatenate([np.full(4_000, 0.5), np.full(4_000, 0.01), np.full(4_000, 0.3)])
    np.testing.assert_allclose(quiet(samples.astype(np.float32), 20_000), 0.01)
