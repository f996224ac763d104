"""Questions that the guard must keep apart, and some that it should let pass; written for these tests."""

from pathlib import Path


def _pairs(name: str) -> list[list[str]]:
    lines = Path(__file__).with_name(name).read_text(encoding="utf-8").splitlines()
    return [line.split("|") for line in lines]


KEPT_APART = _pairs("kept_apart.txt")
"""Nearly the same words, another right answer."""
LET_PASS = _pairs("let_pass.txt")
"""Other words, the same right answer."""
