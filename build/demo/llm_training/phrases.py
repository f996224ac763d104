"""How people ask the demo LLM: question templates, conversations made of them, and what it says to the rest.

Not responsible for the reference texts (data.py). Every function takes the random generator it draws
from, so that the same seed gives the same conversations.
"""

from __future__ import annotations

import random

from llm_training.data import Topic

REFUSAL = (
    "I only know a few topics of the Python documentation. "
    "Ask me about a statement, a built-in function or a module, for example: what is a lambda?"
)
GREETING = "Hello! I am a pocket reference for Python. Ask me, for example: explain the while statement."

# {s} is a subject ("the while statement"); {a} is "is" or "are", {d} "does" or "do", as the subject wants.
TRAINED = (
    "what {a} {s}", "what {a} {s}", "what {a} {s} in python", "in python what {a} {s}",
    "what {a} {s} used for",
    "explain {s}", "explain {s}", "explain {s} to me", "explain {s} in python", "please explain {s}",
    "can you explain {s}", "could you explain {s}", "describe {s}", "define {s}", "tell me about {s}",
    "tell me about {s} in python", "tell me more about {s}", "how {d} {s} work", "how {d} {s} work in python",
    "how do i use {s}", "how can i use {s}", "how to use {s}", "what {d} {s} do", "what {d} {s} do in python",
    "what {d} {s} mean", "i want to know about {s}", "i would like to know what {s} {a}", "what about {s}",
    "show me the documentation for {s}", "help me understand {s}", "help with {s}",
    "give me a short explanation of {s}",
    "give me the definition of {s}", "do you know {s}", "do you know what {s} {a}",
    "can you tell me what {s} {a}",
    "can you tell me how {s} works", "what {d} python's {s} do", "when do i use {s}",
    "why {d} python have {s}",
    "{s}", "{s} in python", "question about {s}", "look up {s}", "what's {s}", "what's {s} in python",
)  # fmt: skip
# Never trained on: what the README's generalisation figure is measured with.
HELD_OUT = (
    "what can you tell me about {s}", "give me a summary of {s}", "could you tell me something about {s}",
    "how would you describe {s}", "what is the purpose of {s}", "please tell me what {s} {d} in python",
    "i need an explanation of {s}", "what exactly {a} {s}",
)  # fmt: skip
FORMS: dict[str, tuple[str, ...]] = {
    "statement": (
        "{n}",
        "{n}",
        "the {n} statement",
        "the {n} statement",
        "a {n} statement",
        "the {n} keyword",
    ),
    "expression": ("{n}", "{n}", "a {n}", "a {n}", "the {n} expression", "the {n} keyword"),
    "operator": ("{n}", "the {n} operator", "the {n} keyword"),
    "concept": ("{n}", "a {n}", "a {n}", "the {n}"),
    "function": ("{n}", "the {n} function", "the {n} function", "{n}()", "the built-in {n} function"),
    "class": (
        "{n}",
        "the {n} type",
        "a {n}",
        "the {n} class",
        "{n}()",
        "the {n} function",
        "the built-in {n} type",
    ),
    "method": ("{n}", "the {n} method", "the {n} method", "the string method {n}", "str.{n}", "{n}()"),
    "module": ("{n}", "the {n} module", "the {n} module", "the {n} library", "the {n} package", "module {n}"),
}
OPENINGS = ("",) * 9 + ("please ", "hi, ", "hello, ", "ok, ", "hey, ", "so, ", "well ")
CLOSINGS = ("",) * 12 + (" please", ", please", " thanks", ", thank you")
SYSTEM_PROMPTS = (
    "You are a helpful assistant.", "You answer questions about Python.", "Be brief.",
    "Answer in one paragraph.",
    "You are a pocket reference for Python.", "Use the documentation below.", "Answer politely.",
)  # fmt: skip
GREETINGS = (
    "hi", "hello", "hey", "hello there", "hi there", "good morning", "good evening", "who are you",
    "what are you",
    "what can you do", "how are you", "what do you know", "help", "nice to meet you", "what is your name",
)  # fmt: skip
UNKNOWN = (
    "paris", "the weather", "a banana", "the moon", "football", "chess", "a horse", "my cat",
    "the economy", "love",
    "the capital of france", "a java interface", "rust", "javascript", "the linux kernel", "a pointer",
    "a monad",
    "water", "coffee", "an elephant", "the president", "music", "a guitar", "gravity", "quantum physics",
    "pizza",
    "a car", "the stock market", "history", "a template engine", "kubernetes", "a goto statement",
    "the switch statement",
    "the foo function", "the frobnicate module", "numpy", "pandas", "the requests library",
    "the tensor module", "spam",
    "a bicycle", "the ocean", "a computer", "the internet", "a phone", "politics", "a dog", "the sun",
    "an apple",
)  # fmt: skip
OFF_TOPIC = (
    "what is the weather like today", "who won the game", "write me a poem", "tell me a joke",
    "what time is it",
    "translate this into french", "how old are you", "what is two plus two", "sing a song",
    "where do you live",
    "recommend a good restaurant", "what should i eat", "book a flight to london", "who wrote hamlet",
    "i am bored",
)  # fmt: skip
SYLLABLES = (
    "ba be bo ca co da de do fa fi ga go ha hi ka ki la lo ma mi na no pa po ra ri sa so ta to va vo wa zu"
)


