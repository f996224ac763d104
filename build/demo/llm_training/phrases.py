"""Lists how people ask the demo LLM about its topics, and what it says to the rest.

The templates are in phrases.txt. Every function takes the random generator it draws from, so that the same
seed gives the same questions.
"""

from __future__ import annotations

import random

from llm_training import off_topic
from llm_training.data import Topic
from text_lists import read_lists

LISTS = read_lists(__file__)
TRAINED, HELD_OUT = LISTS["trained"], LISTS["held_out"]
FORMS = {name[6:]: forms for name, forms in LISTS.items() if name.startswith("forms_")}

REFUSAL = (
    "I only know a few topics of the Python documentation and the digit in a picture, "
    "so I cannot answer that."
)
GREETING = "Hello! I am a pocket reference for Python. Ask me, for example: explain the while statement."

OPENINGS = ("",) * 9 + ("please ", "hi, ", "hello, ", "ok, ", "hey, ", "so, ", "well ")
CLOSINGS = ("",) * 12 + (" please", ", please", " thanks", ", thank you")
ASKING = (
    "what", "how", "can", "could", "do", "when", "why", "in ", "is", "are", "which", "who", "where",
    "would", "will", "should", "was", "am i", "has", "have",
)  # fmt: skip


def subject(topic: Topic, random_: random.Random) -> tuple[str, bool]:
    """A way to name the topic, and whether it is a plural."""
    name = random_.choice([topic["topic"], topic["topic"], *topic["names"]])
    if topic["kind"] == "concept" and name == topic["topic"] + "s":
        return name, True
    form = random_.choice(FORMS[topic["kind"]])
    if topic["kind"] == "statement" and random_.random() < 0.1:
        return f"{name} statements", True
    shown = random_.choice((*[name] * 5, name.capitalize(), f"'{name}'", f"`{name}`"))
    return _with_article(form, name).format(n=shown), False


def _with_article(form: str, name: str) -> str:
    return "an " + form[2:] if form.startswith("a ") and name[0].lower() in "aeiou" else form


def ask(template: str, what: str, plural: bool) -> str:
    """The template about one subject, in lower case and without punctuation at its end."""
    return template.format(s=what, a="are" if plural else "is", d="do" if plural else "does")


def plain_question(topic: Topic) -> str:
    """The shortest question about a topic."""
    (frame,) = LISTS.get(f"plain_{topic['kind']}", ("what is {n}",))
    return frame.format(n=topic["topic"])


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
        if random_.random() < 0.1:
            name = off_topic.near_topic(random_)
        if name in off_topic.KNOWN:
            name = "banana"
    form = _with_article(random_.choice(FORMS[random_.choice(list(FORMS))]), name)
    if random_.random() < 0.1:
        name = name.capitalize()
    return written(ask(random_.choice(TRAINED), form.format(n=name), plural=False), random_)


def unknown_question(random_: random.Random) -> str:
    """A question whose answer is REFUSAL: about the world, or a name that is no topic."""
    if random_.random() < 0.45:
        return unknown_name(random_)
    return written(off_topic.question(random_), random_)
