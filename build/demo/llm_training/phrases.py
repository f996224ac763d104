"""Lists how people ask the demo LLM about its topics, and what it says to the rest.

Every function takes the random generator it draws from, so that the same seed gives the same questions.
"""

from __future__ import annotations

import random

from llm_training import off_topic
from llm_training.data import Topic

REFUSAL = (
    "I only know a few topics of the Python documentation and the digit in a picture, "
    "so I cannot answer that."
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
ASKING = (
    "what", "how", "can", "could", "do", "when", "why", "in ", "is", "are", "which", "who", "where",
    "would", "will", "should", "was", "am i", "has", "have",
)  # fmt: skip
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


def plain_question(topic: Topic) -> str:
    """The shortest question about a topic."""
    frames = {
        "statement": "explain the {n} statement",
        "module": "What is the {n} module?",
        "function": "what does {n} do",
        "method": "Tell me about the {n} method.",
        "class": "explain {n}",
        "concept": "what is a {n}",
    }
    return frames.get(topic["kind"], "what is {n}").format(n=topic["topic"])


def written(question: str, random_: random.Random) -> str:
    """The question as somebody types it or a speech recogniser writes it: politeness, capital, end."""
    question = random_.choice(OPENINGS) + question + random_.choice(CLOSINGS)
    style = random_.random()
    if style < 0.35:
        return question.replace(",", "").replace("`", "").replace("'", "") if style < 0.15 else question
    question = question[0].upper() + question[1:]
    question = question.replace(" i ", " I ").replace("python", "Python")
    asks = question.lower().startswith(ASKING)
    end = random_.choice(("?", "?", "?", "", ".") if asks else (".", ".", "", "!", "?"))
    return question + end


def question_about(topic: Topic, random_: random.Random, templates: tuple[str, ...] = TRAINED) -> str:
    """One question that the topic's answer answers."""
    return written(ask(random_.choice(templates), *subject(topic, random_)), random_)


def unknown_name(random_: random.Random, names: list[str] | None = None) -> str:
    """A question of the topics' templates about a name that is no topic: of Python (`names`) or made up."""
    name = random_.choice(names or off_topic.PYTHON_NAMES)
    if names is None and random_.random() < 0.65:
        name = off_topic.word(random_)
        if name in off_topic.KNOWN:
            name = "banana"
    form = random_.choice(FORMS[random_.choice(list(FORMS))])
    if form.startswith("a ") and name[0].lower() in "aeiou":
        form = "an " + form[2:]
    if random_.random() < 0.1:
        name = name.capitalize()
    return written(ask(random_.choice(TRAINED), form.format(n=name), plural=False), random_)


def unknown_question(random_: random.Random) -> str:
    """A question whose answer is REFUSAL: about the world, or a name that is no topic."""
    if random_.random() < 0.45:
        return unknown_name(random_)
    return written(off_topic.question(random_), random_)
