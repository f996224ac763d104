"""Decodes Whisper on one device: tokens are chosen and fed back there, the host looks every few steps.

Every address is fixed; rows are padded to the next bucket, whose other rows end at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import numpy as np
import torch
from torch import Tensor

from trimodal.runtimes.onnx_session import first_line
from trimodal.speech.engines.graphs.rows import Floats, Row, Rules, Tokens
from trimodal.speech.engines.tensorrt.bucket import Bucket, Buffers
from trimodal.speech.engines.tensorrt.forward import Forward
from trimodal.speech.whisper.features import Features

# Steps between two looks: a look costs tens of µs, a step that nobody needed some hundreds.
LOOK = 4
Step = Callable[[], None]
logger = logging.getLogger(__name__)


class StepCapture:
    """Captures steps on one stream, in one pool of memory; after the first failure none any more."""

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self._stream = stream
        self._pool = torch.cuda.graph_pool_handle()
        self._failed = False

    def __call__(self, step: Step) -> Step:
        """What replays `step`, or `step` itself. Runs it, too, so what it works on is not kept.

        Raises:
            RuntimeError: the step does not run at all.
        """
        # Run before: libraries make what they keep, TensorRT takes the shapes, none of which may be captured.
        for _ in range(2):
            step()
        if self._failed:
            return step
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
                step()
        except RuntimeError as error:
            # torch 2.13 leaves the pool open after this: the next capture in it would fail, too.
            self._failed = True
            # Refuses a GPU that has failed for good, which torch tells late: graphs are not all there is.
            step()
            self._stream.synchronize()
            cause = error.__context__ or error  # what fails in a capture makes its end fail
            told = "no CUDA graph of a decode step (%s): steps are launched one by one, which is slower"
            logger.warning(told, first_line(cause))
            return step
        replay: Step = graph.replay
        return replay


class DeviceGraphs:
    """One model on one device. One decoding at a time: the next begins in the same memory."""

    def __init__(
        self, forward: Forward, rules: Rules, *, buckets: Sequence[int], frames: Sequence[int], device: str
    ) -> None:
        """Allocates for the largest of `buckets` and `frames`; on a GPU captures a step for each of both,
        or warns once that it cannot.

        Raises ValueError: the rules do not fit the decoder; RuntimeError: what torch or TensorRT says.
        """
        self._forward = forward
        self._rules = rules
        self._buckets = tuple(buckets)
        self.device = torch.device(device)
        if rules.positions > forward.sizes.places:
            raise ValueError(
                f"the decoder has {forward.sizes.places} places, the manifest says {rules.positions}"
            )
        # Not the default stream: TensorRT would synchronise the whole device around every run.
        self._stream = torch.cuda.Stream(self.device) if self.device.type == "cuda" else None
        self._kept: dict[tuple[int, int], Bucket] = {}
        with self.used():
            self._capture = StepCapture(self._stream) if self._stream else None
            self._buffers = Buffers(forward.sizes, rows=max(buckets), frames=max(frames), device=self.device)
            self._buffers.banned[torch.from_numpy(rules.never)] = -torch.inf
            self._buffers.banned_first[torch.from_numpy(rules.not_first)] = -torch.inf
            if self._stream:
                for length in frames:
                    for rows in buckets:
                        self._bucket(rows, length // 2)

    @contextmanager
    def used(self) -> Iterator[None]:
        """Inside, all that torch does is in order on the loop's stream, and no gradients are kept."""
        with ExitStack() as stack:
            stack.enter_context(torch.inference_mode())
            if self._stream:
                stack.enter_context(torch.cuda.stream(self._stream))
            yield

    def start(self, features: Features) -> DeviceDecoding:
        """Encodes features float32[rows, mel, frames]; a decoding of all its rows, without tokens yet.

        Ends the decoding before. Raises ValueError: too many rows.
        """
        count, _, frames = features.shape
        if count > self._buckets[-1]:
            raise ValueError(f"{count} windows at once, and there is memory for {self._buckets[-1]}")
        with self.used():
            bucket = self._bucket(next(each for each in self._buckets if each >= count), frames // 2)
            bucket.encode(torch.from_numpy(np.ascontiguousarray(features, np.float32)))
        return DeviceDecoding(self, bucket, self._rules, count)

    @property
    def vocabulary(self) -> int:
        """Tokens that there are."""
        return self._forward.sizes.vocabulary

    def close(self) -> None:
        """Frees graphs, memory and weights; nothing runs any more."""
        self._kept.clear()
        self._forward.close()
        del self._buffers

    def fetch(self, tensor: Tensor) -> Tensor:
        """A copy on the host, once all that was asked before is done; pinned where the device is a GPU."""
        host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=self._stream is not None)
        host.copy_(tensor, non_blocking=True)
        if self._stream:
            self._stream.synchronize()
        return host

    def _bucket(self, rows: int, positions: int) -> Bucket:
        if (rows, positions) not in self._kept:
            self._kept[rows, positions] = Bucket(
                self._forward, self._buffers, self._rules.end, rows, positions, self._capture
            )
        return self._kept[rows, positions]


