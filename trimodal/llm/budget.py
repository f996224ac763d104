"""What a tier lets a prompt and an answer be, in tokens; a chat that is too long may lose its oldest parts.

Tokens are counted on the very prompt that the engine would get, chat template and all.
Whether there is room at present is admission's business.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from trimodal.errors import InvalidArgument
from trimodal.llm.request import GenerationRequest
from trimodal.llm.tiers import Tier, Trim
from trimodal.llm.tokenizer import Message

Count = Callable[[GenerationRequest], "list[int]"]


@dataclass(frozen=True)
class Prompt:
    """A request within its budget, its tokens, and what it lost: JSON, "" when nothing."""

    request: GenerationRequest
    ids: list[int]
    trimmed: str = ""


def within_output(request: GenerationRequest, tier: Tier, name: str) -> GenerationRequest:
    """The request with an answer that its tier allows; only a default length is shortened.

    Raises:
        InvalidArgument: the client asked for more.
    """
    most = tier.max_output_tokens
    if most is None or request.sampling.max_tokens <= most:
        return request
    if not request.default_length:
        raise InvalidArgument(
            f"max_tokens is {request.sampling.max_tokens}: tier '{name}' allows at most {most}"
        )
    return request.within(most)


def fit(request: GenerationRequest, tier: Tier, limit: int, token_ids: Count) -> Prompt:
    """The request with a prompt of at most `limit` tokens, if its tier's `trim` can make it so.

    One that cannot be made to fit is given back whole: its size is refused by admission.
    """
    ids = token_ids(request)
    if len(ids) <= limit or tier.trim == "refuse" or request.messages is None:
        return Prompt(request, ids)
    groups = _expendable(request.messages, tier.trim)
    # Fewer messages are fewer tokens, so the least cut that fits is found by halving.
    low, high, best = 1, len(groups), None
    while low <= high:
        middle = (low + high) // 2
        lost = {index for group in groups[:middle] for index in group}
        kept = tuple(m for index, m in enumerate(request.messages) if index not in lost)
        shorter = replace(request, messages=kept)
        shorter_ids = token_ids(shorter)
        if len(shorter_ids) <= limit:
            cut = {"messages": len(lost), "tokens": len(ids) - len(shorter_ids)}
            best, high = Prompt(shorter, shorter_ids, json.dumps(cut)), middle - 1
        else:
            low = middle + 1
    return best or Prompt(request, ids)


def _expendable(messages: Sequence[Message], trim: Trim) -> list[list[int]]:
    """Indexes of what may go, in the order in which it goes: never a system message nor the last turn."""
    users = [index for index, message in enumerate(messages) if message["role"] == "user"]
    end = users[-1] if users else len(messages) - 1
    passages = [[i] for i in range(end) if messages[i]["role"] == "tool"] if trim == "passages_first" else []
    first = {index for group in passages for index in group}
    turns: list[list[int]] = []
    for index in range(end):
        role = messages[index]["role"]
        if role == "system" or index in first:
            continue
        if role == "user" or not turns:
            turns.append([])
        turns[-1].append(index)
    return passages + turns
