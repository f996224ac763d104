"""Makes pairs of a question and its rewording from the groups and the questions beside this module."""

from __future__ import annotations

import random
import re

from steps.judge.made import Made
from steps.judge.sameness.asking import as_command, in_other_frame, split_last
from steps.judge.sameness.texts import FRONTABLE, chosen, draw, groups, lower_first, questions, wordings

# Share of words in common from which two wordings of a group are a light rewording.
LIGHT = 0.4
IMPERATIVES = (
    "Tell", "Explain", "Name", "Give", "List", "Define", "Translate", "Show", "Describe", "Find", "Write",
    "Convert", "Please", "Work out", "Multiply", "Express", "Suggest", "Check", "Summarise", "Separate",
)  # fmt: skip


def sides(a: str, b: str, kind: str, domain: str, rng: random.Random) -> Made:
    """The pair, either side first."""
    return Made(a, b, kind, domain) if rng.random() < 0.5 else Made(b, a, kind, domain)


def make_fronting(rng: random.Random) -> Made:
    """A clause behind its question or before it."""
    domain, text = rng.choice([question for question in _frontable()])
    text = chosen(text, rng)
    context, last = split_last(text)
    main, clause = last.split(FRONTABLE)
    end = clause[-1]
    comma = "," if rng.random() < 0.8 else ""
    fronted = f"{clause[0].upper()}{clause[1:-1]}{comma} {lower_first(main)}{end}"
    return sides(text.replace(FRONTABLE, " "), context + fronted, "fronting", domain, rng)


def _frontable() -> list[tuple[str, str]]:
    return [(one.domain, one.text) for one in questions() if FRONTABLE in one.text]


def make_passive(rng: random.Random) -> Made:
    """Somebody does it, or it is done."""
    group = rng.choice(groups("passive.txt"))
    active, *passive = wordings(group, rng)
    return sides(active, rng.choice(passive), "passive", group.domain, rng)


def make_command(rng: random.Random) -> Made:
    """A question and a command for the same answer."""
    while True:
        if rng.random() < 0.75:
            domain, a = draw(rng)
            b = as_command(a, rng)
        else:
            group = rng.choice(groups("groups.txt"))
            domain, texts = group.domain, wordings(group, rng)
            told = [text for text in texts if text.startswith(IMPERATIVES)]
            asked = [text for text in texts if text.endswith("?") and text not in told]
            a = rng.choice(asked) if told and asked else ""
            b = rng.choice(told) if a else ""
        if a != b:
            return sides(a, b, "command", domain, rng)


def make_light(rng: random.Random) -> Made:
    """A rewording that keeps most words."""
    while True:
        if rng.random() < 0.4:
            domain, a = draw(rng)
            b = in_other_frame(a, rng)
            if a != b:
                return sides(a, b, "light", domain, rng)
        elif (made := _from_group(rng, "light")) is not None:
            return made


def make_heavy(rng: random.Random) -> Made:
    """A rewording that keeps few words."""
    while True:
        if (made := _from_group(rng, "heavy")) is not None:
            return made


def _from_group(rng: random.Random, kind: str) -> Made | None:
    group = rng.choice(groups("groups.txt"))
    a, b = rng.sample(wordings(group, rng), 2)
    return Made(a, b, kind, group.domain) if (_overlap(a, b) >= LIGHT) == (kind == "light") else None


def _overlap(a: str, b: str) -> float:
    """The share of the two texts' words that both have, by their first five letters."""
    words_a, words_b = ({word[:5] for word in re.findall(r"\w+", text.lower())} for text in (a, b))
    return len(words_a & words_b) / len(words_a | words_b)
