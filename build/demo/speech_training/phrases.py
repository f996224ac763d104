"""Lists what the demo speech model learns: its words, and the sentences to train and test with.

Questions are about topics that the demo LLM answers (llm/topics.json), in words that it was trained on, and
about a picture of a digit. Beside them are numbers, short statements and commands, and words in no order.
Everything is lower case without punctuation. Not responsible for speaking the sentences (voices.py). Each
function draws from the generator that it is given.
"""

from __future__ import annotations

import random

STATEMENTS = [
    "assert",
    "assignment",
    "break",
    "class",
    "continue",
    "for",
    "global",
    "if",
    "pass",
    "raise",
    "return",
    "try",
    "while",
    "with",
    "yield",
]
CONCEPTS = (
    "coroutine", "literal", "comparison", "exception", "object", "generator", "mapping", "context manager",
    "code block", "format string", "function definition", "boolean operation", "bound method",
    "special method", "truth value", "list display", "power operator", "unary operator", "sequence type",
    "integer literal",
)  # fmt: skip
EXPRESSIONS = ("await", "lambda")
FUNCTIONS = (
    "all", "any", "callable", "filter", "hash", "input", "map", "max", "min", "next", "open", "print",
    "reversed", "round", "sorted", "sum", "zip", "class method", "static method", "enumerate",
)  # fmt: skip
CLASSES = ("complex", "float", "list", "range", "set", "slice", "tuple", "frozen set")
METHODS = (
    "capitalize", "find", "join", "lower", "replace", "strip", "title", "upper", "starts with", "ends with",
    "split lines",
)  # fmt: skip
MODULES = (
    "array", "collections", "copy", "inspect", "math", "pickle", "platform", "secrets", "socket",
    "statistics", "threading", "time", "json", "config parser", "sub process", "temp file", "unit test",
)  # fmt: skip
# (names, the ways to say them); {n} is the name.
SUBJECTS: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (tuple(STATEMENTS), ("the {n} statement", "the {n} statement", "a {n} statement", "the {n} keyword")),
    (CONCEPTS, ("a {n}", "a {n}", "the {n}", "{n}")),
    (EXPRESSIONS, ("{n}", "a {n}", "a {n}", "the {n} expression", "the {n} keyword")),
    (("in",), ("the {n} operator", "the {n} keyword")),
    (FUNCTIONS, ("the {n} function", "the {n} function", "{n}", "the built in {n} function")),
    (CLASSES, ("{n}", "a {n}", "the {n} type", "the {n} class", "the built in {n} type")),
    (METHODS, ("the {n} method", "the string method {n}", "{n}")),
    (MODULES, ("the {n} module", "the {n} module", "the {n} library", "the {n} package", "{n}")),
)

DIGITS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
TEENS = [
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]

