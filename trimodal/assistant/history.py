"""Reads the turns of a talk before the question, with what was heard and seen in them."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from trimodal.assistant.values import Saw
from trimodal.errors import InvalidArgument


class Label(BaseModel):
    """What an image of an earlier turn was found to show."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    label: str
    score: float


class Turn(BaseModel):
    """One message of the talk. `heard` and `labels` (best first) are what the assistant told of it then."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    role: Literal["system", "user", "assistant"]
    content: str
    heard: str = ""
    labels: tuple[Label, ...] = ()

    @property
    def saw(self) -> Saw:
        """The labels as the prompt's template takes them."""
        return Saw(tuple(one.label for one in self.labels), tuple(one.score for one in self.labels))


_TURNS = TypeAdapter(tuple[Turn, ...])


def read_history(chat: str | None) -> tuple[Turn, ...]:
    """Reads a JSON list of turns; none: no talk yet. Raises: InvalidArgument naming the field."""
    if chat is None:
        return ()
    try:
        return _TURNS.validate_json(chat)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False)[0]
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in problem["loc"])
        raise InvalidArgument(f"history{place}: {problem['msg'].lower()}") from None
