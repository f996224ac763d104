"""Writes log probabilities as OpenAI's chat has them, and as its text completions do."""

from __future__ import annotations

import codecs
import math
from collections.abc import Sequence
from typing import Any

from trimodal.client.values import TokenLogprob


def chat_logprobs(tokens: Sequence[TokenLogprob]) -> dict[str, Any]:
    """The `logprobs` of a chat's choice, or of a part of it."""
    content = [{**_entry(one), "top_logprobs": list(map(_entry, one.top))} for one in tokens]
    return {"content": content, "refusal": None}


def _entry(one: TokenLogprob) -> dict[str, Any]:
    return {"token": one.token, "logprob": one.logprob, "bytes": list(one.bytes)}


class CompletionLogprobs:
    """The `logprobs` of one choice of a text completion, part after part.

    Args:
        top: how many of the likeliest tokens were asked for, beside the chosen one; None: no log
            probabilities are wanted.
    """

    def __init__(self, top: int | None) -> None:
        self._top = top
        self._offset = 0  # characters
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def part(self, tokens: Sequence[TokenLogprob]) -> dict[str, Any] | None:
        """The next tokens. An offset is that of the character that a token begins or goes on with."""
        if self._top is None:
            return None
        offsets: list[int] = []
        logprobs: list[float | None] = []
        tops: list[dict[str, float] | None] = []
        for one in tokens:
            offsets.append(self._offset)
            self._offset += len(self._decoder.decode(one.bytes))
            known = not math.isnan(one.logprob)
            logprobs.append(one.logprob if known else None)
            tops.append({other.token: other.logprob for other in (*one.top, one)} if known else None)
        return {
            "tokens": [one.token for one in tokens],
            "token_logprobs": logprobs,
            "top_logprobs": tops if self._top else None,
            "text_offset": offsets,
        }
