"""Asks a language model whether the words so far are a whole sentence."""

from __future__ import annotations

import re
from collections.abc import Sequence

from trimodal.client.client import Client
from trimodal.client.options import Options
from trimodal.client.values import Message
from trimodal.gateway.realtime.hearing.endpoint import SIGNS

WITHIN_MS = 300  # a server that cannot answer so soon refuses: the turn is judged without
_WORDS = 60  # of a long turn the last ones say it
_LAST = SIGNS + " \t\n-’"
_ENDS = (".", "?", "!", "…", "。", "？", "！", "।")
_STOPS = "".join(_ENDS)
_I = re.compile(r"I\b")  # also in I'm and "I," but not in "It"


async def is_complete(client: Client, model: str, words: str, options: Options) -> bool:
    """Whether the likeliest next token of a user who says this ends the sentence.

    As a user's message in the chat template: SmolLM2, given the bare words, often goes on after a whole
    sentence, as in a story. Raises: RequestError, TransportError.
    """
    said = _in_one(words.rstrip(_LAST).split()[-_WORDS:])
    if not said:
        return False
    asked: Options = {
        **options,
        "max_tokens": 1,
        "temperature": 0.0,
        "continue_final_message": True,
        "ttft_deadline_ms": WITHIN_MS,
        "cache_control": "no-cache, no-store",
    }
    messages = [Message(role="user", content=said)]
    answer = await client.complete(messages=messages, model=model, timeout=2e-3 * WITHIN_MS, **asked)
    following = answer.text.lstrip(" ")
    return not following or following.startswith(("\n", *_ENDS))


def _in_one(words: Sequence[str]) -> str:
    """The words as one sentence: Whisper ends one where somebody hesitates ("one other participant. In")."""
    joined, ended = [], False
    for word in words:
        said = word.rstrip(_STOPS) or word
        goes_on = ended and not _I.match(word)
        joined.append(said[:1].lower() + said[1:] if goes_on else said)
        ended = said != word
    return " ".join(joined)
