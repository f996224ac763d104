"""Decodes Whisper in OpenVINO: what is known of a text goes through the decoder in one run, more by steps.

What was decided before (a prefix) and what is expected (a draft, of the window before) are tokens that are
known: one run tells of all of them what Whisper itself would write there. A draft is kept as far as it is
just that, as in speculative decoding: the text is that of decoding token by token, in fewer runs. (In INT8 a
close decision may fall otherwise: sums of one token and of many are rounded in another order.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import openvino

from trimodal.speech.engines.graphs.rows import LEAST, Floats, Row, Rules, Tokens
from trimodal.speech.engines.openvino.decoder import crossing_graph, decoder_graph
from trimodal.speech.engines.openvino.network import compiled, options
from trimodal.speech.whisper.features import Features
from trimodal.speech.whisper.weights import ModelFile

_PLACES = 64  # of a cache, and by how many it grows
# Activations that share a scale of INT8. Logits of `base` are 1.9 % from those of FP32 activations, with 128
# 3.4 %, which changed names; a step takes 4.7 ms, 4.4 with 128 and 5.7 in FP32. A group that is larger than a
# row, as 512 of `tiny`, is not taken (2026.4).
_GROUP = 32
_UNSEEN = np.float32(-1e9)


class OpenVINOGraphs:
    """One model on the processor. One decoding at a time."""

    def __init__(
        self,
        encode: Callable[[Features], Floats],
        weights: ModelFile,
        rules: Rules,
        alignment_heads: Sequence[Sequence[int]],
        *,
        threads: int,
        precision: str,
    ) -> None:
        """`encode`: features float32[rows, mel, frames] → hidden states; `precision`: of the weights.

        Raises KeyError: another network.
        """
        self.rules = rules
        self._encode = encode
        self._crossing = compiled(
            crossing_graph(weights), options(threads, exact=not precision.startswith("int8"))
        )
        graph = decoder_graph(weights, alignment_heads)
        self.layers = (len(graph.outputs) - 2) // 2
        # In FP32 with AMX, too: a step reads its weights, and bf16 is made of INT8 more slowly than FP32.
        chosen = options(threads, exact=True)
        if precision.startswith("int8"):
            chosen["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = _GROUP
        self._decoder = compiled(graph, chosen)
        self._inputs: dict[str, Any] = {}  # of the last run: OpenVINO holds no array that it reads

    def start(self, features: Features) -> OpenVINODecoding:
        """Encodes features float32[rows, mel, frames]; a decoding of all its rows, without tokens yet."""
        states = self._encode(features)
        crossed: list[Floats] = []
        for row, state in enumerate(states):
            made = list(self._crossing.infer([state[None]], share_outputs=True).values())
            if len(states) == 1:  # views that live as long as the decoding
                crossed = made
                break
            crossed = crossed or [np.empty((len(states), *each.shape[1:]), np.float32) for each in made]
            for rows, each in zip(crossed, made, strict=True):
                rows[row] = each[0]
        return OpenVINODecoding(self, crossed)

    def decode(self, changed: Mapping[str, Any]) -> tuple[Floats, Floats, list[Floats]]:
        """Logits, attention, and the new tokens' keys and values: views that the next run overwrites.

        `changed`: the inputs that are not those of the run before, by name; they are not copied.
        """
        self._inputs |= changed
        for name, array in changed.items():
            self._decoder.set_tensor(name, openvino.Tensor(array, shared_memory=True))
        logits, attention, *made = self._decoder.infer(share_outputs=True).values()
        return logits, attention, made

    def close(self) -> None:
        """Frees the weights."""
        del self._decoder, self._crossing


class OpenVINODecoding:
    """Rows whose texts are written together, each as long as it is."""

    def __init__(self, graphs: OpenVINOGraphs, crossed: Sequence[Floats]) -> None:
        self._graphs, self._rules = graphs, graphs.rules
        self.rows, self._heads, self._head, _ = crossed[0].shape
        self._names = [f"{name}_{layer}" for layer in range(graphs.layers) for name in ("key", "value")]
        self._past = [self._cache(_PLACES) for _ in crossed]
        self._changed: dict[str, Any] = self._named("cross", crossed) | self._named("past", self._past)
        self._lengths = np.zeros(self.rows, np.int64)  # tokens in the cache
        self._logits = np.empty((0, 0), np.float32)  # after each row's last token
        self._opening: list[Floats] = []  # attention of the tokens before the text

    def open(self, tokens: Tokens, at: int) -> Floats:
        """Appends tokens int64[rows, n] that are given; attention is kept from token `at` on.

        Returns:
            Logits float32[rows, vocabulary] after token `at`.
        """
        count = tokens.shape[1]
        logits, attention = self._run(tokens, [at, count - 1])
        self._lengths += count
        self._logits = logits[:, 1].copy()
        self._opening.append(attention[:, :, at:].copy())
        return logits[:, 0].copy()

    def write(self, rows: Sequence[Row], temperature: float) -> None:
        """Decodes each row to its end or its bound; puts tokens and attention into it.

        Its prefix is taken, of its draft what would be written anyway. Above temperature 0 tokens are drawn,
        with the row's own numbers, and no draft is looked at.
        """
        longest = self._rules.longest(int(self._lengths[0]))  # the openings of all have one length
        for row, attention in zip(rows, np.concatenate(self._opening, 2), strict=True):
            row.most_tokens = min(row.most_tokens, longest)
            row.attention.append(attention)
        known = [(row.prefix + ([] if temperature else row.draft))[: row.most_tokens] for row in rows]
        if any(known):
            self._take_known(rows, known, temperature)
        else:
            for row, logits in zip(rows, self._logits, strict=True):
                self._choose(row, logits, temperature)
        while not all(row.ended for row in rows):
            logits, attention = self._run(np.array([[row.last] for row in rows], np.int64), [0])
            self._lengths += 1
            for at, row in enumerate(rows):
                if not row.ended:
                    row.attention.append(attention[at].copy())
                    self._choose(row, logits[at, 0], temperature)

    def _take_known(self, rows: Sequence[Row], known: Sequence[list[int]], temperature: float) -> None:
        """One run of all that is known of the rows; then each has one token that did not go in yet."""
        most = max(map(len, known))
        tokens = np.array([[*each, *[self._rules.end] * (most - len(each))] for each in known], np.int64)
        logits, attention = self._run(tokens, range(most))
        for at, (row, given) in enumerate(zip(rows, known, strict=True)):
            after = self._logits[at]
            taken = 0
            while True:
                forced = given[taken] if taken < len(row.prefix) else None
                chosen = self._choose(row, after, temperature, forced)
                if row.ended or taken == len(given) or chosen != given[taken]:
                    break
                after = logits[at, taken]
                taken += 1
            row.attention.append(attention[at, :, :taken].copy())
            self._lengths[at] += taken

    def _choose(self, row: Row, logits: Floats, temperature: float, forced: int | None = None) -> int:
        """The row's next token, by the logits float32[vocabulary] after its last; takes it."""
        allowed = logits.copy()
        opens = row.made == len(row.prefix)
        allowed[self._rules.not_first if opens else self._rules.never] = -np.inf
        token = int(allowed.argmax())
        total = allowed[token] + np.log(np.exp(allowed - allowed[token]).sum())
        if forced is not None:
            token = forced
        elif temperature:
            # The largest of logits and such noise is a draw from their softmax.
            noise = row.draws.gumbel(size=len(allowed)).astype(np.float32)
            token = int((allowed / np.float32(temperature) + noise).argmax())
        row.take(token, max(float(allowed[token] - total), LEAST), end=self._rules.end)
        return token

    def _run(self, tokens: Tokens, wanted: Sequence[int]) -> tuple[Floats, Floats]:
        """Logits float32[rows, wanted, vocabulary], attention float32[rows, heads, n, positions] of a run.

        The tokens' keys and values lie in the cache behind each row's length then, which stays as it is.
        """
        count, places = tokens.shape[1], self._past[0].shape[2]
        needed = int(self._lengths.max()) + count
        if needed > places:
            places = -(-needed // _PLACES) * _PLACES
            self._grow(places)
        mask = np.zeros((self.rows, 1, count, places + count), np.float32)
        mask[:, 0, :, :places] = np.where(np.arange(places) < self._lengths[:, None], 0, _UNSEEN)[:, None]
        mask[:, 0, :, places:] = np.triu(np.full((count, count), _UNSEEN), 1)
        # Of what is behind a row's end nobody reads.
        at = np.minimum(self._lengths[:, None] + np.arange(count), self._rules.positions - 1)
        self._changed |= {"tokens": tokens, "places": at, "mask": mask, "wanted": np.array(wanted, np.int64)}
        logits, attention, made = self._graphs.decode(self._changed)
        self._changed = {}
        for cache, new in zip(self._past, made, strict=True):
            for row, length in enumerate(self._lengths.tolist()):
                cache[row, :, length : length + count] = new[row]
        return logits, attention

    def _cache(self, places: int) -> Floats:
        # Zeros: what is masked still has to be finite, NaN times 0 is NaN.
        return np.zeros((self.rows, self._heads, places, self._head), np.float32)

    def _grow(self, places: int) -> None:
        for index, old in enumerate(self._past):
            self._past[index] = self._cache(places)
            self._past[index][:, :, : old.shape[2]] = old
        self._changed |= self._named("past", self._past)

    def _named(self, kind: str, caches: Sequence[Floats]) -> dict[str, Floats]:
        return {f"{kind}_{name}": cache for name, cache in zip(self._names, caches, strict=True)}
