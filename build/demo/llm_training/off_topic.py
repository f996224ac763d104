"""Lists questions that the demo LLM is to refuse, to train on and to measure with.

Trained on: templates about things of the world (off_topic.txt), names of Python that are no topic, words out
of the passages and made-up ones. HELD_OUT (off_topic_held_out.txt) are whole questions that nothing is
trained on. Each function draws from the generator that it is given.
"""

from __future__ import annotations

import builtins
import keyword
import random
import re
import sys
from collections.abc import Callable
from pathlib import Path

from llm_training.data import load_passages, load_topics
from text_lists import read_lists

LISTS = read_lists(__file__)
# Never trained on: what the gate's figure of refusals is measured with.
HELD_OUT = tuple(Path(__file__).with_name("off_topic_held_out.txt").read_text(encoding="utf-8").splitlines())

KNOWN = frozenset(name.lower() for topic in load_topics() for name in topic["names"])
# What the templates of topics make of a name that only looks unknown.
_TOPIC_NAMES = sorted(KNOWN)
# Whole questions are the most varied: what no template says is learnt from them.
WHOLE_SHARE = 0.3
_TOPIC_WORDS = frozenset(word for name in KNOWN for word in re.findall(r"[a-z_]+", name))


def _python_names() -> tuple[list[str], list[str]]:
    """Names of Python that are no topic, to train on and held out: every fifth."""
    lists = (keyword.kwlist, keyword.softkwlist, sys.stdlib_module_names, dir(builtins), dir(str), dir(list))
    names = {name for names in lists for name in names}
    known = KNOWN | _TOPIC_WORDS
    unknown = sorted(name for name in names if not name.startswith("_") and name.lower() not in known)
    return [name for i, name in enumerate(unknown) if i % 5], unknown[::5]


PYTHON_NAMES, HELD_OUT_NAMES = _python_names()
_WORDS = sorted(
    {word for passage in load_passages() for word in re.findall(r"\b[a-z]{3,}\b", passage)} - _TOPIC_WORDS
)


def word(random_: random.Random) -> str:
    """A made-up word, mostly, or one of the passages that is part of no topic's name."""
    if random_.random() < 0.4:
        return str(random_.choice(_WORDS))
    if random_.random() < 0.3:
        return "".join(random_.choices("abcdefghijklmnopqrstuvwxyz", k=random_.randint(2, 9)))
    made = "".join(random_.choices(LISTS["syllables"], k=random_.randint(1, 4)))
    return made + random_.choice(("", "n", "r", "st", "ing", "er", "s"))


def near_topic(random_: random.Random) -> str:
    """A word that ends as a topic's name does and begins otherwise."""
    name = random_.choice([name for name in _TOPIC_NAMES if len(name) > 5])
    return "".join(random_.choices("bdfghjklmnprstvw", k=1)) + name[random_.randint(1, 2) :]


def _drawn(key: str, share: float, random_: random.Random) -> str:
    """One of a list for that share of the draws, else a word that may be made up."""
    return random_.choice(LISTS[key]) if random_.random() < share else word(random_)


def _with_article(noun: str) -> str:
    return ("an " if noun[0] in "aeiou" else "a ") + noun


def _some_number(random_: random.Random) -> str:
    return str(random_.randint(2, 999)) if random_.random() < 0.5 else random_.choice(LISTS["numbers"])


def _with_another_word(text: str, random_: random.Random) -> str:
    """The question with one of its longer words replaced, so that nobody learns it by heart."""
    words = text.split()
    places = [place for place, said in enumerate(words) if len(said) > 4]
    if places:
        words[random_.choice(places)] = word(random_)
    changed = " ".join(words)
    return text if asks_for_a_topic(changed) else changed


def question(random_: random.Random) -> str:
    """A question that is none of the topics' nor about a picture, in lower case without punctuation."""
    if random_.random() < WHOLE_SHARE:
        text = random_.choice(LISTS["whole"])
        return _with_another_word(text, random_) if random_.random() < 0.4 else text
    draw = random_.random()
    kind = "same_words" if draw < 0.3 else "opinions" if draw < 0.45 else "templates"
    text = random_.choice(LISTS[kind])
    holes: dict[str, Callable[[], str]] = {
        "{topic}": lambda: random_.choice(_TOPIC_NAMES),
        "{attribute}": lambda: _drawn("attributes", 0.8, random_),
        "{place}": lambda: _drawn("places", 0.85, random_),
        "{person}": lambda: _drawn("people", 0.8, random_),
        "{things}": lambda: _drawn("things", 0.6, random_) + "s",
        "{thing}": lambda: _with_article(_drawn("things", 0.6, random_)),
        "{noun}": lambda: _drawn("things", 0.6, random_),
        "{stuff}": lambda: _drawn("substances", 0.6, random_),
        "{done}": lambda: random_.choice(LISTS["done"]),
        "{act}": lambda: random_.choice(LISTS["acts"]),
        "{number}": lambda: _some_number(random_),
        "{language}": lambda: random_.choice(LISTS["languages"]),
        "{colour}": lambda: random_.choice(LISTS["colours"]),
        "{year}": lambda: str(random_.randint(1066, 2030)),
    }
    for hole, maker in holes.items():
        while hole in text:
            text = text.replace(hole, maker(), 1)
    # A thing of the world may share its name with a topic: "a list", "the range".
    return text if not asks_for_a_topic(text) else random_.choice(LISTS["whole"])


def asks_for_a_topic(text: str) -> bool:
    """Whether a bare question's subject is a topic after all: "what is a list", "explain zip"."""
    subject = re.sub(
        r"^(what (is|are|does)|explain|describe|tell me about|how (does|do)|what about)\b", "", text
    )
    subject = re.sub(r"\b(work|do|so important)$", "", subject).strip()
    subject = re.sub(r"^(a|an|the)\b", "", subject).strip()
    return subject in KNOWN or subject.rstrip("s") in KNOWN
