"""Reads blocks, the hand-written questions that the judge learns from, and draws pairs of them.

A block is a question, other wordings of it, and near questions with another answer; an empty line ends it:

    medicine; drug = ibuprofen | paracetamol
    How much {drug} can an adult take in a day?
    = light: What is the most {drug} an adult may take in one day?
    ! person: How much {drug} can a child take in a day?
    ! name: How much {drug'} can an adult take in a day?

Its first line names the domain and the slots with their values. A slot has one value in a pair; `{drug'}` is
another one. `= kind:` begins a wording, `! kind:` a near question, `#` a comment.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from judge.pairs import HARD, PACKED, SAME, Example, read_text

from trimodal.errors import ArtefactError

FOLDER = Path(__file__).with_name("blocks")
PARAPHRASE = "paraphrase"
WORDINGS = 3  # that a near question is put beside: the first one, and others by chance
_LINE = re.compile(r"([=!]) ([a-z]+): (\S.*)")
_SLOT = re.compile(r"\{([a-z]+)('?)\}")


@dataclass(frozen=True)
class Block:
    """Wordings of one question as (kind, text), the first without a kind, and near questions likewise."""

    domain: str
    slots: Mapping[str, tuple[str, ...]]
    same: tuple[tuple[str, str], ...]
    near: tuple[tuple[str, str], ...]

    def pairs(self, rng: random.Random) -> Iterator[Example]:
        """Every two wordings, and each near question beside some of them; slots are filled anew each time."""
        for (kind, one), (other_kind, other) in combinations(self.same, 2):
            yield self._filled(one, other, True, PARAPHRASE if kind else other_kind, rng)
        first, *others = self.same
        for kind, text in self.near:
            for _, wording in (first, *rng.sample(others, min(WORDINGS - 1, len(others)))):
                yield self._filled(wording, text, False, kind, rng)

    def _filled(self, one: str, other: str, same: bool, kind: str, rng: random.Random) -> Example:
        values = {slot: rng.sample(choices, 2) for slot, choices in self.slots.items()}
        a, b = (_SLOT.sub(lambda found: values[found[1]][bool(found[2])], text) for text in (one, other))
        return Example(a, b, same, kind, self.domain)


def own_blocks() -> list[Block]:
    """The project's."""
    return read_blocks(sorted(FOLDER.glob(f"*.txt{PACKED}")))


def read_blocks(paths: Iterable[Path]) -> list[Block]:
    """Raises: ArtefactError: names the file, the line and what is wrong with it."""
    found = []
    for path in paths:
        lines: list[tuple[int, str]] = []
        for number, line in enumerate([*read_text(path).splitlines(), ""], 1):
            if line.strip() and not line.startswith("#"):
                lines.append((number, line.strip()))
            elif lines and not line.strip():
                found.append(_block(path, lines))
                lines = []
    return found


def _block(path: Path, lines: list[tuple[int, str]]) -> Block:
    def refuse(number: int, why: str) -> ArtefactError:
        return ArtefactError(f"{path}, line {number}: {why}")

    (first, head), *rest = lines
    if len(rest) < 2:
        raise refuse(first, "a block has a first line, a question, and a line of = at least")
    domain, *declared = (part.strip() for part in head.split(";"))
    slots: dict[str, tuple[str, ...]] = {}
    for slot in declared:
        name, _, choices = slot.partition(" = ")
        slots[name] = tuple(choice.strip() for choice in choices.split("|"))
        if len(set(slots[name])) < 2 or not all(slots[name]):
            raise refuse(first, f"slot {name!r} wants two different values at least")
    same: list[tuple[str, str]] = [("", rest[0][1])]
    near: list[tuple[str, str]] = []
    for number, line in rest[1:]:
        if (found := _LINE.fullmatch(line)) is None:
            raise refuse(number, "neither '= kind: text' nor '! kind: text'")
        sign, kind, text = found.groups()
        if kind not in (SAME if sign == "=" else HARD):
            raise refuse(number, f"{kind!r} is no kind of {'sameness' if sign == '=' else 'difference'}")
        (same if sign == "=" else near).append((kind, text))
    for number, line in rest:
        used = _SLOT.findall(line)
        if unknown := {name for name, _ in used} - slots.keys():
            raise refuse(number, f"slot {', '.join(sorted(unknown))} is not in the first line")
        wording = not line.startswith("! ")
        if wording and ({name for name, _ in used} != slots.keys() or any(prime for _, prime in used)):
            raise refuse(number, "a wording holds every slot, and none that is another value ({slot'})")
    if len(same) < 2:
        raise refuse(first, "no line of =")
    return Block(domain, slots, tuple(same), tuple(near))