# {s} is a subject, {d} a run of digits, {n} a number below a hundred.
QUESTIONS = (
    "what is {s}", "what is {s}", "what is {s}", "explain {s}", "explain {s}", "what is {s} in python",
    "explain {s} to me", "please explain {s}", "can you explain {s}", "describe {s}", "define {s}",
    "tell me about {s}", "tell me more about {s}", "how does {s} work", "how does {s} work in python",
    "how do i use {s}", "how to use {s}", "what does {s} do", "what does {s} do in python",
    "i would like to know what {s} is", "what about {s}", "show me the documentation for {s}",
    "help me understand {s}", "give me a short explanation of {s}", "can you tell me what {s} is",
    "can you tell me how {s} works", "when do i use {s}", "why does python have {s}", "{s}", "{s}",
    "question about {s}", "look up {s}", "explain {s} in python", "do you know {s}", "{s} and {s}",
    "could you tell me something about {s}", "i want a short summary of {s}", "what is the purpose of {s}",
    "i need an explanation of {s}", "show me the definition of {s}", "{s} is used in python",
    "how is {s} used", "we use {s} with {s}", "i know what {s} is", "help", "i need help",
    "what do you mean", "what does it mean", "please tell me exactly what {s} does",
    "tell me what it is used for", "{s} is used for {s}",
)  # fmt: skip
STATED = (
    "hello", "hello how are you", "good morning", "good morning how are you today", "hello what can you do",
    "thank you", "thank you it works", "please start the server", "stop the server now",
    "start the server now", "turn on the light", "turn off the light please",
    "please turn on the light now", "play the music", "stop the music", "open the door",
    "close the door now", "close the file please", "open the door please", "print the list",
    "print the sum of {n} and {n}", "the meeting starts at {n}", "the meeting starts at {n} today",
    "the meeting ends at {n} tomorrow", "we need {n} lines of code", "we have {n} lines in the file",
    "my number is {d}", "the number is {d}", "the code is {d}", "call {d}", "please call {d} now",
    "we start at {n} today", "yes please", "yes it works", "it works", "it is {n} today",
    "call me tomorrow morning", "call me at {n}", "how are you this morning", "we meet tomorrow at {n}",
    "this is my server", "is this the file", "this morning we start at {n}", "turn the music off",
    "the server is on", "the light is off now", "copy the list to the file", "find the next number",
    "read the file please", "please read this number {d}", "run the test", "run the code now",
    "the test works", "we run {n} server tests", "play it now",
)  # fmt: skip
# About a picture beside the recording; {one} is a digit with its article. Sure: about how sure the answer is.
PICTURE_NOUNS = ("digit", "number")
PICTURES = (
    "what {p} is this", "what {p} is this", "which {p} is this", "what {p} do you see",
    "which {p} do you see", "what {p} is it", "which {p} is it", "what {p} is in the picture",
    "which {p} is in this image", "which {p} is in the picture", "what {p} is in the image",
    "what {p} is shown", "which {p} is shown", "can you read this {p}", "can you read the {p}",
    "please read this {p}", "read the {p} in the picture", "tell me which {p} this is",
    "tell me what {p} it is", "do you know which {p} this is", "what do you see", "what is this",
    "what is it", "what is in the picture", "what is in this image", "what is shown in the picture",
    "what does the picture show", "what does this image show", "what can you see in the picture",
)  # fmt: skip
CLAIMS = (
    "is it {one}", "is it {one}", "is this {one}", "is this {one}", "is that {one}", "is the {p} {one}",
    "do you see {one}", "is it {one} or {one}", "is this {one} or {one}", "is there {one} in the picture",
    "does the picture show {one}", "i think it is {one}", "could it be {one}", "and is it {one}",
)  # fmt: skip
SURE = (
    "how sure are you", "how sure are you", "are you sure", "how certain are you", "are you certain",
    "how sure are you of that", "how certain is it", "how sure is that", "what else could it be",
    "could it be something else", "are you sure that it is {one}",
)  # fmt: skip
# Pieces of more questions about a picture, joined at random: a start must not tell the decoder the rest.
OPENINGS = (
    "", "", "", "can you tell me", "could you tell me", "tell me", "please tell me", "do you know",
    "i want to know", "i would like to know", "please", "now", "and", "show me",
)  # fmt: skip
WHICH_STARTS = (
    "what {p}", "which {p}", "what", "the {p}", "what is the {p}", "read the {p}", "look up this {p}",
)  # fmt: skip
WHICH_ENDS = (
    "is this", "this is", "is that", "that is", "is it", "it is", "do you see", "you see", "can you see",
    "i see", "is shown", "does it show", "the picture is", "does this image show", "do you think",
    "you think it is", "",
)  # fmt: skip
CLAIM_STARTS = (
    "is it", "is this", "is that", "it is", "this is", "i see", "do you see", "can you see", "could it be",
    "can this be", "i think this is", "you think that is", "is the {p}", "is that {p}", "this {p} is",
    "does the picture show", "does this image show", "is there", "there is", "would it be",
)  # fmt: skip
CLAIM_ENDS = ("{one}", "{one}", "{one} or {one}")
SURE_STARTS = (
    "how sure", "how certain", "sure", "certain", "are you sure", "are you certain", "is it certain",
)  # fmt: skip
SURE_ENDS = (
    "are you", "is that", "is this", "are you now", "that it is {one}", "of this {p}", "of that {p}", "",
)  # fmt: skip
PIECES = {
    "which": (WHICH_STARTS, WHICH_ENDS),
    "claim": (CLAIM_STARTS, CLAIM_ENDS),
    "sure": (SURE_STARTS, SURE_ENDS),
}
CLOSINGS = (
    "", "", "", "in the picture", "in this picture", "in the image", "in this image", "please", "now",
    "of that",
)  # fmt: skip
# Never trained on: what the gate is measured with. The demo LLM was trained on these questions.
HELD_OUT_QUESTIONS = (
    "tell me about {s} in python", "how can i use {s}", "could you explain {s}", "i want to know about {s}",
    "what does {s} mean", "do you know what {s} is", "give me the definition of {s}", "help with {s}",
    "in python what is {s}", "what is {s} used for", "what does {s} mean in python",
    "show me the documentation of {s}",
)  # fmt: skip
HELD_OUT_PICTURES = (
    "can you tell me which {p} this is", "what {p} is in this picture", "which {p} does the picture show",
    "tell me what you see", "which {p} can you see in the image", "read this {p} please",
)  # fmt: skip
HELD_OUT_CLAIMS = (
    "do you see {one} in the picture", "do you think it is {one}", "is the {p} in the image {one}",
    "is this {p} {one}",
)  # fmt: skip
HELD_OUT_SURE = (
    "how sure are you of this",
    "how certain are you of that",
    "are you certain that this is {one}",
)
HELD_OUT_STATED = (
    "turn on the music", "please close the door", "open the file now", "the meeting is at {n} today",
    "we start the server tomorrow morning", "my code is {d}", "print the number {n}",
    "call me tomorrow at {n}", "please stop the test", "hello this is my code", "turn off the server now",
    "we read {n} lines",
)  # fmt: skip
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
    texts = [
        *QUESTIONS,
        *PICTURES,
        *CLAIMS,
        *SURE,
        *PICTURE_NOUNS,
        *STATED,
        *DIGITS,
        *TEENS,
        *TENS,
        "hundred",
        "an and",
    ]
    texts += [name for names, _ in SUBJECTS for name in names]
    texts += [form for _, forms in SUBJECTS for form in forms]
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
        return fill(random_.choice(QUESTIONS), random_)
    if draw < 0.62:
        return fill(random_.choice(random_.choice((PICTURES, CLAIMS, SURE))), random_)
    if draw < 0.74:
        return asked_of_a_picture(random_)[1]
    if draw < 0.84:
        return fill(random_.choice(STATED), random_)
    return scrambled(random_)


def asked_of_a_picture(random_: random.Random) -> tuple[str, str]:
    """A question about a picture made of pieces, none that is held out, and what it asks for."""
    unseen = (*HELD_OUT_PICTURES, *HELD_OUT_CLAIMS, *HELD_OUT_SURE)
    while True:
        kind = random_.choice(list(PIECES))
        pieces = (OPENINGS, *PIECES[kind], CLOSINGS)
        template = " ".join(piece for piece in map(random_.choice, pieces) if piece)
        if template not in unseen:
            return kind, fill(template, random_)


def held_out(random_: random.Random) -> str:
    """A question or statement of a template that is never trained on."""
    templates = HELD_OUT_QUESTIONS if random_.random() < 0.75 else HELD_OUT_STATED
    return fill(random_.choice(templates), random_)


def held_out_picture(random_: random.Random) -> str:
    """A question about a picture, of a template that is never trained on."""
    return fill(random_.choice(random_.choice((HELD_OUT_PICTURES, HELD_OUT_CLAIMS, HELD_OUT_SURE))), random_)