def subject(topic: Topic, random_: random.Random) -> tuple[str, bool]:
    """A way to name the topic, and whether it is a plural."""
    name = random_.choice([topic["topic"], topic["topic"], *topic["names"]])
    if topic["kind"] == "concept" and name == topic["topic"] + "s":
        return name, True
    form = random_.choice(FORMS[topic["kind"]])
    if topic["kind"] == "statement" and random_.random() < 0.1:
        return f"{name} statements", True
    if form.startswith("a ") and name[0].lower() in "aeiou":
        form = "an " + form[2:]
    return form.format(
        n=random_.choice((name, name, name, name, name, name.capitalize(), f"'{name}'", f"`{name}`"))
    ), False


def ask(template: str, what: str, plural: bool) -> str:
    """The template about one subject, in lower case and without punctuation at its end."""
    return template.format(s=what, a="are" if plural else "is", d="do" if plural else "does")


def written(question: str, random_: random.Random) -> str:
    """The question as somebody types it or a speech recogniser writes it: politeness, capital, end."""
    question = random_.choice(OPENINGS) + question + random_.choice(CLOSINGS)
    style = random_.random()
    if style < 0.35:
        return question.replace(",", "").replace("`", "").replace("'", "") if style < 0.15 else question
    question = question[0].upper() + question[1:]
    question = question.replace(" i ", " I ").replace("python", "Python")
    asks = question.lower().startswith(("what", "how", "can", "could", "do", "when", "why", "in"))
    end = random_.choice(("?", "?", "?", "", ".") if asks else (".", ".", "", "!", "?"))
    return question + end


def question_about(topic: Topic, random_: random.Random, templates: tuple[str, ...] = TRAINED) -> str:
    """One question that the topic's answer answers."""
    return written(ask(random_.choice(templates), *subject(topic, random_)), random_)


def unknown_question(known: set[str], random_: random.Random) -> str:
    """A question whose answer is REFUSAL: about something outside the documentation, or a made-up word."""
    draw = random_.random()
    if draw < 0.2:
        return written(random_.choice(OFF_TOPIC), random_)
    what = random_.choice(UNKNOWN)
    if draw > 0.45:
        word = "".join(random_.choices(SYLLABLES.split(), k=random_.randint(1, 4))) + random_.choice(
            ("", "n", "r", "st")
        )
        kind = random_.choice(list(FORMS))
        what = word if word in known else random_.choice(FORMS[kind]).format(n=word)
        if word in known:
            return written("who won the game", random_)
    return written(ask(random_.choice(TRAINED), what, plural=False), random_)


def turn(topics: list[Topic], random_: random.Random) -> list[dict[str, str]]:
    """One question and its answer: a topic mostly, a refusal or a greeting now and then."""
    draw = random_.random()
    if draw < 0.06:
        question, answer = (
            unknown_question({name for topic in topics for name in topic["names"]}, random_),
            REFUSAL,
        )
    elif draw < 0.08:
        question, answer = written(random_.choice(GREETINGS), random_), GREETING
    else:
        topic = random_.choice(topics)
        question, answer = question_about(topic, random_), topic["answer"]
    return [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]


def conversation(
    topics: list[Topic], passages: list[str], long: bool, random_: random.Random
) -> list[dict[str, str]]:
    """Messages to train on: one or two turns, or (long) some more after a passage as the system message."""
    messages: list[dict[str, str]] = []
    if long and random_.random() < 0.75:
        passage = random_.choice(passages)
        length = random_.randint(150, 1700)
        start = random_.randint(0, max(0, len(passage) - length))
        opening = random_.choice((*SYSTEM_PROMPTS, "")) + random_.choice((" ", "\n", "\n\n"))
        messages = [{"role": "system", "content": (opening + passage[start : start + length]).strip()}]
    elif random_.random() < 0.3:
        messages = [{"role": "system", "content": random_.choice(SYSTEM_PROMPTS)}]
    for _ in range(random_.randint(1, 4) if long else random_.choice((1, 1, 2))):
        messages += turn(topics, random_)
    return messages
