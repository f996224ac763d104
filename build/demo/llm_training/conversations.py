"""Conversations to train the demo LLM on, as the product sends them: topics, pictures and what is refused.

The same seed gives the same conversations.
"""

from __future__ import annotations

import random

from llm_training import off_topic, pictures
from llm_training.data import Topic
from llm_training.phrases import GREETING, LISTS, REFUSAL, question_about, unknown_question, written
from speech_training import phrases as spoken

from trimodal.assistant.values import ImageLabels

NOTHING = ImageLabels()
PICTURE_KINDS = ("which",) * 2 + ("claim",) * 5 + ("sure",) * 3 + ("else",) * 2


def talk(*turns: tuple[str, str]) -> list[dict[str, str]]:
    """Messages of questions and their answers."""
    roles = ("user", "assistant")
    return [{"role": role, "content": text} for turn in turns for role, text in zip(roles, turn, strict=True)]


def turn(topics: list[Topic], random_: random.Random) -> tuple[str, str]:
    """A question and its answer: a topic mostly, a refusal or a greeting now and then."""
    draw = random_.random()
    if draw < 0.45:
        return unknown_question(random_), REFUSAL
    if draw < 0.47:
        return written(random_.choice(LISTS["greetings"]), random_), GREETING
    topic = random_.choice(topics)
    return question_about(topic, random_), topic["answer"]


def picture_turn(saw: ImageLabels | None, random_: random.Random, voiced: bool) -> tuple[str, str]:
    """A question about a picture, and its answer."""
    if saw and not voiced and random_.random() < 0.06:
        image = random_.choice(pictures.LISTS["images"])
        text = random_.choice(off_topic.LISTS["about_a_picture"]).replace("{i}", image)
        return written(text, random_), REFUSAL
    templates = pictures.SPOKEN_KINDS if voiced else pictures.KINDS
    text, answer = pictures.ask(random_.choice(PICTURE_KINDS), saw, random_, templates, voiced)
    if not voiced:
        return written(text, random_), answer
    return pictures.misheard(text, random_) if random_.random() < 0.4 else text, answer


def sent(
    topics: list[Topic], shown: ImageLabels | None, random_: random.Random
) -> tuple[str, str, ImageLabels | None]:
    """One message as the assistant sends it, with its answer, and the picture that the talk is about then."""
    new = random_.random() < (0.15 if shown else 0.6)
    saw = pictures.random_sight(random_) if new else NOTHING
    seen = saw if new else shown
    voiced = random_.random() < 0.35
    about = random_.random() < (0.65 if seen else 0.12)
    question, answer = picture_turn(seen, random_, voiced) if about else turn(topics, random_)
    if voiced:
        return pictures.PROMPT.render("", question, saw), answer, seen
    heard = "" if random_.random() < 0.8 else spoken.sentence(random_)
    return pictures.PROMPT.render(question, heard, saw), answer, seen


def picture_talk(random_: random.Random) -> list[dict[str, str]]:
    """One or two questions about a picture and nothing else: copying and comparing are learnt from these."""
    saw, voiced = pictures.random_sight(random_), random_.random() < 0.35
    question, answer = picture_turn(saw, random_, voiced)
    turns = [(pictures.PROMPT.render(question, "", saw), answer)]
    if random_.random() < 0.3:
        turns.append(picture_turn(saw, random_, voiced))
    return talk(*turns)


def conversation(
    topics: list[Topic], passages: list[str], long: bool, random_: random.Random
) -> list[dict[str, str]]:
    """Messages to train on: one or two turns, or (long) some more after a passage as the system message."""
    messages: list[dict[str, str]] = []
    if long and random_.random() < 0.75:
        passage = random_.choice(passages)
        length = random_.randint(150, 1700)
        start = random_.randint(0, max(0, len(passage) - length))
        opening = random_.choice((*LISTS["system_prompts"], "")) + random_.choice((" ", "\n", "\n\n"))
        messages = [{"role": "system", "content": (opening + passage[start : start + length]).strip()}]
    elif random_.random() < 0.3:
        messages = [{"role": "system", "content": random_.choice(LISTS["system_prompts"])}]
    assistant = random_.random() < 0.7
    shown: ImageLabels | None = None
    for _ in range(
        random_.randint(1, 4) if long else random_.choice((1, 1, 2, 3, 4, 6) if assistant else (1, 1, 2))
    ):
        if assistant:
            question, answer, shown = sent(topics, shown, random_)
        else:
            question, answer = turn(topics, random_)
        messages += talk((question, answer))
    return messages
