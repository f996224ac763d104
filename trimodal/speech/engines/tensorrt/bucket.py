"""Holds the tensors of a decoding at fixed addresses, and decodes one token of every row in them.

A step is the same work on the same addresses whatever the rows, so on a GPU it is captured once as a CUDA
graph for each number of rows and length of audio. All rows of a decoding have had the same number of tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod

import torch
from torch import Tensor

from trimodal.speech.engines.graphs.rows import LEAST, most_lines
from trimodal.speech.engines.tensorrt.forward import CROSS, NEW, PAST, Forward, Sizes, layer_names

# What runs a step as well, made of the step; it may run it before.
Capture = Callable[[Callable[[], None]], Callable[[], None]]


class Buffers:
    """The memory of all decodings, one at a time: for so many rows, frames and places.

    Attributes:
        past: [2 · layers, rows, heads, places, head], keys and values in turn; finite everywhere.
        at: int64[3]: tokens in the cache, lines of attention kept, tokens chosen.
        given: int64[rows, places], the tokens that are taken whatever is probable; -1 where any may be.
        forced: int64[rows], how many of them a text begins with.
        banned, banned_first: float32[vocabulary], -inf where a token may not be chosen, or not as the first
            behind those, else 0.
    """

    def __init__(self, sizes: Sizes, *, rows: int, frames: int, device: torch.device) -> None:
        """Raises: torch.OutOfMemoryError."""

        def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            # Zeros: what is masked still has to be finite, NaN times 0 is NaN.
            return torch.zeros(shape, dtype=dtype, device=device)

        self.device = device
        lines, chosen = most_lines(sizes.places), sizes.places
        # A layer's share begins at a multiple of 256 bytes, as TensorRT wants: widths are multiples of 128.
        of_cache = 2 * sizes.layers, rows, sizes.heads
        self.at = zeros(3, dtype=torch.int64)
        self.last = zeros(1, dtype=torch.int64)
        self.tokens = zeros(rows, 1, dtype=torch.int64)
        self.logits = zeros(rows, 1, sizes.vocabulary)
        self.past = zeros(*of_cache, sizes.places, sizes.head, dtype=sizes.cache)
        self.new = zeros(*of_cache, 1, sizes.head, dtype=sizes.cache)
        self.noise = zeros(rows, sizes.vocabulary)
        self.temperature = zeros(1) + 1
        self.ended = zeros(rows, dtype=torch.bool)
        self.bound = zeros(rows, dtype=torch.int64)
        self.made = zeros(rows, chosen, dtype=torch.int64)
        self.given = zeros(rows, chosen, dtype=torch.int64) - 1
        self.forced = zeros(rows, dtype=torch.int64)
        self.chances = zeros(rows, chosen)
        self.banned, self.banned_first = zeros(sizes.vocabulary), zeros(sizes.vocabulary)
        # Of these the last size is the audio's: a view of the first elements has it.
        self.features = zeros(rows * sizes.mel_bins * frames)
        crossed = rows * sizes.heads * sizes.head * (frames // 2)
        self.crossed = [zeros(crossed, dtype=sizes.cache) for _ in range(2 * sizes.layers)]
        self.alignment = zeros(rows * sizes.aligned * (frames // 2))  # of one step
        self.attention = zeros(rows * sizes.aligned * lines * (frames // 2))


@dataclass(eq=False)
class Bucket:
    """Views of the buffers for `rows` rows and `positions` of encoded audio.

    Attributes:
        crossed, past: by name, as Forward takes them.
        attention: float32[rows, aligned, lines, positions], a line for each token.
        step: what decodes one token, replayed.
    """

    forward: Forward
    buffers: Buffers
    end: int
    rows: int
    positions: int
    capture: Capture | None
    crossed: dict[str, Tensor] = field(init=False)
    past: dict[str, Tensor] = field(init=False)
    attention: Tensor = field(init=False)
    step: Callable[[], None] = field(init=False)

    def __post_init__(self) -> None:
        sizes, buffers, rows, positions = self.forward.sizes, self.buffers, self.rows, self.positions
        key = rows, sizes.heads, sizes.head, positions
        value = rows, sizes.heads, positions, sizes.head
        names = layer_names(*CROSS, layers=sizes.layers)
        self.crossed = {
            name: first(block, *(key if name.startswith("cross_key_") else value))
            for name, block in zip(names, buffers.crossed, strict=True)
        }
        self.past = _named(PAST, buffers.past, rows)
        self.attention = first(buffers.attention, rows, sizes.aligned, most_lines(sizes.places), positions)
        self._tokens, self._logits = buffers.tokens[:rows], buffers.logits[:rows]
        self._alignment = first(buffers.alignment, rows, sizes.aligned, 1, positions)
        inputs = {"tokens": self._tokens, "index": buffers.at[:1], "wanted": buffers.last}
        self._inputs = inputs | self.crossed | self.past
        self._outputs = {"logits": self._logits, "alignment": self._alignment}
        self._outputs |= _named(NEW, buffers.new, rows)
        # Captured on what lies there now, which nobody wants: a decoding sets all that it reads.
        buffers.at.zero_()  # within the places, however many buckets were made before
        self.step = self.capture(self._step) if self.capture else self._step

    def encode(self, features: Tensor) -> None:
        """Of features float32[n, mel, frames], n ≤ rows; those of the other rows are zeros."""
        _, bands, frames = features.shape
        padded = first(self.buffers.features, self.rows, bands, frames)
        padded[: len(features)].copy_(features)
        padded[len(features) :].zero_()
        self.forward.encode(padded, self.crossed)
        # Also of what an earlier window left: a NaN in it would outlive every mask.
        self.buffers.past[:, : self.rows].zero_()
        self.buffers.at.zero_()

    def open(self, tokens: Tensor, at: int, place: int, line: int) -> Tensor:
        """Appends tokens int64[rows, n] at `place`; keeps their attention from token `at` on, from `line`.

        Returns:
            Logits float32[rows, vocabulary] after token `at`; those after the last are chosen from next.
        """
        sizes, rows, count = self.forward.sizes, self.rows, tokens.shape[1]
        device = self.buffers.device
        of_new = 2 * sizes.layers, rows, sizes.heads, count, sizes.head
        new = torch.empty(of_new, dtype=sizes.cache, device=device)
        alignment = torch.empty((rows, sizes.aligned, count, self.positions), device=device)
        logits = torch.empty((rows, 2, sizes.vocabulary), device=device)
        inputs = self._inputs | {"tokens": tokens, "wanted": torch.tensor([at, count - 1], device=device)}
        outputs = {"logits": logits, "alignment": alignment} | _named(NEW, new, rows)
        self.forward.decode(inputs, outputs)
        self.buffers.past[:, :rows, :, place : place + count].copy_(new)
        kept = count - at
        self.attention[:, :, line : line + kept].copy_(alignment[:, :, at:])
        self._logits.copy_(logits[:, 1:])
        self.buffers.at.copy_(torch.tensor([place + count, line + kept, 0]))
        return logits[:, 0]

    def choose(self) -> None:
        """Takes a token for every row; what one that has ended goes on to write counts for nothing."""
        buffers, rows = self.buffers, self.rows
        ended, count = buffers.ended[:rows], buffers.at[2:]
        given = buffers.given[:rows].index_select(1, count)[:, 0]
        opens = (count == buffers.forced[:rows])[:, None]
        banned = torch.where(opens, buffers.banned_first, buffers.banned)
        tokens, chances = draw(self._logits[:, 0], banned, buffers.temperature, buffers.noise[:rows], given)
        buffers.made[:rows].index_copy_(1, count, tokens[:, None])
        buffers.chances[:rows].index_copy_(1, count, chances[:, None])
        self._tokens.copy_(tokens[:, None])
        count.add_(1)
        ended.logical_or_(tokens == self.end).logical_or_(count >= buffers.bound[:rows])

    def _step(self) -> None:
        """The tokens chosen last go in; the next ones are chosen. Nothing here may depend on the host."""
        buffers = self.buffers
        self.forward.decode(self._inputs, self._outputs)
        buffers.past[:, : self.rows].index_copy_(3, buffers.at[:1], buffers.new[:, : self.rows])
        self.attention.index_copy_(2, buffers.at[1:2], self._alignment)
        buffers.at[:2].add_(1)
        self.choose()


def draw(
    logits: Tensor, banned: Tensor, temperature: Tensor, noise: Tensor, given: Tensor
) -> tuple[Tensor, Tensor]:
    """Each row's token, and its natural log-probability among the allowed ones; on the device alone.

    Args:
        logits, noise: float32[rows, vocabulary]; without noise it is the most probable token, the first of
            equals, as torch documents argmax.
        banned: float32[vocabulary] or that of each row, -inf or 0.
        temperature: float32[1]; 1 leaves the logits exactly as they are.
        given: int64[rows], a token that is taken also where it is banned, or -1.

    Returns:
        int64[rows] and float32[rows].
    """
    allowed = logits + banned
    tokens = torch.where(given < 0, (allowed / temperature + noise).argmax(1), given)
    chances = allowed.log_softmax(1).gather(1, tokens[:, None])[:, 0]
    return tokens, chances.clamp(min=LEAST)


def first(block: Tensor, *shape: int) -> Tensor:
    """The first elements of a flat tensor in a shape, so contiguous."""
    return block[: prod(shape)].view(shape)


def _named(patterns: tuple[str, ...], caches: Tensor, rows: int) -> dict[str, Tensor]:
    """Each layer's key and value of the first rows."""
    names = layer_names(*patterns, layers=len(caches) // 2)
    return {name: each[:rows] for name, each in zip(names, caches, strict=True)}
