"""Samples as tensors carry them: what becomes of them, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from trimodal.audio.samples import check_samples, one_channel, to_float
from trimodal.errors import InvalidArgument


def test_the_field_that_was_given_comes_flat():
    name, flat = one_channel({"audio": None, "audio_int16": np.zeros((1, 5), np.int16), "image": 3})
    assert (name, flat.shape, flat.dtype) == ("audio_int16", (5,), np.int16)
    assert one_channel({"audio": None}) is None


@pytest.mark.parametrize(
    ("inputs", "sentence"),
    [
        ({"audio": np.zeros(2), "audio_int16": np.zeros(2, np.int16)}, "give one of them, not both"),
        ({"audio": np.zeros((2, 3))}, r"audio: shape \[2, 3\]; one channel is taken"),
        ({"audio": np.zeros((1, 1, 3))}, r"audio: shape \[1, 1, 3\]"),
    ],
)
def test_two_fields_and_two_channels_are_refused(inputs, sentence):
    with pytest.raises(InvalidArgument, match=sentence):
        one_channel(inputs)


def test_floats_are_copied_and_integers_become_fractions():
    floats = np.float32([0.5, -0.25])
    copied = to_float("audio", floats)
    assert copied.tolist() == [0.5, -0.25]
    assert not np.shares_memory(copied, floats)
    assert to_float("audio_int16", np.int16([-32768, 16384])).tolist() == [-1.0, 0.5]
    assert to_float("audio", np.zeros(0, np.float32)).shape == (0,)


@pytest.mark.parametrize(
    ("samples", "sentence"),
    [
        ([0, np.nan, np.inf], "audio: sample 1 is nan; FP32 samples are finite, within [-1, 1]"),
        ([0, -np.inf], "audio: sample 1 is -inf; FP32"),
        ([0, -8.5, 1], "audio: a sample of 8.5; FP32 samples lie within [-1, 1], integers go"),
    ],
)
def test_what_is_no_audio_is_refused(samples, sentence):
    with pytest.raises(InvalidArgument) as error:
        check_samples(np.float32(samples), "audio")
    assert str(error.value).startswith(sentence)


def test_a_little_above_full_scale_is_taken():
    check_samples(np.float32([-8.0, 8.0]), "audio")
