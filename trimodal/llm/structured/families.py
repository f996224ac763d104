"""Reads answers as families of models write them: what they think first, and calls of functions in free text.

The names are those of vLLM's parsers. Calls of all families become Hermes' (call_text.py): clients read it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal

from trimodal.llm.structured.call_text import CALL_BEGINS, CALL_TAIL, call_head

_DECODER = json.JSONDecoder()


@dataclass(frozen=True)
class Thinking:
    """What stands around the thoughts of a family's models; `special`: it is made of special tokens."""

    begins: str
    ends: str
    special: bool = False


THINKING = {
    "qwen3": Thinking("<think>", "</think>"),  # DeepSeek-R1, QwQ, SmolLM3, …
    "seed_oss": Thinking("<seed:think>", "</seed:think>"),
    "mistral": Thinking("[THINK]", "[/THINK]", special=True),
}
_MISTRAL, _PYTHON = "[TOOL_CALLS]", "<|python_tag|>"
# No two of its parts take the same blanks, of which a model may write thousands.
_NAMED = re.compile(r"([a-zA-Z0-9_-]{1,64})(?:\[CALL_ID\][^\[{]*|\s*)(?:\[ARGS\]\s*)?(?=\{)")
_BETWEEN = re.compile(rf"(?:[\s;,]|{re.escape(_MISTRAL)}|{re.escape(_PYTHON)})*")
TEMPLATES = {  # what a family's chat template has, the first that fits
    "mistral": (_MISTRAL,),
    "hermes": (CALL_BEGINS,),
    "llama3_json": ("<|start_header_id|>", '"parameters": '),
}

ReasoningParser = Literal["auto", "none", "qwen3", "seed_oss", "mistral"]
CallParser = Literal["auto", "hermes", "llama3_json", "mistral"]


@dataclass(frozen=True)
class Family:
    """How a model thinks (None: it does not) and calls functions."""

    thinking: Thinking | None = None
    calls: str = "hermes"

    def reader(self, prompt_end: str, *, thinks: bool, names: Collection[str]) -> AnswerReader | None:
        """What reads an answer; None: it is taken as it comes.

        Args:
            prompt_end: the last of the prompt's text, where thoughts may have begun.
            thinks: whether the answer may begin with thoughts.
            names: functions that may be called in free text.
        """
        thoughts = calls = None
        if thinks and self.thinking:
            begun = prompt_end.rstrip().endswith(self.thinking.begins)
            thoughts = ThoughtReader(self.thinking, open=begun)
        if names and self.calls != "hermes":
            calls = CallTranslator(self.calls, names)
        special = bool(calls or (thoughts and self.thinking and self.thinking.special))
        return AnswerReader(thoughts, calls, whole=special) if thoughts or calls else None


def family_of(template: str, reasoning: ReasoningParser, calls: CallParser) -> Family:
    """The family of a chat template; `reasoning` and `calls` say it where they are not auto."""
    thinking = thinking_of(template) if reasoning == "auto" else THINKING.get(reasoning)
    return Family(thinking, calls_of(template) if calls == "auto" else calls)


def thinking_of(template: str) -> Thinking | None:
    """How the model of a chat template thinks; None: it does not."""
    return next((one for one in THINKING.values() if one.ends in template), None)


def calls_of(template: str) -> str:
    """How the model of a chat template calls functions; one that says nothing is told Hermes' way."""
    return next((name for name, has in TEMPLATES.items() if all(one in template for one in has)), "hermes")


class ThoughtReader:
    """Parts an answer into what was thought and what is said. `open`: the prompt has begun the thoughts.

    Attributes:
        end: characters of the answer before the mark that ends the thoughts, so many as there are while they
            go on; 0 where it has none.
    """

    def __init__(self, thinking: Thinking, *, open: bool) -> None:
        self._marks = thinking
        self._place = "thoughts" if open else "start"
        self._held = ""
        self._thinking = False  # some of it was read
        self._read = self.end = 0

    def push(self, text: str, *, last: bool) -> tuple[str, str]:
        """The thoughts and the words that are certain with this text."""
        self._held += text
        self._read += len(text)
        thoughts = ""
        if self._place == "start":
            begun = self._held.lstrip()
            if begun.startswith(self._marks.begins):
                self._held, self._place = begun.removeprefix(self._marks.begins), "thoughts"
            elif last or not self._marks.begins.startswith(begun):
                self._place = "words"
            else:
                return "", ""
        if self._place == "thoughts":
            self._held = self._held if self._thinking else self._held.lstrip("\n")
            self._thinking = self._thinking or bool(self._held)
            thoughts, found, rest = self._held.partition(self._marks.ends)
            self.end = self._read - len(rest) - len(found)
            if found:
                thoughts, self._held, self._place = thoughts.rstrip("\n"), rest, "break"
            else:
                keep = 0 if last else _kept(thoughts, self._marks.ends)
                self._held = thoughts[len(thoughts) - keep :]
                return thoughts[: len(thoughts) - keep], ""
        if self._place == "break":
            self._held = self._held.lstrip("\n")
            self._place = "words" if self._held else "break"
        words, self._held = self._held, ""
        return thoughts, words