class DeviceDecoding:
    """Rows whose texts are written together, in one bucket."""

    def __init__(self, graphs: DeviceGraphs, bucket: Bucket, rules: Rules, rows: int) -> None:
        self._graphs = graphs
        self._bucket = bucket
        self._rules = rules
        self.rows = rows
        self.length = 0
        self._lines = 0  # of attention

    def open(self, tokens: Tokens, at: int) -> Floats:
        """Appends tokens int64[rows, n] that are given; attention is kept from token `at` on.

        Returns:
            Logits float32[rows, vocabulary] after token `at`, on the host.

        Raises:
            ValueError: more tokens than there are places.
        """
        count = tokens.shape[1]
        if self.length + count > self._rules.positions:
            raise ValueError(f"{self.length + count} tokens, and there are {self._rules.positions} places")
        graphs = self._graphs
        with graphs.used():
            # The other rows need tokens, too: any that there are.
            padded = np.resize(tokens, (self._bucket.rows, count))
            given = torch.from_numpy(np.ascontiguousarray(padded, np.int64)).to(graphs.device)
            logits = self._bucket.open(given, at, self.length, self._lines)
            self.length += count
            self._lines += count - at
            return np.asarray(graphs.fetch(logits[: self.rows]).numpy())

    def write(self, rows: Sequence[Row], temperature: float) -> None:
        """Decodes each row to its end or its bound; puts tokens and attention into it.

        Temperature 0 takes the most probable token. Above it one is drawn by the row's own generator: the
        noise is the host's, which looks at every step.
        """
        graphs, bucket, rules = self._graphs, self._bucket, self._rules
        buffers = bucket.buffers
        longest = rules.longest(self.length)
        bounds = [min(row.most_tokens, longest) for row in rows]
        with graphs.used():
            idle = bucket.rows - len(rows)
            buffers.bound[: bucket.rows].copy_(torch.tensor(bounds + [0] * idle))
            buffers.ended.zero_()
            buffers.temperature.fill_(temperature or 1.0)
            buffers.noise.zero_()
            buffers.given.fill_(-1)
            for index, row in enumerate(rows):
                prefix = row.prefix[: bounds[index]]
                buffers.forced[index].fill_(len(prefix))
                if prefix:
                    buffers.given[index, : len(prefix)].copy_(torch.tensor(prefix))
            self._draw(rows, temperature)
            bucket.choose()
            done, most = 1, max(bounds)
            while done < most and not bool(buffers.ended[: bucket.rows].all()):  # the look
                turns = 1 if temperature else min(LOOK, most - done)
                for _ in range(turns):
                    self._draw(rows, temperature)
                    bucket.step()
                done += turns
            self._take(rows, done)

    def step(self, tokens: Tokens) -> tuple[Floats, Floats]:
        """Runs a step on tokens int64[rows, 1] that the caller names: for checks, which compare its numbers.

        Returns:
            Logits float32[rows, vocabulary] after them; their attention float32[rows, heads, positions].
        """
        graphs, bucket = self._graphs, self._bucket
        with graphs.used():
            given = torch.from_numpy(np.resize(tokens, (bucket.rows, 1)))
            bucket.buffers.tokens[: bucket.rows].copy_(given)
            bucket.step()
            self.length += 1
            self._lines += 1
            logits = graphs.fetch(bucket.buffers.logits[: self.rows, 0])
            attention = graphs.fetch(bucket.attention[: self.rows, :, self._lines - 1])
        return np.asarray(logits.numpy()), np.asarray(attention.numpy())

    def _draw(self, rows: Sequence[Row], temperature: float) -> None:
        if not temperature:
            return
        # The largest of logits and such noise is a draw from their softmax.
        noise = np.array([row.draws.gumbel(size=self._graphs.vocabulary) for row in rows], np.float32)
        self._bucket.buffers.noise[: len(rows)].copy_(torch.from_numpy(noise))

    def _take(self, rows: Sequence[Row], done: int) -> None:
        """Brings what was chosen, and the attention, to the host."""
        buffers, count = self._bucket.buffers, len(rows)
        made = self._graphs.fetch(buffers.made[:count, :done]).tolist()
        chances = self._graphs.fetch(buffers.chances[:count, :done]).tolist()
        for row, tokens, each in zip(rows, made, chances, strict=True):
            for token, chance in zip(tokens, each, strict=True):
                if not row.ended:
                    row.take(token, chance, end=self._rules.end)
        # A line for each token that was given, of which the last chosen is none.
        lines = self._lines + max(row.made for row in rows) - 1
        attention = self._graphs.fetch(self._bucket.attention[:count, :, :lines]).numpy()
        for row, weights in zip(rows, attention, strict=True):
            row.attention.append(weights[:, : self._lines + row.made - 1])
