"""Says how a chat becomes a prompt, beside its messages and functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Rendering:
    """Where a prompt ends, and what its template is told.

    Attributes:
        add_generation_prompt: it ends where the assistant begins to speak.
        continue_final_message: it ends within its last message, which is to be continued.
        kwargs: what the template is told besides.
    """

    add_generation_prompt: bool = True
    continue_final_message: bool = False
    kwargs: Mapping[str, Any] = field(default_factory=dict)


ANSWERED = Rendering()
