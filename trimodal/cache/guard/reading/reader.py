"""Reads a question for the guard: what is asked for, and its terms with what governs each of them.

A term is what may not differ: a content word, a number, a date, a name, code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from trimodal.cache.guard.lexicon import small_words as small
from trimodal.cache.guard.lexicon.lexicon import ADJECTIVES, PAST_FORMS, PHRASES, VERB_FORMS, lemma
from trimodal.cache.guard.reading.dates import dated
from trimodal.cache.guard.reading.frames import framed
from trimodal.cache.guard.reading.numbers import numbered
from trimodal.cache.guard.reading.terms import Reading, Term
from trimodal.cache.guard.reading.word_kinds import degree_of, known
from trimodal.cache.guard.reading.words import CODE, COMMA, FIGURE, NAME, STOP, words


@lru_cache(maxsize=2048)
def read(text: str) -> Reading:
    """Reads a question.

    Raises:
        NotEnglish: see `words.words`.
    """
    return _Reader(numbered(dated(framed(words(text))))).reading


class _Reader:
    def __init__(self, tokens: Sequence[str]) -> None:
        self.reading = Reading()
        self._tokens = tokens
        self._skipped: set[int] = set()
        self._marker = self._degree = self._joined = self._owner = ""
        self._clause = 0
        self._be = False
        index = 0
        while index < len(tokens):
            first = tokens[index - 1] == STOP if index else True
            if first and tokens[index] in small.FIRST_IN_YES_NO:
                self.reading.closed = True
            index += 1 if index in self._skipped else self._take(index)
        self._convert()

    def _take(self, index: int) -> int:
        token = self._tokens[index]
        reading = self.reading
        if token in (STOP, COMMA):
            self._clause += 1
            self._marker = self._degree = self._joined = ""
            self._be = False
            return 1
        if token.startswith("@"):
            self._ask(token)
            return 1
        if length := self._phrase(index):
            return length
        if token in small.NEGATORS:
            reading.negations.append((self._clause, len(reading.terms)))
            if token == "without":
                self._marker = ""
            return 1
        if token in small.CLAUSES and token not in small.JOINS:
            self._clause += 1
        if token in ("if", "when") and index > 1:
            reading.conditional = True
        self._notice(token)
        if token in small.JOINS:
            self._joined = token
            reading.joins.add(token)
            return 1
        if token == "a" and (self._at(index + 1) in small.PREPOSITIONS | {STOP, COMMA, "is", "are"}):
            self._add(CODE + token, index)  # a set named a
            return 1
        if token in small.PREPOSITIONS and not self._stranded(index):
            infinitive = self._infinitive(index)
            self._marker = "" if infinitive else token
            return 1
        if token in small.DEGREES:
            self._degree = small.DEGREES[token]
            return 1
        if (
            token in small.NOISE
            or (token in small.PREPOSITIONS and token not in small.PARTICLES)
            or token in ("on", "in")
        ):
            return 1
        self._add(token, index)
        return 1

    def _convert(self) -> None:
        """A quantity and another unit: there is one question about them, however it is put."""
        reading = self.reading
        sizes = [term for term in reading.terms if term.text.startswith("q:")]
        units = [term for term in reading.terms if term.text.startswith("u:") and "per-" not in term.text]
        others = {term.text for term in reading.terms if term.kind != "unit"}
        others -= {"convert", "price", "change", "equal"}
        if len(sizes) == len(units) == 1 and not others and not reading.negations:
            reading.terms = [replace(sizes[0], marker=""), replace(units[0], marker="in")]
            reading.asks, reading.closed = {"@what"}, False

    def _infinitive(self, index: int) -> bool:
        """Whether a verb follows the "to" or "for" at `index`: to fry, to deep fry, for frying."""
        token = self._tokens[index]
        if token not in ("to", "for"):
            return False
        after = self._at(index + 2 if lemma(self._at(index + 1)) in ADJECTIVES else index + 1)
        return lemma(after) in VERB_FORMS and (token == "to" or after.endswith("ing"))

    def _at(self, index: int) -> str:
        return self._tokens[index] if index < len(self._tokens) else STOP

    def _stranded(self, index: int) -> bool:
        """Whether the preposition at `index` governs nothing that follows it."""
        after = self._at(index + 1)
        return (
            after in (STOP, COMMA)
            or after in small.PREPOSITIONS
            or after.startswith("@")
            or after in small.JOINS
        )

    def _ask(self, token: str) -> None:
        if token in ("@can", "@must", "@should"):
            self.reading.modals.add(token)
        else:
            self.reading.asks.add(token)
            if token == "@when":
                self._clause += 1
        self._be = False

    def _phrase(self, index: int) -> int:
        """Takes a phrase of several words that begins at `index`; how many words it has, 0 when none does."""
        first = self._tokens[index].lstrip(NAME)
        if first[:1] in (CODE, FIGURE) or lemma(first) not in PHRASES:
            return 0
        ahead = [lemma(token.lstrip(NAME)) for token in self._tokens[index : index + 5]]
        for parts in PHRASES[lemma(first)]:
            if tuple(ahead[: len(parts)]) == parts:
                self._add("_".join(parts), index, len(parts))
                return len(parts)
            if len(parts) == 2 and parts[1] in small.PARTICLES and (place := self._parted(index, parts[1])):
                self._skipped.add(place)
                self._add("_".join(parts), index)
                return 1
        return 0

    def _parted(self, index: int, particle: str) -> int:
        """Where the particle of the verb at `index` is, as in "turn the lights on"; 0 when it is not."""
        for place in range(index + 2, min(index + 6, len(self._tokens))):
            token = self._tokens[place]
            if (
                token in (STOP, COMMA)
                or token in small.PREPOSITIONS - small.PARTICLES
                or token.startswith("@")
            ):
                return 0
            after = self._at(place + 1)
            if token == particle:
                free = (
                    after in (STOP, COMMA) or after in small.PREPOSITIONS or after[:2] in ("d:", "q:", "n:")
                )
                return place if free or after in ("when", "again", "if", "while") or after[0] == "@" else 0
        return 0

    def _notice(self, token: str) -> None:
        """Persons, tenses and passives: what small words say."""
        reading = self.reading
        if token in small.FIRST or token in small.SECOND:
            reading.persons.append("first" if token in small.FIRST else "second")
        elif token in small.THIRD:
            reading.persons.append(small.THIRD[token])
        elif token in ("my", "our", "your", "mine", "yours"):
            self._owner = "second" if token in ("your", "yours") else "first"
        if token in small.PAST:
            reading.tenses.add("past")
        elif token in small.FUTURE:
            reading.tenses.add("future")
        elif token in small.PRESENT:
            reading.tenses.add("present")
        if token in small.BE:
            self._be = True

    def _add(self, token: str, index: int, length: int = 1) -> None:
        kind, text, found = known(token, length > 1 or "_" in token[1:])
        after = self._at(index + length)
        past = kind == "word" and token != text and (token.endswith("ed") or token in PAST_FORMS)
        passive = self._be and past
        quality = text in ADJECTIVES
        formed = kind == "word" and (past or (token.endswith("ing") and text != token))
        terms = self.reading.terms
        terms.append(
            Term(
                text,
                found,
                kind,
                self._marker,
                degree=self._degree or degree_of(token, text),
                joined=self._joined,
                clause=self._clause,
                passive=passive,
                owner=self._owner,
                past=past,
                measure=index > 0 and self._tokens[index - 1] == "@what" and text in small.MEASURES,
                bare=after in ("it", "them")
                or (after in ("this", "that") and self._at(index + length + 1) in (STOP, COMMA)),
                agent=bool(terms)
                and terms[-1].passive
                and (
                    self._marker == "by"
                    or (self._marker in ("in", "with") and terms[-1].text in ("include", "contain"))
                ),
                doer=_person(self._tokens[index - 1]) if index else "",
                object=_person(after),
                adjective=quality or formed,
                attributive=quality
                or (formed and index > 0 and self._tokens[index - 1] in small.BEFORE_NOUNS),
            )
        )
        self._marker = self._degree = self._joined = self._owner = ""
        if passive:
            self._be = False


def _person(token: str) -> str:
    return "first" if token in small.FIRST else "second" if token in small.SECOND else ""
