"""Turns a question into a clause ("when I should …"), a command or another frame for the same thing."""

from __future__ import annotations

import random
import re
from typing import NamedTuple

from steps.judge.sameness.texts import lower_first

INVERTED = re.compile(
    r"(?P<wh>(?:(?:In|At|By|On|For|To|Until|From|After) )?"
    r"(?:What|Which|How|When|Where|Why|Who|Whom|what|which|how|whom)\b[^,]*?) "
    r"(?P<verb>do|can|should|may|must|could|would|will|am) (?P<who>I|you|we|they|one) (?P<rest>.+)"
)
IMPERSONAL = re.compile(r"(?P<wh>(?:How|What|When)\b[^,]*?) does it (?P<verb>take|cost|mean)\b(?P<rest>.*)")
NOUN = re.compile(r"What (?P<verb>is|are|was) (?P<noun>the [^,]+|[^ ,]+'s [^,]+)")
YES_NO = re.compile(
    r"(?P<verb>Can|Should|May|Must|Will|Do|Am|Is|Are) (?P<who>I|you|we|they|it|there) (?P<rest>.+)"
)
SUBJECT = re.compile(
    r"(?:What happens|Who (?!is\b|was\b|are\b|were\b|do\b|does\b|did\b|should\b|may\b|am\b))(?:(?!, and ).)+"
)
CLAUSE_WORDS = re.compile(r"\b(?:if|when|that|who|which|to|and|before|after|while|without|how|for)\b")

COMMANDS = (
    "Tell me {}.", "Please tell me {}.", "Let me know {}.", "I want to know {}.", "I would like to know {}.",
    "Find out {}.", "I need to know {}.", "tell me {}", "i'd like to know {}", "Find out for me {}.",
)  # fmt: skip
EXPLAIN = ("Explain {}.", "Explain to me {}.", "Please explain {}.", "Show me {}.", "Teach me {}.")
HOW_FRAMES = (
    "How can I {}?", "How to {}?", "how to {}", "What do I do to {}?", "What is the way to {}?",
    "What do I have to do to {}?", "In what way can I {}?", "What steps do I take to {}?", "steps to {}",
    "How would I {}?", "What must I do to {}?", "Which steps do I follow to {}?", "how can i {}",
    "What do I need to do in order to {}?", "I want to {}. How do I do that?", "I need to {}. How?",
    "I'd like to {}. How is that done?", "I am trying to {}. How do I do it?",
    "How should I go about it if I want to {}?",
)  # fmt: skip
DIFFERENCE_FRAMES = (
    "How do {a} and {b} differ?", "What distinguishes {a} from {b}?", "What sets {a} apart from {b}?",
    "difference between {a} and {b}", "{a} vs {b}: what's the difference?",
    "In what way do {a} and {b} differ?", "What are the differences between {a} and {b}?",
)  # fmt: skip


class Clause(NamedTuple):
    """The sentences before the question ("" or with a space behind them) and the question as a clause."""

    context: str
    asked: str


def split_last(text: str) -> tuple[str, str]:
    """What stands before the last sentence, with its space, and that sentence."""
    *before, last = re.split(r"(?<=[.?!]) (?=[A-Z])", text)
    return "".join(sentence + " " for sentence in before), last


def as_clause(text: str) -> Clause | None:
    """The question as the object of "tell me"; None where word order would take more than moving one verb."""
    context, last = split_last(text)
    if not last.endswith("?"):
        return None
    last = last[:-1]
    asked = _inverted(last) or _impersonal(last) or _noun(last) or _yes_no(last)
    if asked is None and SUBJECT.fullmatch(last):
        asked = lower_first(last)
    return None if asked is None else Clause(context, asked)


def _inverted(text: str) -> str | None:
    if (found := INVERTED.fullmatch(text)) is None:
        return None
    wh, verb, who, rest = found["wh"], found["verb"], found["who"], found["rest"]
    wh = wh[0].lower() + wh[1:]
    if wh == "how" and verb in ("do", "can") and who == "I":
        return f"how to {rest}" if verb == "do" else f"how I can {rest}"
    if f"{wh} {verb} {who} {rest}".startswith("what do I do "):
        return f"what to {rest}"
    return f"{wh} {who} {rest}" if verb == "do" else f"{wh} {who} {verb} {rest}"


def _impersonal(text: str) -> str | None:
    if (found := IMPERSONAL.fullmatch(text)) is None:
        return None
    return f"{found['wh'][0].lower()}{found['wh'][1:]} it {found['verb']}s{found['rest']}"


def _noun(text: str) -> str | None:
    found = NOUN.fullmatch(text)
    if (
        found is None
        or CLAUSE_WORDS.search(found["noun"].replace("between", ""))
        or found["noun"].count(" ") > 7
    ):
        return None
    return f"what {found['noun']} {found['verb']}"


def _yes_no(text: str) -> str | None:
    if (found := YES_NO.fullmatch(text)) is None or " or " in found["rest"]:
        return None
    verb = found["verb"].lower()
    return " ".join(("whether", found["who"], *([] if verb == "do" else [verb]), found["rest"]))


def as_command(text: str, rng: random.Random) -> str:
    """The question as a command; unchanged where it has no clause."""
    if (clause := as_clause(text)) is None:
        return text
    explained = clause.asked.startswith(("how to", "why"))
    frame = rng.choice(EXPLAIN + COMMANDS if explained else COMMANDS)
    if clause.context and frame[0].islower():
        frame = frame[0].upper() + frame[1:]
    return clause.context + frame.format(clause.asked)


def in_other_frame(text: str, rng: random.Random) -> str:
    """A question for a way or a difference asked with another frame; unchanged where it asks for neither."""
    context, last = split_last(text)
    if found := re.fullmatch(r"How do I (.+)\?", last):
        action = found[1]
        told = action.startswith(("know", "tell", "find out", "get that", "do that", "get there"))
        frames = HOW_FRAMES[:8] if told or " and how" in action or " I want" in action else HOW_FRAMES
        frame = rng.choice(frames)
        if context and frame[0].islower():
            frame = frame[0].upper() + frame[1:] + "?"
        return context + frame.format(action)
    if found := re.fullmatch(
        r"What is the difference between ((?:(?! and ).)+) and ((?:(?! and ).)+)\?", last
    ):
        a, b = rng.sample(found.groups(), 2)
        told = rng.choice(DIFFERENCE_FRAMES).format(a=a, b=b)
        return context + told[0].upper() + told[1:] if told[-1] == "?" else told
    return text
