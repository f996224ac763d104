"""Sends what begins alike to the same server, whose engine has the beginning's keys and values already.

Rendezvous hashing: every server has a score for a beginning, the highest one gets it. Where a server leaves,
only its own beginnings move, and gateways beside each other agree without a word. The load is bounded: a
server that has much more than its share is passed over.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence

from trimodal.client.transports.base import Request

# A conversation is known by its first user message and what stands before it, which stay as they are while it
# grows. Two documents are told apart within so many characters, and what is equal so far goes together.
_MOST_CHARS = 4096
_MUCH_MORE = 1.25
_ALWAYS = 4  # requests that a server may have whatever the others have: its engine takes them together


def beginning(request: Request) -> bytes:
    """What stays the same of a conversation while it grows; empty where nothing is worth keeping together."""
    for name in ("messages", "history"):
        if name in request.inputs:
            return _first_turn(bytes(request.inputs[name][0]))
    if "text_input" in request.inputs:
        return _text(bytes(request.inputs["text_input"].reshape(-1)[0]).decode("utf-8", "replace"))
    if "prompt_token_ids" in request.inputs:
        return request.inputs["prompt_token_ids"][:_MOST_CHARS].tobytes()
    return b""


def ranked(key: bytes, addresses: Sequence[str]) -> list[str]:
    """The servers for a beginning, best first."""

    def score(address: str) -> bytes:
        return hashlib.blake2b(key + address.encode(), digest_size=8).digest()

    return sorted(addresses, key=score, reverse=True)


def most_running(running: int, servers: int) -> int:
    """How many requests a server may have, this one included, when all of them have `running`."""
    return max(_ALWAYS, math.ceil(_MUCH_MORE * (running + 1) / servers))


def _first_turn(turns: bytes) -> bytes:
    try:
        text = ""
        for turn in json.loads(turns):
            text += f"{turn['content']}\0"
            if turn["role"] == "user":
                break
    except (ValueError, TypeError, KeyError):
        return b""  # the model refuses it, wherever it goes
    return _text(text)


def _text(text: str) -> bytes:
    return text[:_MOST_CHARS].rstrip("\0").encode("utf-8", "replace")
