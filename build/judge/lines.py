"""Reads lines of choices, and draws pairs of them: a question in other words, or with one thing changed.

A line is "domain | question". In it `{sofa|couch!part:cushion}` is a choice: what stands between `|` means
the same, what follows `!kind:` changes the answer. `~` marks an abbreviation (`{~kg|kilograms!unit:pounds}`),
and an alternative may be empty. No word tells the label: what changes the answer on one side stands on both
sides of other pairs, which are then the same.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from judge.pairs import HARD, PACKED, Example, read_text

from trimodal.errors import ArtefactError

FOLDER = Path(__file__).with_name("lines")
ALIKE = 0.5  # of pairs that differ: both sides are worded alike but for what differs
ON_BOTH = 0.35  # of pairs that are the same: both sides hold something that changes the answer
SAME, DIFFERENT = 10, 10  # pairs of a line at most
_CHOICE = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True)
class Choice:
    """What may stand in one place: alternatives that mean the same, and (kind, text) that do not."""

    same: tuple[str, ...]
    near: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Line:
    """A question: `texts[i]` stands before `choices[i]`, the last one behind all."""

    domain: str
    texts: tuple[str, ...]
    choices: tuple[Choice, ...]

    def pairs(self, rng: random.Random) -> Iterator[Example]:
        """Up to `SAME` and up to `DIFFERENT` pairs, no two alike."""
        near = [(at, kind, text) for at, choice in enumerate(self.choices) for kind, text in choice.near]
        seen: set[tuple[str, str]] = set()
        for number in range(SAME):
            one, other = self._wording(rng), self._wording(rng)
            if near and rng.random() < ON_BOTH:
                at, _, text = rng.choice(near)
                one[at] = other[at] = text
            changed = [at for at, (mine, theirs) in enumerate(zip(one, other, strict=True)) if mine != theirs]
            if number % 3 == 0 and len(changed) > 1:  # One change alone is the hardest to tell.
                changed = [rng.choice(changed)]
                other = [theirs if at in changed else one[at] for at, theirs in enumerate(other)]
            if changed:
                short = any(side[at].startswith("~") for side in (one, other) for at in changed)
                kind = "abbreviation" if short else "synonym" if len(changed) == 1 else "light"
                yield from self._pair(one, other, True, kind, seen)
        rng.shuffle(near)
        for at, kind, text in (near * DIFFERENT)[:DIFFERENT]:
            one = self._wording(rng)
            other = list(one) if rng.random() < ALIKE else self._wording(rng)
            other[at] = text
            yield from self._pair(one, other, False, kind, seen)

    def _wording(self, rng: random.Random) -> list[str]:
        return [rng.choice(choice.same) for choice in self.choices]

    def _pair(
        self, one: list[str], other: list[str], same: bool, kind: str, seen: set[tuple[str, str]]
    ) -> Iterator[Example]:
        a, b = self._text(one), self._text(other)
        if (a, b) not in seen and a != b:
            seen.add((a, b))
            yield Example(a, b, same, kind, self.domain)

    def _text(self, taken: list[str]) -> str:
        words = (each.removeprefix("~") for each in taken)
        parts = [part for pair in zip(self.texts, words, strict=False) for part in pair]
        text = " ".join("".join((*parts, self.texts[-1])).split())
        text = re.sub(r" (?=[,.?!;:])", "", text)
        return text[0].upper() + text[1:] if text.endswith("?") else text


def own_lines() -> list[Line]:
    """The project's."""
    return read_lines(sorted(FOLDER.glob(f"*.txt{PACKED}")))


def read_lines(paths: Iterable[Path]) -> list[Line]:
    """Raises: ArtefactError: names the file, the line and what is wrong with it."""
    return [
        _line(f"{path}, line {number}", text)
        for path in paths
        for number, text in enumerate(read_text(path).splitlines(), 1)
        if text.strip() and not text.startswith("#")
    ]


def _line(where: str, line: str) -> Line:
    domain, found, text = line.partition(" | ")
    if not found or "{" in domain:
        raise ArtefactError(f"{where}: not 'domain | question'")
    *parts, end = _CHOICE.split(text)
    if any(brace in part for part in (*parts[::2], end) for brace in "{}"):
        raise ArtefactError(f"{where}: a brace without its other one, or one choice inside another")
    choices = tuple(_choice(where, choice) for choice in parts[1::2])
    if not choices:
        raise ArtefactError(f"{where}: no choice")
    return Line(domain, (*parts[::2], end), choices)


def _choice(where: str, text: str) -> Choice:
    same, *near = re.split(r"!(?=[^|!]*:)", text)
    split = [each.partition(":") for each in near]
    for kind, _, _ in split:
        if kind.strip() not in HARD:
            raise ArtefactError(f"{where}: {kind!r} is no kind of difference")
    return Choice(tuple(same.split("|")), tuple((kind.strip(), other) for kind, _, other in split))
