"""Bounds the engine's work for audits to a share of its work for clients, in tokens."""

from __future__ import annotations


class TokenBudget:
    """Tokens of audits against those of clients, prompts included. Not thread-safe: its owner locks.

    Args:
        share: audits take at most so much of what clients took, 0 to 1.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self.clients = 0
        self.audits = 0

    @property
    def left(self) -> float:
        """Tokens that audits may still take."""
        return self._share * self.clients - self.audits

    def served(self, tokens: int) -> None:
        """Counts tokens that the engine computed for a client."""
        self.clients += tokens

    def reserve(self, tokens: int) -> bool:
        """Takes what an audit may need at most; False: there is not so much."""
        if tokens > self.left:
            return False
        self.audits += tokens
        return True

    def give_back(self, tokens: int) -> None:
        """Returns what an audit did not use."""
        self.audits -= tokens
