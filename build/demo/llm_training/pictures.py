"""Questions about a picture of a digit, and the answers that its labels and scores give.

The user's message is what the assistant sends: its own template, filled in. The questions are in
pictures.txt; HELD_OUT is what nothing is trained on. Each function draws from the generator that it is given.
"""

from __future__ import annotations

import random
from pathlib import Path

from speech_training import phrases as spoken
from text_lists import read_lists

from trimodal.assistant.prompt import Prompt
from trimodal.assistant.values import ImageLabels

ROOT = Path(__file__).resolve().parents[3]
PROMPT = Prompt(ROOT / "model_repository" / "assistant" / "prompt.jinja")
NO_PICTURE = "There is no picture beside your question, so I cannot see a digit."
WORDS = spoken.DIGITS

LISTS = read_lists(__file__)
SPOKEN_KINDS = {
    "which": (*spoken.PICTURES, *(claim for claim in spoken.CLAIMS if " or " in claim)),
    "claim": tuple(claim for claim in spoken.CLAIMS if " or " not in claim),
    "sure": tuple(sure for sure in spoken.SURE if "else" not in sure),
    "else": tuple(sure for sure in spoken.SURE if "else" in sure),
}
KINDS = {
    kind: (*(spoken.PICTURES if kind == "which" else templates), *LISTS[kind])
    for kind, templates in SPOKEN_KINDS.items()
}
HELD_OUT = {kind: LISTS[f"held_out_{kind}"] for kind in KINDS}
HELD_OUT_SPOKEN = dict(zip(("which", "claim", "sure"), spoken.HELD_OUT, strict=True))


def random_sight(random_: random.Random) -> ImageLabels:
    """Labels of a digit with scores that sum up to at most one, best first."""
    ranges = ((0.9, 1), (0.9, 1), (0.5, 0.95), (0.2, 0.6))
    best = random_.choice([random_.uniform(*range_) for range_ in ranges])
    second = min(best, (1 - best) * random_.uniform(0.3, 1))
    third = min(second, (1 - best - second) * random_.uniform(0.2, 1))
    labels = random_.sample(range(10), 3)
    return ImageLabels(tuple(map(str, labels)), (best, second, third))


def percent(score: float) -> str:
    """The score as the template writes it."""
    return f"{100 * score:.0f} %"


def named(digit: int, random_: random.Random, voiced: bool = False) -> str:
    """A digit as it is asked for: a seven, 7, the digit 7."""
    article = "an" if digit == 8 else "a"
    if voiced:
        return f"{article} {WORDS[digit]}"
    return random_.choice(LISTS["digits"]).format(a=article, w=WORDS[digit], n=digit)


def ask(
    kind: str,
    saw: ImageLabels | None,
    random_: random.Random,
    templates: dict[str, tuple[str, ...]],
    voiced: bool = False,
) -> tuple[str, str]:
    """A question of one kind, in lower case without punctuation, and its answer from the labels."""
    text = random_.choice(templates[kind])
    if templates is KINDS:
        text = varied(kind, text, random_)
    truth = int(saw.labels[0]) if saw else random_.randrange(10)
    others = [digit for digit in range(10) if digit != truth]
    claimed = truth if random_.random() < 0.5 else random_.choice(others)
    if saw and claimed != truth and random_.random() < 0.3:
        claimed = int(saw.labels[1])  # the one that a careless reader of the labels takes
    if text.count("{one}") == 2:
        pair = random_.choice((random_.sample(range(10), 2), [truth, random_.choice(others)]))
        random_.shuffle(pair)
        for digit in pair:
            text = text.replace("{one}", named(digit, random_, voiced), 1)
    text = text.replace("{one}", named(claimed, random_, voiced))
    text = text.replace("{p}", random_.choice(spoken.PICTURE_NOUNS if voiced else LISTS["places"]))
    text = text.replace("{i}", random_.choice(LISTS["images"]))
    return text, answer(kind, saw, claimed) if saw else NO_PICTURE


def varied(kind: str, template: str, random_: random.Random) -> str:
    """The template, or one with some words more or less that is not held out."""
    draw = random_.random()
    if draw < 0.4 and kind != "claim":
        text = combined(kind, random_)
        return template if any(text in templates for templates in HELD_OUT.values()) else text
    words = template.split()
    draw = random_.random()
    if draw < 0.15:
        words.insert(0, random_.choice(LISTS[f"before_{kind}"]))
    elif draw < 0.3:
        words.insert(random_.randint(1, len(words)), random_.choice(LISTS["between"]))
    elif draw < 0.4:
        words.append(random_.choice(LISTS["after"]))
    elif draw < 0.45 and len(words) > 3:
        loose = [index for index, word in enumerate(words) if word != "{one}"]
        del words[random_.choice(loose)]
    text = " ".join(words)
    return template if any(text in templates for templates in HELD_OUT.values()) else text


def combined(kind: str, random_: random.Random) -> str:
    """A question of kind "which", "else" or "sure" put together from parts."""

    def one(name: str) -> str:
        return random_.choice(LISTS[name])

    if kind == "else":
        first = random_.choice(("what", "which {p}", "what {p}", "what else", "which other {p}", "who else"))
        parts = (first, one("maybe"), one("instead"))
    elif kind == "which":
        parts = (one("leads"), random_.choice(("what {p}", "which {p}")), one("tails"))
    elif random_.random() < 0.25:
        parts = ("what is the", one("scores"), one("scores_of"))
    elif random_.random() < 0.3:
        degree = random_.choice(("absolutely", "totally", "fairly", "pretty", "completely", ""))
        parts = ("are you", f"{degree} {random_.choice(LISTS['surely'][:5])}", one("of_what"))
    else:
        adjective = one("surely")
        parts = (f"{one('how')} {adjective}", one("who"), one("of_what"))
    return " ".join(" ".join(parts).split())


def answer(kind: str, saw: ImageLabels, claimed: int) -> str:
    """What the labels say to a question of this kind."""
    shown = f"The picture shows the digit {saw.labels[0]}"
    if kind == "which":
        return f"{shown}."
    if kind == "claim":
        # Both digits come before the judgement: the model compares two tokens of its own far sooner than a
        # word of the question with a label (after 500 steps four of five right, against chance).
        asked = f"{'An' if claimed == 8 else 'A'} {claimed}?"
        return f"{asked} {shown}, so {'yes' if str(claimed) == saw.labels[0] else 'no'}."
    if kind == "sure":
        return f"{shown}, and I am {percent(saw.scores[0])} sure."
    return f"{shown}, or else the digit {saw.labels[1]}."


def misheard(text: str, random_: random.Random) -> str:
    """The words as a recogniser may write them: one that names no digit lost, doubled or another one."""
    words = text.split()
    loose = [index for index, word in enumerate(words) if word not in WORDS]
    if not loose or len(words) < 3:
        return text
    index = random_.choice(loose)
    other = random_.choice(_HEARD)
    words[index : index + 1] = random_.choice(([], [other], [other], [words[index], other]))
    return " ".join(words)


_HEARD = sorted(set(spoken.words()) - set(WORDS))
