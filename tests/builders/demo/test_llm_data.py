"""The demo LLM's frozen texts and the questions made about them."""

import random
import re
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).resolve().parents[3] / "build" / "demo"
sys.path.insert(0, str(DEMO))

from llm_training import data, phrases  # noqa: E402

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
    random_, known = random.Random(1), {name for topic in TOPICS for name in topic["names"]}
    for _ in range(500):
        words = re.findall(r"[\w.]+", phrases.unknown_question(known, random_).lower())
        # "in python", "what is" and the like are frames; a subject is the name of a topic after an article.
        subjects = {
            word for before, word in zip(words, words[1:], strict=False) if before in ("the", "a", "an")
        }
        assert not subjects & (known - {"object", "class", "time"})


def test_conversations_are_the_same_for_the_same_seed():
    passages = data.load_passages()
    made = [phrases.conversation(TOPICS, passages, True, random.Random(7)) for _ in range(2)]
    assert made[0] == made[1]
    assert made[0][-1]["role"] == "assistant"


def test_sentences_leave_out_code_and_headings():
    text = (
        'The "x" statement\n*****\n\nThe "x" statement does *one* thing:\n\n   x ::= "x"\n\nIt is “done”.\n'
    )
    assert data.sentences(text) == ["The x statement does one thing:", "It is done."]
    assert data.answer_from(text, "The") == "The x statement does one thing. It is done."
    assert data.answer_from(text, "Nothing") == ""
