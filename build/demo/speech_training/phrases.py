"""Lists what the demo speech model learns: its words, and the sentences to train and test with.

Questions are about topics that the demo LLM answers (llm/topics.json), in words that it was trained on, and
about a picture of a digit. Beside them are numbers, short statements and commands, and words in no order.
Everything is lower case without punctuation, in phrases.txt. Not responsible for speaking the sentences
(voices.py). Each function draws from the generator that it is given.
"""

from __future__ import annotations

import random

from text_lists import read_lists

LISTS = read_lists(__file__)

# How the names of topics are said, by the kind of topic.
SUBJECTS = tuple(
    (names, LISTS[f"forms_{kind[6:]}"]) for kind, names in LISTS.items() if kind.startswith("names_")
)
DIGITS, TEENS, TENS = LISTS["digits"], LISTS["teens"], LISTS["tens"]
PICTURE_KINDS = ("pictures", "claims", "sure")
PICTURES, CLAIMS, SURE = (LISTS[kind] for kind in PICTURE_KINDS)
HELD_OUT = tuple(LISTS[f"held_out_{kind}"] for kind in PICTURE_KINDS)  # of questions about a picture
PICTURE_NOUNS = LISTS["picture_nouns"]
# Said alone they sound like another word of the list, so they are not drawn into sequences without order.
HOMOPHONES = frozenset({"for", "four", "to", "two", "in", "an", "and", "a"})


def subject(random_: random.Random) -> str:
    """Something that the demo LLM knows, as it is asked for: "the while statement"."""
    names, forms = random_.choices(SUBJECTS, weights=[len(names) for names, _ in SUBJECTS])[0]
    name, form = random_.choice(names), random_.choice(forms)
    if form.startswith("a ") and name[0] in "aeiou" and not name.startswith("un"):
        form = "an " + form[2:]
    return form.format(n=name)


def digits(random_: random.Random, shortest: int = 1, longest: int = 10) -> str:
    return " ".join(random_.choices(DIGITS, k=random_.randint(shortest, longest)))


def number(random_: random.Random) -> str:
    """A number from zero to nine hundred and ninety nine, mostly below a hundred."""
    value = random_.randint(1, 99) if random_.random() < 0.85 else 100 * random_.randint(1, 9)
    if value >= 100:
        tail = f" and {number(random_)}" if random_.random() < 0.5 else ""
        return f"{DIGITS[value // 100]} hundred{tail if 'hundred' not in tail else ''}"
    if value < 20:
        return (DIGITS + TEENS)[value]
    return TENS[value // 10 - 2] + (f" {DIGITS[value % 10]}" if value % 10 else "")


def numbers(random_: random.Random) -> str:
    """Several numbers in a row."""
    return " ".join(number(random_) for _ in range(random_.randint(1, 4)))


def one(random_: random.Random) -> str:
    """A digit with its article: "a seven"."""
    digit = random_.choice(DIGITS)
    return f"an {digit}" if digit == "eight" else f"a {digit}"


def noun(random_: random.Random) -> str:
    return random_.choice(PICTURE_NOUNS)


def fill(template: str, random_: random.Random) -> str:
    for hole, maker in (("{s}", subject), ("{n}", number), ("{d}", digits), ("{one}", one), ("{p}", noun)):
        while hole in template:
            template = template.replace(hole, maker(random_), 1)
    return template


def words() -> list[str]:
    """Every word that a sentence can have, in the alphabet's order."""
    plain = ("questions", "pictures", "claims", "sure", "picture_nouns", "stated", "digits", "teens", "tens")
    texts = ["hundred", "an and", *(text for name in plain for text in LISTS[name])]
    texts += [text for names, forms in SUBJECTS for text in (*names, *forms)]
    return sorted({word for text in texts for word in text.split() if "{" not in word})


def scrambled(random_: random.Random) -> str:
    """Words in no order: they keep the decoder from guessing words that it does not hear."""
    drawn = [word for word in words() if word not in HOMOPHONES]
    return " ".join(random_.choices(drawn, k=random_.randint(2, 7)))


def sentence(random_: random.Random) -> str:
    """One utterance to train on."""
    draw = random_.random()
    if draw < 0.18:
        return digits(random_)
    if draw < 0.24:
        return numbers(random_)
    if draw < 0.52:
        return fill(random_.choice(LISTS["questions"]), random_)
    if draw < 0.62:
        return fill(random_.choice(random_.choice((PICTURES, CLAIMS, SURE))), random_)
    if draw < 0.74:
        return asked_of_a_picture(random_)[1]
    if draw < 0.84:
        return fill(random_.choice(LISTS["stated"]), random_)
    return scrambled(random_)


def asked_of_a_picture(random_: random.Random) -> tuple[str, str]:
    """A question about a picture made of pieces, none that is held out, and what it asks for."""
    unseen = {template for templates in HELD_OUT for template in templates}
    while True:
        kind = random_.choice(("which", "claim", "sure"))
        pieces = (LISTS[name] for name in ("openings", f"{kind}_starts", f"{kind}_ends", "closings"))
        template = " ".join(piece for piece in map(random_.choice, pieces) if piece)
        if template not in unseen:
            return kind, fill(template, random_)


def held_out(random_: random.Random) -> str:
    """A question or statement of a template that is never trained on."""
    kind = "held_out_questions" if random_.random() < 0.75 else "held_out_stated"
    return fill(random_.choice(LISTS[kind]), random_)


def held_out_picture(random_: random.Random) -> str:
    """A question about a picture, of a template that is never trained on."""
    return fill(random_.choice(random_.choice(HELD_OUT)), random_)
