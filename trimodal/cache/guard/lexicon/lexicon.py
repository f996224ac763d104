"""Looks up English words: dictionary forms, groups of like words, opposites, phrases.

simplemma's English data gives the dictionary forms, the `.txt` files beside this one give the groups. All are
loaded once, when this module is imported.
"""

from __future__ import annotations

import re
from functools import lru_cache

import simplemma

from trimodal.cache.guard.lexicon.word_lists import word_groups, word_map, word_set

_VERBS, _NOUNS, _QUALITIES = word_groups("verbs"), word_groups("nouns"), word_groups("qualities")

_BRITISH = (
    ("isation", "ization"), ("ise", "ize"), ("iser", "izer"), ("yse", "yze"), ("our", "or"), ("tre", "ter"),
    ("ogue", "og"),
)  # fmt: skip
_MADE = (
    ("ization", ("ize",)), ("ation", ("ate", "e", "")), ("ition", ("ite", "e")), ("ion", ("", "e")),
    ("ment", ("",)), ("ness", ("",)), ("ly", ("", "le")), ("ing", ("", "e")),
)  # fmt: skip
"""Endings of words that are made from others, and what those may end in."""
_VOWELS = re.compile("[aeiouy]+")
# Plurals and past forms that are words of their own, and what the dictionary has wrong.
_FORMS = word_map(
    """better=good best=good worse=bad worst=bad found=find left felt=feel lay saw=see windows glasses
    customs goods savings arms means news contents pants clothes settings options=option preferences
    data media lens gas bus aids does=do less building meeting painting wedding being=be spring
    string ring king thing leaves=leave leaf=leave dying=die licence=license tyre=tire grey=gray
    kerb=curb axes=axis wore=wear lower pass passed=pass past earnings outdoor=outdoors
    indoor=indoors people used=use canceled=cancel broken lost=lose cheque tired exhausted latest
    newest suited ai fries draught=draft fewer=less iodine lying=lie"""
)


@lru_cache(maxsize=20_000)
def lemma(word: str) -> str:
    """The dictionary form of a word in lower case, in one spelling for British and American English."""
    return _american(_FORMS.get(word) or _lemma(word))


def _lemma(word: str) -> str:
    if len(word) <= 3 and word.endswith("s"):
        return word
    form: str = simplemma.lemmatize(word, lang="en").lower()
    if form == word and word.endswith("ing") and len(word) > 5:
        stem = word[:-3]
        doubled = [stem[:-1]] if stem[-1] == stem[-2] else []
        return next((base for base in (*doubled, stem + "e", stem) if is_known(base)), word)
    if form != word and not is_known(form):
        form = word
    if form == word and word.endswith("s") and not word.endswith(("ss", "us", "is")) and not is_known(word):
        return word[:-2] if word.endswith(("sses", "xes", "ches", "shes")) else word[:-1]
    return form


def _american(word: str) -> str:
    if len(word) > 4:
        if word.endswith("ll") and len(_VOWELS.findall(word)) > 1:
            return word[:-1]  # cancelled, travelled; install and instal
        for british, american in _BRITISH:
            if word.endswith(british):
                return word[: -len(british)] + american
    return word


@lru_cache(maxsize=20_000)
def is_known(word: str) -> bool:
    """Whether the dictionary has the word, in any of its forms."""
    return bool(simplemma.is_known(word, lang="en"))


def _groups() -> tuple[dict[str, frozenset[int]], dict[str, list[tuple[str, ...]]]]:
    groups: dict[str, set[int]] = {}
    phrases: dict[str, set[tuple[str, ...]]] = {}
    for number, group in enumerate((*_VERBS, *_NOUNS, *_QUALITIES)):
        for word in group.split():
            parts = tuple(lemma(part) for part in word.split("_"))
            groups.setdefault("_".join(parts), set()).add(number)
            if len(parts) > 1:
                phrases.setdefault(parts[0], set()).add(parts)
    longest_first = {first: sorted(found, key=len, reverse=True) for first, found in phrases.items()}
    return {word: frozenset(found) for word, found in groups.items()}, longest_first


