"""Changes how a question is written: case, contractions, politeness, filler words, typing errors.

Every function takes a question and the generator it draws from, and returns the question unchanged where it
finds nothing to change. Negations, digits, units, names and what is quoted stay as they are.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from functools import cache

from judge.disguise.words import lower_first, map_unquoted, vocabulary

Change = Callable[[str, random.Random], str]

FULL_TO_SHORT = {
    "what is": "what's", "how is": "how's", "where is": "where's", "who is": "who's", "that is": "that's",
    "it is": "it's", "there is": "there's", "i am": "I'm", "you are": "you're", "we are": "we're",
    "they are": "they're", "i will": "I'll", "it will": "it'll", "i would": "I'd", "do not": "don't",
    "does not": "doesn't", "did not": "didn't", "is not": "isn't", "are not": "aren't", "was not": "wasn't",
    "were not": "weren't", "has not": "hasn't", "have not": "haven't", "cannot": "can't",
    "could not": "couldn't", "should not": "shouldn't", "would not": "wouldn't", "will not": "won't",
}  # fmt: skip
SHORT_TO_FULL = {short.lower(): full for full, short in FULL_TO_SHORT.items()}
# Typed without their apostrophe these are no other words, as "its", "were", "well" and "wont" would be.
NO_APOSTROPHE = (
    "don't",
    "doesn't",
    "didn't",
    "isn't",
    "aren't",
    "wasn't",
    "can't",
    "what's",
    "how's",
    "i'm",
    "hasn't",
)
FULL = re.compile(rf"\b(?:{'|'.join(FULL_TO_SHORT)})\b(?= \w)", re.IGNORECASE)
# "Why shouldn't a dog …" cannot be spelled out word by word, and "what's happened" is no "what is happened".
SHORT = re.compile(
    rf"(?:(?<!why )(?<!^)\b(?:{'|'.join(SHORT_TO_FULL)})|^(?:what|how|where|who)'s)\b(?= (?!\w+ed\b|been\b))",
    re.IGNORECASE,
)
PARTICIPLES = "been|lost|put|forgotten|got|bought|found|paid|had|broken"
DONE = rf"(?=(?: already| just| never| not| only)? (?:\w+ed|{PARTICIPLES})\b)"

GREETINGS = (
    "Hi, ", "Hello, ", "Hi there, ", "Good morning, ", "Good afternoon, ", "Excuse me, ", "Hello! ", "Hi! ",
    "Please help: ", "Could you help me? ", "Dear team, ", "Hello everybody, ", "Sorry to bother you, ",
)  # fmt: skip
THANKS = (
    " Thanks!", " Thank you.", " Thanks in advance.", " Many thanks!", " Thank you very much.", " Please.",
    " Thanks for your help.", " I'd be grateful for your help.", " Cheers!", " Thank you so much in advance!",
)  # fmt: skip
OPENINGS = (
    "So, ", "Okay so ", "Um, ", "Well, ", "Quick question: ", "Just wondering, ", "Hey, ", "Right, ", "Hmm, ",
    "Sorry if this has been asked before, but ", "I was wondering: ", "Another question: ", "By the way, ",
    "Maybe a silly question, but ", "Out of curiosity, ", "Here is my question: ", "Let me ask you this: ",
    "I need some help with this: ", "OK, ", "Alright, ", "Ah yes, ",
)  # fmt: skip
CLOSINGS = (
    " Any ideas?", " Any help is welcome.", " I keep forgetting.", " I've been wondering about this.",
    " Just curious.", " I have been looking for the answer for ages.", " Anyway, that is my question.",
)  # fmt: skip

NEIGHBOURS = {
    letter: near
    for row in ("qwertyuiop", "asdfghjkl", "zxcvbnm")
    for letter, near in zip(
        row, (row[max(i - 1, 0) : i] + row[i + 1 : i + 2] for i in range(10)), strict=False
    )
}
# A wrong letter in one of these could read as another number, another unit or the opposite.
EXACT = """
zero three four five seven eight nine eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen
nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million billion dozen half
quarter third first second fourth fifth twice once double triple never without none nothing nobody neither
cannot unless hardly every each only least most more less fewer both either always before after above
below under over into onto from with euros dollars pounds percent degrees grams kilos kilograms litres liters
metres meters kilometres kilometers inches feet miles miles hours hour minutes minute seconds days weeks
week months month years year volts watts kilowatt kilowatts gigabytes megabytes tablespoons square cubic
increase decrease raise lower import export income outcome prefix suffix left right east west
"""
# What a slip of the finger must not turn a word into, beside the words of the texts themselves.
OTHER_WORDS = """
form from trail trial quite quiet quit lose loose angel angle dairy diary desert dessert casual causal
martial marital untied united calm clam scared sacred board broad bread beard bead bred cost coast coat
heat hear heart hearth bear bare pant plant plan plane plain pain paint pint point print sprint price prize
pride prime place palace plate pale late lane land hand band bank blank plank tank thank rank train rain
brain drain grain trained stain strain start star stare stair state stat slate stale steel steal steer
sheet sheep sleep sweep sweet tweet street tree three there these those where were wore word work world
sword lord load road read lead dead deal dial mail main male make take lake cake bake bike like line lime
time tide tile file fire fine find fund fond food foot fool tool pool poll pull full fall fell feel fuel
duel dual cable table tale talk walk wall ball bald bold cold could gold god good goof roof room broom
boom book cook look lock clock block black back pack park bark barn born burn turn torn horn hose house
horse hours ours course coarse curse nurse purse pure cure care car cart card yard hard harm farm warm worm
store sore score core more mode model modal medal metal mental dental rental renal petal pedal penal panel
channel flat float flour floor flood blood bloom gloom groom grow grown brown crown crow cow law low slow
show shot shoe short shirt shift sift soft sort port sport spot spit split spilt spent sent scent cent
rent tent text next nest best beast boast toast roast roost root boot boat bout about shout south mouth
month moth math match march patch path pat past paste waste taste test rest west vest visit list last lost
loss less lens fees feed seed need weed week weak peak speak spear spare share shape shade shake snake
stake steak stick trick brick click chick check cheek cheep cheap chap chat chart charm charge change
chance dance lance glance sting string spring bring ring wing wine wind wine vine fine mine mind kind king
thing think thin then than that what whet when wheel well will wild mild mile smile slime slim slip ship
chip chop shop stop step stem seem seen sees does done dome come some same sane sand said aid paid pair
fair hair air heir their thief chief chef thew grill girl skill kill pill spill bill ball bell belt melt
"""


def change_case(text: str, rng: random.Random) -> str:
    """Capitals and punctuation as people type them; words with inner capitals or digits are kept."""
    style = rng.randrange(8)
    if style in (0, 1, 2):
        text = map_unquoted(r"(?<![\w.])(?:I(?=[ '])|[A-Z][a-z]+)(?![\w.])", lambda m: m[0].lower(), text)
    if style in (1, 3):
        return text.rstrip("?.")
    if style == 4:
        return text.rstrip("?.") + rng.choice(("??", " ?", "?!", "...", "!?")) if text.endswith("?") else text
    if style == 5:
        return map_unquoted(r"(?<![\w'.])[a-z]+(?![\w.])", lambda m: m[0].capitalize(), text)
    if style == 6:
        return text.replace("'", "’") if "'" in text else map_unquoted(" ", "  ", text)
    return text if style != 7 else text + rng.choice((" ", "?", "\n"))


def contract(text: str, rng: random.Random) -> str:
    """Contracts or spells out verbs; now and then without the apostrophe."""
    informal = rng.random() < 0.25

    def shorten(match: re.Match[str]) -> str:
        short = FULL_TO_SHORT[match[0].lower()]
        if informal and short.lower() in NO_APOSTROPHE:
            short = short.replace("'", "")
        return short[0].upper() + short[1:] if match[0][0].isupper() else short

    def lengthen(match: re.Match[str]) -> str:
        full = SHORT_TO_FULL[match[0].lower()]
        return full[0].upper() + full[1:] if match[0][0].isupper() else full

    changed = map_unquoted(FULL, shorten, text)
    changed = map_unquoted(rf"\bI have{DONE}", "I've", changed)
    return map_unquoted(SHORT, lengthen, text) if changed == text else changed


def greet(text: str, rng: random.Random) -> str:
    """Adds a greeting, thanks or both."""
    if rng.random() < 0.6:
        text = text if text[-1] in ".?!" else text + "."
        thanked = text + rng.choice(THANKS)
        return _opened(thanked, GREETINGS, rng) if rng.random() < 0.3 else thanked
    return _opened(text, GREETINGS, rng)


def add_filler(text: str, rng: random.Random) -> str:
    """Adds words that say nothing at the beginning or the end."""
    if rng.random() < 0.7:
        return _opened(text, OPENINGS, rng)
    return (text if text[-1] in ".?!" else text + ".") + rng.choice(CLOSINGS)


def _opened(text: str, openings: tuple[str, ...], rng: random.Random) -> str:
    opening = rng.choice(openings)
    return opening + (text if opening[-2] in "!?" or rng.random() < 0.2 else lower_first(text))


@cache
def _real_words() -> frozenset[str]:
    return vocabulary() | frozenset(OTHER_WORDS.split())


@cache
def _slip_free() -> frozenset[str]:
    return frozenset(EXACT.split()) | {
        word for word in vocabulary() if re.search(r"^hyp|^inter|^intra|less$|ful$", word)
    }


# Typed without its sign.
_NEGATION = re.compile("(?:do|does|did|is|are|was|were|has|have|had|could|should|would)nt")


def mistype(text: str, rng: random.Random) -> str:
    """One or two slips of the finger in words of four letters or more, never in their first letter."""
    for _ in range(2 if len(text) > 60 and rng.random() < 0.35 else 1):
        text = _slip(text, rng)
    return text


def _slip(text: str, rng: random.Random) -> str:
    quoted = [match.span() for match in re.finditer(r'"[^"]*"|`[^`]*`', text)]
    words = [
        match
        for match in re.finditer(r"(?<![\w'’.\-/])[A-Za-z][a-z]{3,}(?![\w'’\-/]|\.\w)", text)
        if match[0].lower() in vocabulary()
        and match[0].lower() not in _slip_free()
        and not _NEGATION.fullmatch(match[0].lower())
        and (match[0].islower() or re.search(r"(?:^|[.?!] )$", text[: match.start()]))
        and not any(start <= match.start() < end for start, end in quoted)
    ]
    for _ in range(8 if words else 0):
        match = rng.choice(words)
        word, at = match[0], rng.randrange(1, len(match[0]) - 1)
        slip = rng.choice(
            (
                word[:at] + word[at + 1] + word[at] + word[at + 2 :],
                word[:at] + word[at + 1 :],
                word[: at + 1] + word[at:],
                word[:at] + rng.choice(NEIGHBOURS[word[at].lower()]) + word[at + 1 :],
            )
        )
        if slip != word and slip.lower() not in _real_words():
            return text[: match.start()] + slip + text[match.end() :]
    return text
