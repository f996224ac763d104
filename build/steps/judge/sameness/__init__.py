"""Makers of pairs of questions that the very same answer is right for, by kind of sameness."""

from __future__ import annotations

import random
from collections.abc import Mapping

from steps.judge.made import Made, Maker
from steps.judge.sameness import asking, rewordings, surface, words
from steps.judge.sameness.texts import draw

DISGUISES: tuple[surface.Change, ...] = (
    words.respell, surface.contract, surface.mistype, surface.add_filler, surface.greet, surface.change_case,
)  # fmt: skip


def disguise(text: str, rng: random.Random) -> str:
    """The question as somebody else would type it: one to three changes that leave its meaning alone.

    For either side of any pair, so that a spelling or a greeting never tells whether two questions are the
    same.
    """
    wanted = rng.choice((1, 1, 2, 2, 3))
    order = rng.sample(range(len(DISGUISES)), len(DISGUISES))
    taken: list[int] = []
    for index in order:
        if len(taken) < wanted and DISGUISES[index](text, random.Random(index)) != text:
            taken.append(index)
    for index in sorted(taken):
        text = DISGUISES[index](text, rng)
    return text


def reword(text: str, rng: random.Random) -> str:
    """The question in other words, where it has a form that can be changed; else the same text.

    For questions of different pairs: they need partners that mean the same, or their frames alone would say
    that two questions differ.
    """
    for change in (words.replace_synonyms, rng.choice((asking.in_other_frame, asking.as_command))):
        text = change(text, rng)
    return rng.choice((surface.ask_politely, surface.add_filler, disguise, disguise))(text, rng)


def _changed(kind: str, change: surface.Change) -> Maker:
    """The maker of a question beside its changed form."""

    def make(rng: random.Random) -> Made:
        while True:
            domain, text = draw(rng)
            if (other := change(text, rng)) != text:
                return rewordings.sides(text, other, kind, domain, rng)

    return make


def _listed(kind: str, name: str) -> Maker:
    """The maker of a question with either word of a list's pair."""

    def make(rng: random.Random) -> Made:
        a, b, domain = words.asked_with(name, rng)
        return rewordings.sides(a, b, kind, domain, rng)

    return make


SAMENESS: Mapping[str, Maker] = {
    "case": _changed("case", surface.change_case),
    "contraction": _changed("contraction", surface.contract),
    "spelling": _listed("spelling", "spellings.txt"),
    "politeness": _changed("politeness", surface.ask_politely),
    "fronting": rewordings.make_fronting,
    "passive": rewordings.make_passive,
    "synonym": _changed("synonym", words.replace_synonyms),
    "light": rewordings.make_light,
    "heavy": rewordings.make_heavy,
    "typo": _changed("typo", surface.mistype),
    "filler": _changed("filler", surface.add_filler),
    "command": rewordings.make_command,
    "abbreviation": _listed("abbreviation", "abbreviations.txt"),
}
"""Makers by kind, each of at least 2,000 distinct pairs (passive: 1,000); two orders of a pair are two."""