GROUPS, PHRASES = _groups()
"""Dictionary form → numbers of its groups; first word → phrases that begin with it, longest first."""
ADJECTIVES = (frozenset(lemma(word) for group in _QUALITIES for word in group.split()) - {"main"}) | word_set(
    """red green blue black white yellow brown gray orange purple pink dark bright hot cold warm cool
    wet dry hard soft sharp dull clean dirty full empty open closed young fresh stale sweet sour
    bitter salty spicy round flat square deep shallow wide narrow thick thin heavy light high low
    long short strong weak tight loose early late free busy dead alive sick sore itchy swollen
    frozen nested mutable immutable hashable valid invalid active inactive visible invisible vegan
    vegetarian organic"""
)
"""Words that are said of a noun, before it or behind a form of "be"."""
VERB_FORMS = frozenset(lemma(word) for group in _VERBS for word in group.split()) | word_set(
    """lift hike camp knit sew fish hunt jump dance sing smoke vote swim run walk ski surf fall fly
    drive ride cook bake boil fry roast grill steam marinate season knead rest wash dry iron fold
    tie untie sit stand bend stretch breathe sleep dream cough sneeze bleed heal recover feel touch
    taste add subtract multiply count round parse serialize deserialize encode decode encrypt
    decrypt compress decompress import export upload download deploy debug commit push pull clone
    fetch rebase squash sync backup restore migrate upgrade downgrade update scale mount format
    print scan type click drag scroll zoom crop resize draw paint drill screw nail sand saw measure
    level mix pour stir whip blend peel chop grate serve pack unpack insulate propose divorce adopt
    sue appeal quit retire resign commute park overtake brake tow refuel charge subscribe
    unsubscribe follow unfollow mute unmute post tweet comment tag mention tip bargain save invest
    trade bet claim insure declare import export own owe"""
)
"""Dictionary forms that may follow an infinitive's "to"."""


PAST_FORMS = word_set(
    """ate beat became began bent bit blew bought bound broke brought built burnt came caught chose
    cost crept cut dealt did done drank drawn drew driven drove dug eaten fallen fed fell felt flew
    flown forgot forgotten fought found froze frozen gave given gone got gotten grew grown had heard
    held hid hidden hit hung hurt kept knew known laid lain lay led left lent lit lost made meant
    met paid put ran read ridden risen rode rose run said sang sank sat saw seen sent set shaken
    shone shook shot shown shrank shrunk shut slept sold sought spent spoke spoken spread stole
    stolen stood stuck struck sung sunk swam swept swore sworn swum taken taught threw thrown told
    took tore torn understood went wept woke woken won wore worn wove woven written wrote"""
)
"""Irregular past forms and participles."""


def _pairs() -> frozenset[frozenset[str]]:
    pairs = set()
    for line in word_groups("opposites"):
        sides = [[lemma(word) for word in side.split()] for side in line.split("-")]
        for index, side in enumerate(sides):
            for other in sides[index + 1 :]:
                pairs |= {frozenset((one, another)) for one in side for another in other if one != another}
    return frozenset(pairs)


_OPPOSITES = _pairs()
_TURNED = (("en", "de"), ("en", "dis"), ("in", "ex"), ("im", "ex"), ("up", "down"), ("over", "under"))
_UNDOING = word_set("un de dis in im non mis il ir anti up down over under out")


@lru_cache(maxsize=20_000)
def opposite(one: str, other: str) -> bool:
    """Whether two dictionary forms say the opposite: by the list, or by a prefix (lock, unlock)."""
    if frozenset((one, other)) in _OPPOSITES:
        return True
    short, long = sorted((one, other), key=len)
    if any(long == prefix + short for prefix in _UNDOING) and len(short) > 2:
        return True
    return any(
        this.startswith(first) and that == second + this[len(first) :] and len(this) - len(first) > 2
        for first, second in _TURNED
        for this, that in ((one, other), (other, one))
    )


@lru_cache(maxsize=20_000)
def keys(word: str) -> frozenset[int | str]:
    """What a dictionary form may be matched by: itself, its groups, and the verb that it is made from."""
    return GROUPS.get(word, frozenset()) | {word} | _made_from(word)


def _made_from(word: str) -> frozenset[int | str]:
    for ending, replaced in _MADE:
        if word.endswith(ending) and len(word) - len(ending) > 3:
            for end in replaced:
                base = word[: -len(ending)] + end
                if is_known(base):
                    return GROUPS.get(base, frozenset()) | {base}
    return frozenset()
