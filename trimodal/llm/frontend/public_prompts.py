"""Reads the system messages that the operator calls public, and finds them in prompts."""

from __future__ import annotations

import os
from collections.abc import Sequence

from trimodal.errors import InvalidArgument, SettingsError
from trimodal.llm.engines.protocol import KV_BLOCK_TOKENS
from trimodal.llm.settings import LlmSettings
from trimodal.llm.tokenizer import Tokenizer


def read_public_prompts(settings: LlmSettings, tokenizer: Tokenizer) -> list[list[int]]:
    """Tokens of what every chat with such a system message begins with, in whole KV blocks; longest first.

    Raises:
        SettingsError: a file cannot be read, or its text cannot be a system message here.
    """
    public = []
    for name in settings.public_prompts.split() if settings.enable_prefix_caching else ():
        path = settings.beside_config(name)
        assert path
        try:
            text = path.read_text(encoding="utf-8").strip()
            chats = [
                [{"role": "system", "content": text}, {"role": "user", "content": user}] for user in "ab"
            ]
            ids = [tokenizer.encode(tokenizer.render(chat)) for chat in chats]
        except OSError as error:
            raise SettingsError(
                f"parameter 'public_prompts': {name} cannot be read: {error.strerror}"
            ) from None
        except (UnicodeDecodeError, InvalidArgument) as error:
            raise SettingsError(f"parameter 'public_prompts': {name}: {error}") from None
        alike = len(os.path.commonprefix(ids))
        if 0 < settings.max_prompt_tokens < alike:
            raise SettingsError(
                f"parameter 'public_prompts': {name} has {alike} tokens: a prompt may have "
                f"{settings.max_prompt_tokens}"
            )
        if whole := alike // KV_BLOCK_TOKENS * KV_BLOCK_TOKENS:
            public.append(ids[0][:whole])
    return sorted(public, key=len, reverse=True)


def public_tokens(prompt_ids: Sequence[int], public: Sequence[list[int]]) -> int:
    """How many of a prompt's first tokens are public; never all: what is after them is salted."""
    return next(
        (len(one) for one in public if len(one) < len(prompt_ids) and prompt_ids[: len(one)] == one), 0
    )
