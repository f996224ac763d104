"""Reads the system messages that the operator calls public, and finds them in prompts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from itertools import takewhile

from trimodal.errors import InvalidArgument, SettingsError
from trimodal.llm.engines.protocol import KV_BLOCK_TOKENS
from trimodal.llm.settings import LlmSettings
from trimodal.llm.tokenizer import Tokenizer


def read_public_prompts(settings: LlmSettings, tokenizer: Tokenizer) -> dict[str, list[int]]:
    """By its file's name the tokens, in whole KV blocks, that all chats with a system message begin with.

    Raises:
        SettingsError: a file cannot be read, or its text cannot be a system message here.
    """
    public = {}
    for name in settings.public_prompts.split() if settings.enable_prefix_caching else ():
        path = settings.beside_config(name)
        assert path
        try:
            with path.open("rb") as opened:
                raw = opened.read(settings.max_prompt_bytes + 1)  # /dev/zero has no end
            if len(raw) > settings.max_prompt_bytes:
                raise _problem(name, f"has more bytes than max_prompt_bytes, {settings.max_prompt_bytes}")
            text = raw.decode().strip()
            chats = [
                [{"role": "system", "content": text}, {"role": "user", "content": user}] for user in "ab"
            ]
            ids = [tokenizer.encode(tokenizer.render(chat)) for chat in chats]
        except OSError as error:
            raise _problem(name, f"cannot be read: {error.strerror}") from None
        except (UnicodeDecodeError, InvalidArgument) as error:
            raise _problem(name, f"cannot be used: {error}") from None
        alike = list(os.path.commonprefix(ids))
        check_public_prompts({name: alike}, settings.max_prompt_tokens)
        if whole := len(alike) // KV_BLOCK_TOKENS * KV_BLOCK_TOKENS:
            public[name] = alike[:whole]
    return public


def check_public_prompts(public: Mapping[str, list[int]], most: int) -> None:
    """Raises SettingsError: one is longer than a prompt may be; `most` 0: than none."""
    for name, ids in public.items():
        if 0 < most < len(ids):
            raise _problem(name, f"has {len(ids)} tokens: a prompt may have {most}")


def _problem(name: str, problem: str) -> SettingsError:
    return SettingsError(f"parameter 'public_prompts': {name} {problem}")


def public_tokens(prompt_ids: list[int], public: Iterable[list[int]]) -> int:
    """How many of a prompt's first tokens are public, in whole blocks.

    Never all: what is after them is salted.
    """

    def alike(one: list[int]) -> int:
        blocks = range(KV_BLOCK_TOKENS, min(len(one), len(prompt_ids) - 1) + 1, KV_BLOCK_TOKENS)
        same = takewhile(
            lambda end: prompt_ids[end - KV_BLOCK_TOKENS : end] == one[end - KV_BLOCK_TOKENS : end], blocks
        )
        return max(same, default=0)

    return max(map(alike, public), default=0)
