"""Questions about a picture of a digit, and the answers that its labels and scores give.

The user's message is what the assistant sends: its own template, filled in. HELD_OUT is what nothing is
trained on. Each function draws from the generator that it is given.
"""

from __future__ import annotations

import random
from pathlib import Path

from speech_training import phrases as spoken

from trimodal.assistant.prompt import Prompt
from trimodal.assistant.values import Saw

ROOT = Path(__file__).resolve().parents[3]
PROMPT = Prompt(ROOT / "model_repository" / "assistant" / "prompt.jinja")
NO_PICTURE = "There is no picture beside your question, so I cannot see a digit."
WORDS = spoken.DIGITS

# {p}: digit, number …; {i}: picture, image …; {one}: a digit to ask for.
PLACES = ("digit", "digit", "number", "number", "figure", "numeral")
IMAGES = ("picture", "picture", "image", "image", "photo", "scan", "drawing")
WHICH = (
    *spoken.PICTURES, "what {p} is that", "which {p} is that", "what {p} is shown in the {i}",
    "which {p} is shown here", "what {p} does the {i} show", "which {p} does this {i} show",
    "what {p} is written here", "what is written here", "which {p} is written in the {i}",
    "what do you see in the {i}", "what do you see here", "what can you see", "what is on the {i}",
    "what is in this {i}", "what is shown", "what is shown here", "what does it show", "what does it say",
    "what does the {i} say", "tell me the {p}", "tell me the {p} in the {i}", "name the {p}", "read it",
    "read the {p}", "read the {i}", "read this", "please read the {i}", "classify the {i}", "classify this",
    "recognise the {p}", "recognize this {p}", "identify the {p}", "identify this {i}", "describe the {i}",
    "describe what you see", "look at the {i} and tell me the {p}", "can you see the {p}",
    "can you tell which {p} it is", "can you tell me the {p}", "do you know what {p} this is",
    "i cannot read this {p}", "what {p} could this be", "what {p} do you think it is",
    "which {p} do you think this is", "guess the {p}", "{p}", "the {p} please", "which {p}", "what {p}",
    "which one is it", "what am i looking at", "so what {p} is it",
    "i would like to know which {p} this is", "give me the {p}", "what is this {p}", "what's this",
    "what's in the {i}", "what's the {p}", "what is the {p}", "and the {p}", "say which {p} it is",
    "what is that", "which {p} was written", "what {p} did i write", "which {p} did somebody write here",
    "is it {one} or {one}", "is this {one} or {one}", "is that {one} or {one}",
    "does it show {one} or {one}", "which is it, {one} or {one}", "what would you call this",
    "what does this look like", "can you make it out", "can you read this", "what is depicted here",
    "what does this {i} depict", "tell me what it shows", "tell me what you see here", "a {i} of what",
    "what is that supposed to be", "what would that be", "any idea what this is", "what is your answer",
    "what is your guess", "your best guess", "what does the classifier say", "what does the model think",
    "i want the {p}", "give me what you see", "may i know the {p}", "could you name the {p}",
    "could you read it to me", "read the {p} for me", "help me read this", "have a guess", "what am i shown",
    "what did i draw", "what stands there", "what stands on the {i}", "please classify", "recognise this",
    "look at this", "see the {i}, what is it", "this {i} shows what", "i do not know what this is",
)  # fmt: skip
# Put together: "which digit was written here", "can you tell me what number you recognise".
LEADS = (
    "", "", "", "tell me", "please tell me", "can you tell me", "can you say", "could you say", "do you know",
    "do you see", "i wonder", "i ask myself", "say", "let me know", "show me", "explain", "find out",
)  # fmt: skip
TAILS = (
    "this is", "that is", "it is", "you see", "you can see", "is shown", "is shown here", "is in the {i}",
    "is on this {i}", "is written here", "was written", "was drawn here", "is meant", "could be meant",
    "appears here", "can be read", "can be seen", "you read", "you find", "you recognise", "you recognised",
    "the {i} shows", "this {i} shows", "the {i} contains", "i drew", "we have here", "they wrote",
    "you think this is", "it might be", "it should be", "it looks like", "it resembles", "this was",
    "you would say it is", "the classifier sees", "the model found", "do you see", "do you recognise",
    "do you read there", "would you guess", "would you call it", "can you read", "can you see in the {i}",
)  # fmt: skip
CLAIMS = (
    *(claim for claim in spoken.CLAIMS if " or " not in claim), "isn't it {one}", "is it really {one}",
    "is it maybe {one}", "so it is {one}", "it is {one}, right", "this is {one}", "i say it is {one}",
    "it looks like {one}", "does it look like {one}", "does the {i} show {one}", "{one}",
    "is {one} in the {i}", "can you see {one}", "do you see {one} here", "would you say it is {one}",
    "could this be {one}", "is the {p} in the {i} {one}", "is that {p} {one}",
    "am i right that it is {one}", "was it {one}", "or is it {one}", "is there {one}",
    "is there {one} in this {i}", "somebody told me it is {one}", "is it not {one}", "what about {one}",
)  # fmt: skip
SURE = (
    *(sure for sure in spoken.SURE if "else" not in sure), "how confident are you",
    "what is your confidence", "how likely is that", "how probable is it", "are you confident",
    "with what probability", "what is the score", "what score does it have", "how good is your guess",
    "really sure", "how sure is the classifier", "how certain is the model", "is that certain",
    "can you be wrong", "could you be wrong", "do you know for sure", "what percentage", "how many percent",
    "are you really sure", "how reliable is that", "how much do you trust that", "tell me how sure you are",
    "how sure are you about the {p}", "can i trust you", "how sure are you that it is {one}",
    "is there any doubt", "do you have doubts",
)  # fmt: skip
# Put together: "how certain is your guess about the digit", "are you absolutely sure of it".
SURELY = ("sure", "sure", "certain", "certain", "confident", "safe", "reliable", "likely", "probable", "good")
WHO = (
    "are you", "are you", "are you", "is that", "is it", "is this", "is your guess", "is the answer",
    "is your answer", "is the classifier", "is the model", "can you be", "would you be", "is the result",
)  # fmt: skip
OF_WHAT = (
    "", "", "", "of that", "of it", "about that", "of this", "in that", "with that", "that it is {one}",
    "that this is {one}", "of the {p}", "about the {p}", "of this {p}", "about this", "of the answer",
    "about your guess", "that you are right",
)  # fmt: skip
HOW = ("how", "how", "how", "how", "just how", "and how")
SCORES = ("probability", "confidence", "certainty", "likelihood", "score", "chance", "percentage")
SCORES_OF = ("", "of your guess", "of this", "of the answer", "for that", "here", "of the {p}", "behind it")
ELSE = (
    *(sure for sure in spoken.SURE if "else" in sure), "what is the second guess",
    "what is your second guess", "what else might it be", "what is the next best guess",
    "what would be your second choice", "what is the second best", "if not, what else",
    "which other {p} could it be", "is there another possibility", "what comes second",
    "what else do you see", "which {p} is the second most likely",
)  # fmt: skip
KINDS = {"which": WHICH, "claim": CLAIMS, "sure": SURE, "else": ELSE}
SPOKEN_KINDS = {
    "which": (*spoken.PICTURES, *(claim for claim in spoken.CLAIMS if " or " in claim)),
    "claim": tuple(claim for claim in spoken.CLAIMS if " or " not in claim),
    "sure": tuple(sure for sure in spoken.SURE if "else" not in sure),
    "else": tuple(sure for sure in spoken.SURE if "else" in sure),
}
# Said before, between and after the words of a template.
BEFORE = {
    "which": (
        "tell me", "please tell me", "can you say", "i want to know", "just tell me", "say", "look,",
        "do you know",
    ),
    "claim": (
        "i guess", "i suppose", "would you say", "do you agree that", "tell me whether", "let me know if",
        "so,",
    ),
    "sure": ("tell me", "just", "but", "and", "please say", "so"),
    "else": ("tell me", "but", "and", "otherwise", "then"),
}  # fmt: skip
BETWEEN = (
    "maybe",
    "perhaps",
    "really",
    "actually",
    "quite",
    "just",
    "then",
    "probably",
    "very",
    "exactly",
    "rather",
)
AFTER = (
    "then",
    "now",
    "here",
    "in your opinion",
    "really",
    "do you think",
    "for me",
    "again",
    "otherwise",
    "about it",
)
# Never trained on: what the gate is measured with.
HELD_OUT = {
    "which": (
        "which numeral can you make out", "what is the {p} in this {i}",
        "could you tell me what {p} that is", "what {p} has been written on this {i}",
        "have a look at this {i}, which {p} is it", "do you recognise this {p}",
        "please tell me the {p} you see", "what would you read here", "tell me what this is",
        "what's that {p}", "which {p} would you say this is", "i need the {p} from this {i}",
        "show me which {p} it is", "what's this a {i} of",
    ),
    "claim": (
        "tell me if it is {one}", "is this maybe {one}", "i believe this is {one}",
        "is the {i} showing {one}", "do you think this is {one}", "would that be {one}",
        "is this {p} {one}", "can it be {one}",
    ),
    "sure": (
        "how sure are you of your answer", "how confident are you about it", "are you quite sure",
        "and how sure are you", "what is the probability of that", "how certain are you about this {p}",
    ),
    "else": (
        "what might it be otherwise", "what other {p} could it be", "which {p} would be your second guess",
    ),
}  # fmt: skip
HELD_OUT_SPOKEN = {
    "which": spoken.HELD_OUT_PICTURES,
    "claim": spoken.HELD_OUT_CLAIMS,
    "sure": spoken.HELD_OUT_SURE,
}


