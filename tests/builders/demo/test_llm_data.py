"""The demo LLM's frozen texts and the questions made about them."""

import random
import re
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).resolve().parents[3] / "build" / "demo"
sys.path.insert(0, str(DEMO))

from llm_training import conversations, data, off_topic, phrases, pictures  # noqa: E402

TOPICS = data.load_topics()


def test_there_are_enough_topics_and_none_twice():
    assert len(TOPICS) >= 80
    assert len({topic["answer"] for topic in TOPICS}) == len(TOPICS)
    names = [name for topic in TOPICS for name in topic["names"]]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("topic", TOPICS, ids=[topic["topic"] for topic in TOPICS])
def test_an_answer_is_plain_whole_sentences_of_the_right_length(topic):
    answer = topic["answer"]
    assert topic["names"][0] == topic["topic"]
    assert topic["kind"] in phrases.FORMS
    assert data.MIN_WORDS <= len(answer.split()) <= data.MAX_WORDS
    assert re.search(r"[.!?]\)?$", answer)
    assert not re.search(r"``|:\w+:`|\s{2}|[“”’]|\n", answer)


def test_most_answers_are_long_enough_to_be_watched_while_they_stream():
    assert sum(len(topic["answer"].split()) >= 15 for topic in TOPICS) >= 0.8 * len(TOPICS)


def test_no_two_topics_are_asked_for_with_the_same_words():
    random_, owner = random.Random(0), {}
    for topic in TOPICS:
        for _ in range(200):
            what, _ = phrases.subject(topic, random_)
            assert owner.setdefault(what.lower(), topic["topic"]) == topic["topic"]


def test_held_out_templates_are_never_trained_on():
    assert not set(phrases.HELD_OUT) & set(phrases.TRAINED)


def test_a_made_up_question_is_not_about_a_topic():
    random_ = random.Random(1)
    for _ in range(2000):
        assert not off_topic.asks_for_a_topic(off_topic.question(random_))
    assert not off_topic.KNOWN & {name.lower() for name in off_topic.PYTHON_NAMES + off_topic.HELD_OUT_NAMES}
    assert off_topic.asks_for_a_topic("what is a list")
    assert not off_topic.asks_for_a_topic("what is a list of presidents")


def test_what_is_measured_is_never_trained_on():
    random_ = random.Random(2)
    for held_out, trained in (
        (pictures.HELD_OUT, pictures.KINDS),
        (pictures.HELD_OUT_SPOKEN, pictures.KINDS),
        (pictures.HELD_OUT_SPOKEN, pictures.SPOKEN_KINDS),
    ):
        for kind, templates in held_out.items():
            assert not set(templates) & set(trained[kind])
    assert not set(off_topic.HELD_OUT_NAMES) & set(off_topic.PYTHON_NAMES)
    measured = {plain(text) for text in off_topic.HELD_OUT}
    assert len(measured) >= 100
    assert not measured & {plain(text) for text in off_topic.LISTS["whole"]}
    assert not measured & {plain(off_topic.question(random_)) for _ in range(20_000)}


def plain(text):
    return re.sub(r"[^a-z0-9 ]", "", text.lower())


@pytest.mark.parametrize(
    ("kind", "claimed", "answer"),
    [
        ("which", 0, "The picture shows the digit 7."),
        ("claim", 7, "A 7? The picture shows the digit 7, so yes."),
        ("claim", 1, "A 1? The picture shows the digit 7, so no."),
        ("sure", 0, "The picture shows the digit 7, and I am 96 % sure."),
        ("else", 0, "The picture shows the digit 7, or else the digit 1."),
    ],
)
def test_an_answer_about_a_picture_follows_from_its_labels(kind, claimed, answer):
    assert pictures.answer(kind, pictures.Saw(("7", "1", "9"), (0.957, 0.03, 0.01)), claimed) == answer


def test_labels_are_drawn_best_first():
    random_ = random.Random(3)
    for _ in range(1000):
        saw = pictures.random_sight(random_)
        assert len(set(saw.labels)) == 3
        assert list(saw.scores) == sorted(saw.scores, reverse=True)
        assert sum(saw.scores) <= 1 + 1e-9


def test_a_misheard_question_keeps_its_digits():
    random_ = random.Random(4)
    for _ in range(300):
        heard = pictures.misheard("is this a seven or an eight", random_)
        assert {"seven", "eight"} <= set(heard.split())


def test_conversations_are_the_same_for_the_same_seed():
    passages = data.load_passages()
    made = [conversations.conversation(TOPICS, passages, True, random.Random(7)) for _ in range(2)]
    assert made[0] == made[1]
    assert made[0][-1]["role"] == "assistant"


def test_sentences_leave_out_code_and_headings():
    text = (
        'The "x" statement\n*****\n\nThe "x" statement does *one* thing:\n\n   x ::= "x"\n\nIt is “done”.\n'
    )
    assert data.sentences(text) == ["The x statement does one thing:", "It is done."]
    assert data.answer_from(text, "The") == "The x statement does one thing. It is done."
    assert data.answer_from(text, "Nothing") == ""