def _kept(text: str, mark: str) -> int:
    """Length of the end of a text that may belong to the mark: part of it, or line ends before it."""
    part = next((n for n in range(min(len(text), len(mark) - 1), 0, -1) if text.endswith(mark[:n])), 0)
    before = text[: len(text) - part]
    return part + len(before) - len(before.rstrip("\n"))


class CallTranslator:
    """Turns calls in free text into Hermes' once they are whole; what only looks like calls stays text.

    Args:
        family: one of TEMPLATES but hermes. names: of the functions that there are.
    """

    def __init__(self, family: str, names: Collection[str]) -> None:
        self._mistral = family == "mistral"
        self._names = names
        self._held = ""
        self._calls = False
        self._begun = False  # Llama's calls are the whole answer

    def push(self, text: str, *, last: bool) -> str:
        self._held += text
        before = "" if self._calls else self._text(last=last)
        if not (self._calls and last):
            return before
        try:
            calls = [_hermes(name, arguments) for name, arguments in self._read()]
        except (ValueError, KeyError, TypeError, RecursionError):
            return before + self._held
        return before + "\n".join(calls)

    def _text(self, *, last: bool) -> str:
        """What is text, up to where calls may begin."""
        if self._mistral:
            at = self._held.find(_MISTRAL)
            self._calls = at >= 0
            cut = at if self._calls else len(self._held) - (0 if last else _kept(self._held, _MISTRAL))
        else:
            begun = self._held.lstrip()
            self._calls = not self._begun and begun.startswith(("{", _PYTHON))
            waits = not (self._begun or last) and (not begun or _PYTHON.startswith(begun))
            self._begun = self._begun or not waits
            cut = 0 if self._calls or waits else len(self._held)
        text, self._held = self._held[:cut], self._held[cut:]
        return text

    def _read(self) -> Iterator[tuple[str, Any]]:
        """Names and arguments. Raises what `push` takes for no calls."""
        text, at = self._held, 0
        while (at := _BETWEEN.match(text, at).end()) < len(text):  # type: ignore[union-attr]  # it fits anywhere
            if named := _NAMED.match(text, at):
                arguments, at = _DECODER.raw_decode(text, named.end())
                yield self._known(named[1]), arguments
            else:
                value, at = _DECODER.raw_decode(text, at)
                for call in value if isinstance(value, list) else [value]:
                    arguments = call["arguments"] if "arguments" in call else call["parameters"]
                    yield self._known(call["name"]), arguments

    def _known(self, name: str) -> str:
        if name not in self._names:
            raise ValueError
        return name


def _hermes(name: str, arguments: Any) -> str:
    if not isinstance(arguments, dict):
        raise TypeError
    text = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
    text.encode()  # its escapes may have been of half characters
    return f"{call_head(name)}{text}{CALL_TAIL}"


class AnswerReader:
    """Reads one answer through both, as far as they are wanted."""

    def __init__(self, thoughts: ThoughtReader | None, calls: CallTranslator | None, *, whole: bool) -> None:
        self._thoughts = thoughts
        self._calls = calls
        self.whole = whole  # special tokens are part of its text

    @property
    def thoughts_end(self) -> int:
        """Characters of the answer that were thought."""
        return self._thoughts.end if self._thoughts else 0

    def rest(self, text: str) -> tuple[str, str]:
        """What is thought and said where the answer is left with this text; it may go on all the same."""
        return deepcopy(self).push(text, last=True)

    def push(self, text: str, *, last: bool) -> tuple[str, str]:
        """The thoughts and the words that are certain with this text."""
        thoughts = ""
        if self._thoughts:
            thoughts, text = self._thoughts.push(text, last=last)
        return thoughts, self._calls.push(text, last=last) if self._calls else text
