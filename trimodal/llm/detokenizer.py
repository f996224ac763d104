"""Converts token ids to text step by step: never half a character, never part of a stop string."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from trimodal.llm.tokenizer import Tokenizer

_REPLACEMENT = "\ufffd"
_CONTEXT_TOKENS = range(8, 24)
_MAX_HELD_TOKENS = 12
"""A character has at most 4 bytes; a model that emits more broken bytes than this means no character."""


class Detokenizer:
    """Incremental decoding as in text-generation-inference: decode a short window twice, emit the difference.

    The window begins a few tokens back because many tokenizers write a token
    differently at the start of a text (a leading space is dropped).

    Args:
        context: tokens of a text that is there already, as `context_of` has them.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], context: Sequence[int] = ()) -> None:
        self._decode = decode
        self._ids = list(context)  # the window
        self._read = len(context)  # so many of them have been emitted

    def push(self, token_id: int) -> str:
        """The text that became certain with this token; may be empty."""
        self._ids.append(token_id)
        return self._pop(final=False)

    def flush(self) -> str:
        """What was held back: half a character becomes U+FFFD."""
        return self._pop(final=True)

    def _pop(self, *, final: bool) -> str:
        if self._read == len(self._ids):
            return ""
        before, now = self._decode(self._ids[: self._read]), self._decode(self._ids)
        held = len(self._ids) - self._read
        # A special token has no text. Were it all that is left of the window, the next word would be decoded
        # as the first of a text, without the space before it.
        uncertain = len(now) <= len(before) or now.endswith(_REPLACEMENT)
        if not final and uncertain and held < _MAX_HELD_TOKENS:
            return ""
        # Old ids are never looked at again; a long answer must not grow the window's cost or the memory.
        del self._ids[: self._read]
        self._read = len(self._ids)
        return now[len(before) :]


def context_of(prompt_ids: Sequence[int], tokenizer: Tokenizer) -> Sequence[int]:
    """The last tokens of a prompt, for a text that continues it; none where they are no whole characters.

    With part of a character before them, bytes that follow would be none either.
    """
    for size in _CONTEXT_TOKENS:
        ids = prompt_ids[-size:]
        if _REPLACEMENT not in tokenizer.decode(ids):
            return ids
    return ()


class StopMatcher:
    """Cuts a growing text at the first stop string, and holds back what may become one."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [stop for stop in stops if stop]
        self.held = ""
        self.found = False

    def push(self, text: str, *, early: bool = False) -> str:
        """The text that can be sent; everything from a stop string on is dropped and `found` is set.

        Args:
            early: none may end in this text; one that begins in it may end later.
        """
        if not self._stops or self.found:
            return "" if self.found else text
        passed = len(self.held) + (len(text) if early else 0)  # one ends behind it
        text = self.held + text
        places = (text.find(stop, max(0, passed - len(stop) + 1)) for stop in self._stops)
        cuts = [at for at in places if at >= 0]
        if cuts:
            self.found, self.held = True, ""
            return text[: min(cuts)]
        keep = max(overlap(text, stop) for stop in self._stops)
        self.held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def flush(self) -> str:
        """What was held back, once no more text comes."""
        held, self.held = self.held, ""
        return "" if self.found else held


def overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that begins `stop`."""
    longest = min(len(text), len(stop) - 1)
    return next((length for length in range(longest, 0, -1) if text.endswith(stop[:length])), 0)


def said(token_ids: Sequence[int], finish_reason: str | None, ends: Collection[int]) -> Sequence[int]:
    """The tokens without the one that ended the answer: not all tokenizers mark it as special.

    Args:
        ends: what may have ended it. An engine that has left it out already tells none of them.
    """
    ended = finish_reason == "stop" and token_ids and token_ids[-1] in ends
    return token_ids[:-1] if ended else token_ids


class TextStream:
    """Tokens in, text out, for one request. `whole`: with special tokens, as a grammar has them.

    `context`: as the Detokenizer's. As in vLLM no stop string ends within the text of the first `min_tokens`.

    Attributes:
        ends: of each token, the characters of the answer's text up to its end.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        stops: Sequence[str],
        *,
        whole: bool = False,
        context: Sequence[int] = (),
        min_tokens: int = 0,
    ) -> None:
        self._detokenizer = Detokenizer(tokenizer.decode_whole if whole else tokenizer.decode, context)
        self._matcher = StopMatcher(stops)
        self._min_tokens = min_tokens
        self.ends: list[int] = []

    @property
    def held(self) -> str:
        """Text that may still become a stop string."""
        return self._matcher.held

    def push(self, token_ids: Sequence[int], *, last: bool) -> tuple[str, bool]:
        """Text that may be sent now, and whether a stop string ended the answer."""
        text = ""
        for token_id in token_ids:
            part = self._detokenizer.push(token_id)
            self.ends.append((self.ends[-1] if self.ends else 0) + len(part))
            text += self._match(part)
        if last:
            text += self._match(self._detokenizer.flush())
            text += self._matcher.flush()
        return text, self._matcher.found

    def _match(self, text: str) -> str:
        return self._matcher.push(text, early=len(self.ends) <= self._min_tokens)
