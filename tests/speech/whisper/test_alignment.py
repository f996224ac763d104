"""Word times from attention, against transformers' own median filter and time warping."""

from __future__ import annotations

import numpy as np
import pytest

from trimodal.speech.whisper.alignment import median_of_7, token_path, warp


@pytest.mark.parametrize("length", [4, 7, 50])
def test_the_median_is_numpys(length):
    values = np.random.default_rng(0).normal(size=(2, 3, length)).astype(np.float32)
    padded = np.pad(values, ((0, 0), (0, 0), (3, 3)), mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, 7, axis=-1)
    np.testing.assert_array_equal(median_of_7(values), np.median(windows, axis=-1))


def test_three_steps_are_too_few_for_a_median():
    values = np.array([[[3, 1, 2]]], np.float32)
    np.testing.assert_array_equal(median_of_7(values), values)


@pytest.mark.build
@pytest.mark.parametrize(("rows", "columns"), [(1, 9), (9, 1), (12, 90), (40, 5)])
def test_the_path_is_that_of_transformers(rows, columns):
    generation = pytest.importorskip("transformers.models.whisper.generation_whisper")
    costs = np.random.default_rng(3).normal(size=(rows, columns)).astype(np.float32)
    texts, times = generation._dynamic_time_warping(costs.astype(np.float64))
    ours = warp(costs)
    np.testing.assert_array_equal(ours[0], texts)
    np.testing.assert_array_equal(ours[1], times)


def test_tokens_begin_where_their_heads_look_and_padding_does_not_count():
    """Three tokens and the end, 10 steps each; one head looks straight, the other nowhere."""
    rows, steps, positions = 6, 40, 60
    attention = np.full((2, rows, positions), 1 / positions, np.float32)
    for token in range(4):
        attention[0, 2 + token, token * 10 : token * 10 + 10] = 0.2
    attention[0, :, steps:] = 5.0  # all look at the padding most of all
    texts, times = token_path(attention, 2, steps)
    assert times.max() == steps - 1
    starts = [int(times[texts == token].min()) for token in range(4)]
    assert starts == pytest.approx([0, 10, 20, 30], abs=1)
