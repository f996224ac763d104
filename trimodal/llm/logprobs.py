"""Aligns the log probabilities of an answer's tokens with its text, as the text is sent."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

from trimodal.llm.detokenizer import Detokenizer
from trimodal.llm.engines.protocol import Logprobs
from trimodal.llm.request.outputs import TokenLogprob
from trimodal.llm.tokenizer import Tokenizer

_LEAST = -9999.0
"""OpenAI's, for the logarithm of 0: JSON has no infinity."""


class TextLogprobs:
    """Tokens in, those whose text is sent out, for one request. `whole`, `context`: as TextStream's.

    A token is told when all of its text is sent; of one that a stop string cuts, part of it. A token without
    text, such as the one that ends the answer, is not told.
    """

    def __init__(self, tokenizer: Tokenizer, *, whole: bool = False, context: Sequence[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._decode = tokenizer.decode_whole if whole else tokenizer.decode
        self._detokenizer = Detokenizer(self._decode, context)
        self._textless: list[tuple[int, Logprobs]] = []  # what they stand for is not certain yet
        self._unsent: deque[tuple[int, list[TokenLogprob]]] = deque()  # characters, and whose they are
        self._sent = 0  # characters beyond the tokens that were told

    def push(
        self, token_ids: Sequence[int], logprobs: Sequence[Logprobs], text: str, *, last: bool
    ) -> list[TokenLogprob]:
        """The tokens of `text`, which is sent now.

        Args:
            token_ids: of a step. logprobs: of each of them.
            last: the answer ends with `text`.

        Raises:
            ValueError: the engine gave other than one entry for each token.
        """
        for id, one in zip(token_ids, logprobs, strict=True):
            self._textless.append((id, one))
            self._take(self._detokenizer.push(id))
        if last:
            self._take(self._detokenizer.flush())
        self._sent += len(text)
        sent: list[TokenLogprob] = []
        while self._unsent and self._sent and (self._unsent[0][0] <= self._sent or last):
            length, tokens = self._unsent.popleft()
            self._sent = max(0, self._sent - length)
            sent += tokens
        return sent

    def _take(self, text: str) -> None:
        """Notes what the tokens without text turned out to be."""
        if text:
            self._unsent.append((len(text), self._share(self._textless, text)))
            self._textless = []

    def _share(self, tokens: Sequence[tuple[int, Logprobs]], text: str) -> list[TokenLogprob]:
        """Gives each token its part of their text."""
        if len(tokens) > 1:  # those that have none, a special token before the others, are left out
            tokens = [(id, one) for id, one in tokens if self._decode([id])] or tokens[-1:]
        parts = [self._tokenizer.token_bytes(id) for id, _ in tokens]
        if b"".join(parts).decode(errors="replace") != text:
            # At the beginning of a text many tokenizers leave a blank out.
            parts = [b""] * (len(parts) - 1) + [text.encode()]
        return [self._told(id, part, one) for (id, one), part in zip(tokens, parts, strict=True)]

    def _told(self, id: int, part: bytes, one: Logprobs) -> TokenLogprob:
        texts = ((part if other == id else self._tokenizer.token_bytes(other), at) for other, at in one.top)
        top = tuple(TokenLogprob(text, _bounded(logprob)) for text, logprob in texts)
        return TokenLogprob(part, _bounded(one.chosen), top)


def prompt_tokens(
    tokenizer: Tokenizer, ids: Sequence[int], logprobs: Sequence[Logprobs | None]
) -> list[TokenLogprob]:
    """The tokens of a prompt. The first has no log probability: nothing was before it."""
    told = []
    for id, one in zip(ids, logprobs, strict=True):
        top = one.top if one else ()
        ranked = tuple(TokenLogprob(tokenizer.token_bytes(other), _bounded(at)) for other, at in top)
        chosen = _bounded(one.chosen) if one else math.nan
        told.append(TokenLogprob(tokenizer.token_bytes(id), chosen, ranked))
    return told


def _bounded(logprob: float) -> float:
    """A finite number, at most 0: sums of FP32 may come out a little above."""
    return min(0.0, max(_LEAST, logprob))
