"""Finds when each token was spoken from the decoder's cross-attention: Whisper's algorithm in numpy.

Attention of the alignment heads is normalised, smoothed and averaged; dynamic time
warping then finds the path on which tokens and time both only go forward.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
# openai-whisper's width of the median filter, in steps of 20 ms.
MEDIAN_WIDTH = 7
# Comparisons after which the middle of seven is in place (N. Devillard): far quicker than sorting.
_MEDIAN_OF_7 = (
    *((0, 5), (0, 3), (1, 6), (2, 4), (0, 1), (3, 5), (2, 6)),
    *((2, 3), (3, 6), (4, 5), (1, 4), (1, 3), (3, 4)),
)


def token_path(attention: Floats, first: int, steps: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The path of tokens and steps, both ascending, one pair a step.

    Args:
        attention: float32[heads, rows, positions] after softmax; row r is that of the token which
            was given when token r + 1 was made.
        first: the row that made the first token of the text; those before it only count as contrast.
        steps: positions, from the first, that hold audio; what follows is padding.

    Returns:
        Rows counted from `first`, and positions, each int64[path].
    """
    heard = attention[:, :, :steps]
    heard = heard / np.maximum(heard.sum(-1, keepdims=True), np.finfo(np.float32).tiny)
    spread = heard.std(1, keepdims=True)
    contrast = (heard - heard.mean(1, keepdims=True)) / np.maximum(spread, np.finfo(np.float32).tiny)
    return warp(-median_of_7(contrast)[:, first:].mean(0))


def median_of_7(values: Floats) -> Floats:
    """The median of each element and its six neighbours on the last axis, which is mirrored at its ends.

    A last axis of 3 or fewer elements is returned as it is, as openai-whisper does.
    """
    reach = MEDIAN_WIDTH // 2
    if values.shape[-1] <= reach:
        return values
    padded = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(reach, reach)], mode="reflect")
    length = values.shape[-1]
    seven = [padded[..., shift : shift + length] for shift in range(MEDIAN_WIDTH)]
    for low, high in _MEDIAN_OF_7:
        seven[low], seven[high] = np.minimum(seven[low], seven[high]), np.maximum(seven[low], seven[high])
    return seven[reach]


def warp(costs: Floats) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The cheapest path from [0, 0] to the last corner of costs[rows, columns]: down, right or both."""
    rows, columns = costs.shape
    total = np.full((rows + 1, columns + 1), np.inf)
    total[0, 0] = 0
    for row in range(rows):
        # total[row + 1, j] = costs[row, j] + min(from above, from the left): the chain to the left becomes a
        # running minimum once the sums along the row are taken out.
        along = np.cumsum(costs[row], dtype=np.float64)
        above = np.minimum(total[row, :-1], total[row, 1:])
        total[row + 1, 1:] = along + np.minimum.accumulate(above - (along - costs[row]))
    return _trace(total)


def _trace(total: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Back from the last corner; where ways cost the same, time goes on first, as in openai-whisper."""
    row, column = total.shape[0] - 1, total.shape[1] - 1  # Only [0, 0] has no finite way out.
    path: list[tuple[int, int]] = []
    while row > 0 and column > 0:
        path.append((row - 1, column - 1))
        both, down, right = total[row - 1, column - 1], total[row - 1, column], total[row, column - 1]
        if both < down and both < right:
            row, column = row - 1, column - 1
        elif down < both and down < right:
            row -= 1
        else:
            column -= 1
    pairs = np.array(path[::-1], np.int64)
    return pairs[:, 0], pairs[:, 1]