def random_sight(random_: random.Random) -> Saw:
    """Labels of a digit with scores that sum up to at most one, best first."""
    best = random_.choice(
        (
            random_.uniform(0.9, 1),
            random_.uniform(0.9, 1),
            random_.uniform(0.5, 0.95),
            random_.uniform(0.2, 0.6),
        )
    )
    second = min(best, (1 - best) * random_.uniform(0.3, 1))
    third = min(second, (1 - best - second) * random_.uniform(0.2, 1))
    labels = random_.sample(range(10), 3)
    return Saw(tuple(map(str, labels)), (best, second, third))


def percent(score: float) -> str:
    """The score as the template writes it."""
    return f"{100 * score:.0f} %"


def named(digit: int, random_: random.Random, voiced: bool = False) -> str:
    """A digit as it is asked for: a seven, 7, the digit 7."""
    article = "an" if digit == 8 else "a"
    if voiced:
        return f"{article} {WORDS[digit]}"
    forms = (
        "{a} {w}",
        "{a} {w}",
        "{a} {n}",
        "{a} {n}",
        "{w}",
        "{n}",
        "the digit {n}",
        "the number {w}",
        "number {n}",
    )
    return random_.choice(forms).format(a=article, w=WORDS[digit], n=digit)


def ask(
    kind: str,
    saw: Saw | None,
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
    text = text.replace("{p}", random_.choice(("digit", "number") if voiced else PLACES)).replace(
        "{i}", random_.choice(IMAGES)
    )
    return text, answer(kind, saw, claimed) if saw else NO_PICTURE


def varied(kind: str, template: str, random_: random.Random) -> str:
    """The template, or one with some words more or less that is not held out."""
    draw = random_.random()
    if draw < 0.4 and kind in ("which", "sure"):
        text = combined(kind, random_)
        return template if any(text in templates for templates in HELD_OUT.values()) else text
    words = template.split()
    draw = random_.random()
    if draw < 0.15:
        words.insert(0, random_.choice(BEFORE[kind]))
    elif draw < 0.3:
        words.insert(random_.randint(1, len(words)), random_.choice(BETWEEN))
    elif draw < 0.4:
        words.append(random_.choice(AFTER))
    elif draw < 0.45 and len(words) > 3:
        loose = [index for index, word in enumerate(words) if word != "{one}"]
        del words[random_.choice(loose)]
    text = " ".join(words)
    return template if any(text in templates for templates in HELD_OUT.values()) else text


def combined(kind: str, random_: random.Random) -> str:
    """A question of kind "which" or "sure" put together from parts."""
    if kind == "which":
        parts = (random_.choice(LEADS), random_.choice(("what {p}", "which {p}")), random_.choice(TAILS))
    elif random_.random() < 0.25:
        parts = ("what is the", random_.choice(SCORES), random_.choice(SCORES_OF))
    elif random_.random() < 0.3:
        degree = random_.choice(("absolutely", "totally", "fairly", "pretty", "completely", ""))
        parts = ("are you", f"{degree} {random_.choice(SURELY[:5])}", random_.choice(OF_WHAT))
    else:
        adjective = random_.choice(SURELY)
        parts = (f"{random_.choice(HOW)} {adjective}", random_.choice(WHO), random_.choice(OF_WHAT))
    return " ".join(" ".join(parts).split())


def answer(kind: str, saw: Saw, claimed: int) -> str:
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
