"""The cache as the llm sees it."""

from __future__ import annotations

from typing import Protocol

from trimodal.cache.values import Hit, Question


class Answers(Protocol):
    """What the front needs of `AnswerCache`; the find methods never raise and keep to their budget."""

    def exact(self, question: Question) -> Hit | None: ...

    def semantic(self, question: Question) -> Hit | None: ...

    def keep(self, question: Question, answer: str, finish_reason: str, completion_tokens: int) -> None: ...

    def close(self) -> None: ...


class NoAnswers:
    """Where nothing is stored, requests can still share what is under way."""

    def exact(self, question: Question) -> Hit | None:
        return None

    def semantic(self, question: Question) -> Hit | None:
        return None

    def keep(self, question: Question, answer: str, finish_reason: str, completion_tokens: int) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """There is nothing to close."""
