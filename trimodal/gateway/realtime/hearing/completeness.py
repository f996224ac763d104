"""Asks a language model whether the words so far are a whole sentence."""

from __future__ import annotations

from trimodal.client.client import Client
from trimodal.client.options import Options
from trimodal.gateway.realtime.hearing.endpoint import SIGNS

WITHIN_MS = 300  # a server that cannot answer so soon refuses: the turn is judged without
_WORDS = 60  # of a long turn the last ones say it
_LAST = SIGNS + " \t\n-’"
_ENDS = (".", "?", "!", "…", "。", "？", "！", "।")


async def is_complete(client: Client, model: str, words: str, options: Options) -> bool:
    """Whether the likeliest next token ends the sentence. Raises: RequestError, TransportError."""
    said = " ".join(words.rstrip(_LAST).split()[-_WORDS:])
    if not said:
        return False
    asked: Options = {
        **options,
        "max_tokens": 1,
        "temperature": 0.0,
        "apply_chat_template": False,
        "ttft_deadline_ms": WITHIN_MS,
        "cache_control": "no-cache, no-store",
    }
    answer = await client.complete(said, model=model, timeout=2e-3 * WITHIN_MS, **asked)
    following = answer.text.lstrip(" ")
    return not following or following.startswith(("\n", *_ENDS))
