"""Measures the demo LLM on pictures and off-topic questions, in words that it was never trained on.

Labels and scores are drawn at random and go through the assistant's own template; check_assistant.py asks a
real server about real pictures. An answer counts when every token of it is right.
"""

from __future__ import annotations

import random

from llm_training import off_topic, pictures
from llm_training.conversations import talk
from llm_training.corpus import Sample, encode
from llm_training.data import load_topics
from llm_training.phrases import REFUSAL, question_about, unknown_name, written
from tokenizers import Tokenizer

from trimodal.assistant.values import ImageLabels

QUESTIONS = 600
WANTED = {
    "pictures_typed": 0.97, "pictures_spoken": 0.97, "talks": 0.97, "off_topic_refused": 0.98,
    "topics_beside_picture": 0.97,
}  # fmt: skip


def _sight(digit: int, random_: random.Random) -> ImageLabels:
    while (saw := pictures.random_sight(random_)).labels[0] != str(digit):
        pass
    return saw


def _question(saw: ImageLabels, random_: random.Random, voiced: bool) -> tuple[str, str]:
    templates = pictures.HELD_OUT_SPOKEN if voiced else pictures.HELD_OUT
    text, answer = pictures.ask(random_.choice(list(templates)), saw, random_, templates, voiced)
    return text if voiced else written(text, random_), answer


def questions(tokenizer: Tokenizer) -> dict[str, list[Sample]]:
    """Conversations to measure, by the name of their figure; the last answer of each is what counts."""
    random_ = random.Random(11)
    found: dict[str, list[list[dict[str, str]]]] = {name: [] for name in WANTED}
    found |= {"off_topic_refused_beside_picture": [], "other_python_names_refused": [], "no_picture": []}
    for number in range(QUESTIONS):
        saw = _sight(number % 10, random_)
        for name, voiced in (("pictures_typed", False), ("pictures_spoken", True)):
            text, answer = _question(saw, random_, voiced)
            found[name].append(talk((pictures.PROMPT.render(text, "", saw), answer)))
        found["talks"].append(_pictured_talk(saw, random_))
        text, _ = _question(saw, random_, False)
        found["no_picture"].append(talk((text, pictures.NO_PICTURE)))
    for text in off_topic.HELD_OUT:
        found["off_topic_refused"].append(talk((text, REFUSAL)))
        prompt = pictures.PROMPT.render(text, "", pictures.random_sight(random_))
        found["off_topic_refused_beside_picture"].append(talk((prompt, REFUSAL)))
    for name in off_topic.HELD_OUT_NAMES:
        found["other_python_names_refused"].append(talk((unknown_name(random_, [name]), REFUSAL)))
    for topic in load_topics():
        for _ in range(3):
            text, saw = question_about(topic, random_), pictures.random_sight(random_)
            found["topics_beside_picture"].append(
                talk((pictures.PROMPT.render(text, "", saw), topic["answer"]))
            )
    return {name: [encode(tokenizer, talk) for talk in talks] for name, talks in found.items()}


def _pictured_talk(saw: ImageLabels, random_: random.Random) -> list[dict[str, str]]:
    """Two or three turns about one picture, now and then with a topic or another picture between."""
    text, answer = _question(saw, random_, False)
    turns = [(pictures.PROMPT.render(text, "", saw), answer)]
    for _ in range(random_.randint(1, 2)):
        prompt, draw = ImageLabels(), random_.random()
        if len(turns) == 1 and draw < 0.15:
            topic = random_.choice(load_topics())
            turns.append((question_about(topic, random_), topic["answer"]))
            continue
        if draw > 0.85:
            prompt = saw = pictures.random_sight(random_)
        text, answer = _question(saw, random_, False)
        turns.append((pictures.PROMPT.render(text, "", prompt), answer))
    return talk(*turns)
