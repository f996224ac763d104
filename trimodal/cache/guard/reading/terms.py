"""Values that the guard reads of a question: its terms, and what small words say."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Term:
    """One content word.

    Attributes:
        text: its one spelling (dictionary form, code, `n:12`).
        keys: what it may be matched by; a term matches another that shares one.
        kind: word, name, code, number, unit or date.
        marker: the preposition that governs it, "" when none does.
        degree: er, est, less, least, or "".
        joined: and, or, versus, when one of them is right in front of it.
        clause: number of its clause.
        passive: whether it is a participle behind a form of "be".
        owner: first or second, when "my" or "your" is in front of it.
        past: whether it is in a past form.
        measure: whether it is what "how long", "how often", … ask for.
        bare: whether its object is a pronoun: what is meant has been named before.
        doer, object: first or second, when such a pronoun is right in front of it, or behind it.
        agent: whether it is the doer behind a participle: "by …".
        adjective: whether it may be said of a noun: red, crashed, dripping.
        attributive: whether the noun is the one behind it.
    """

    text: str
    keys: frozenset[int | str]
    kind: str = "word"
    marker: str = ""
    degree: str = ""
    joined: str = ""
    clause: int = 0
    passive: bool = False
    owner: str = ""
    past: bool = False
    measure: bool = False
    bare: bool = False
    agent: bool = False
    doer: str = ""
    object: str = ""
    adjective: bool = False
    attributive: bool = False


@dataclass
class Reading:
    """What a question says. `asks` has the `@` words without what may be."""

    terms: list[Term] = field(default_factory=list)
    asks: set[str] = field(default_factory=set)
    modals: set[str] = field(default_factory=set)
    tenses: set[str] = field(default_factory=set)
    persons: list[str] = field(default_factory=list)
    joins: set[str] = field(default_factory=set)
    conditional: bool = False
    """Whether it has an "if" or a "when" that asks for nothing."""
    closed: bool = False
    """Whether a sentence of it is to be answered by yes or no."""
    negations: list[tuple[int, int]] = field(default_factory=list)
    """For each: its clause, and the index of the term behind it."""
