"""Collects the demo LLM's reference texts: one short answer a topic, and passages used as long prefixes.

Both come from the running interpreter's own documentation (pydoc topics and docstrings) and are frozen as
build/demo/llm/topics.json and passages.json, because the texts differ between Python versions: run this file
only to change the data, under Python 3.11. It is not responsible for how a question is phrased
(phrases.py) nor for training (train_llm.py).
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import textwrap
from pathlib import Path
from typing import TypedDict

DATA_DIRECTORY = Path(__file__).resolve().parents[1] / "llm"
MIN_WORDS, WANTED_WORDS, MAX_WORDS, MAX_SENTENCES = 7, 25, 80, 3
PASSAGE_CHARACTERS = (900, 2400)

# Sentences that only point at something the answer does not carry: a grammar, a table, a section.
POINTER = re.compile(
    r"\(?(See|For example|Note that|XXX|Usage|Based on|Additional information|Lt |GMT|Library usage)\b"
    r"|For a complete|.*(following (lexical|table|are)|equivalent to[:.]|here are some|These equivalences)"
    r"|.*(two steps|e\.g\.$|a\.k\.a\.$)"
)


class Topic(TypedDict):
    """One thing the demo LLM knows; `names` are the spellings a question may use, the topic's first."""

    topic: str
    kind: str
    names: list[str]
    answer: str


def source_text(source: str) -> str:
    """The documentation text a table row names, markup and all."""
    from pydoc_data.topics import topics

    sort, _, name = source.partition(" ")
    if sort == "doc":
        module, _, attribute = name.rpartition(".")
        found = getattr(importlib.import_module(module), attribute) if module == "builtins" else None
        text = inspect.getdoc(found or importlib.import_module(name)) or ""
        # Signature lines of C docstrings ("max(iterable) -> value") are no sentences.
        return re.sub(r"(?m)^[\w.]+\(.*\)( -+> .*)?$", "", text)
    if sort == "method":
        entry = re.split(rf"(?m)^str\.{name}\(.*\)$", topics["string-methods"])[1]
        return textwrap.dedent(re.split(r"(?m)^str\.\w+\(", entry)[0])
    return str(topics[source])


def clean(text: str) -> str:
    """Plain words: no rst marks, no quotes round single words, straight quotes, one space between words."""
    for curly, straight in {"“": '"', "”": '"', "’": "'", "‘": "'", "—": "-", "…": "..."}.items():
        text = text.replace(curly, straight)
    text = re.sub(r":\w+:`+~?\.?([^`]+)`+", r"\1", text)
    text = re.sub(r"`+([^`]+)`+", r"\1", text)
    text = re.sub(r"(?<![\w*])\*{1,2}([A-Za-z_][^*]*?)\*{1,2}(?!\w)", r"\1", text)
    text = re.sub(r" \((see|described in|See)[^)]*\)| \[\d+\]", "", text)
    text = re.sub(r'"([^\s"]+)"', r"\1", text)
    text = re.sub(r"(?<=\w)-\s*\n\s*(?=[a-z])", "-", text)
    return re.sub(r"\s+", " ", text).strip()


def sentences(text: str) -> list[str]:
    """The prose sentences of a documentation text, code blocks, tables and headings left out."""
    found: list[str] = []
    for paragraph in re.split(r"\n\s*\n", text):
        if re.search(
            r"^ {2,}\S|^[-*=~+|]{3,}|^>>>|^- |^New in|^Changed in|^Source code", paragraph.strip("\n"), re.M
        ):
            continue
        for sentence in re.split(r"(?<=[.!?:;])\s+(?=[A-Z\"(])", clean(paragraph)):
            if sentence and sentence != ").":
                found.append(sentence if sentence.rstrip(")")[-1:] in ".!?:" else sentence + ".")
    return found


def answer_from(text: str, start: str) -> str:
    """Whole sentences from `start` on, until the answer has WANTED_WORDS; "" where none fits."""
    known = sentences(text)
    first = next((i for i, sentence in enumerate(known) if sentence.startswith(start)), len(known))
    chosen: list[str] = []
    for sentence in known[first:]:
        words = len(" ".join([*chosen, sentence]).split())
        if chosen and (len(chosen) == MAX_SENTENCES or sentence[-1] == ":"):
            break
        if POINTER.match(sentence):
            continue
        if words > MAX_WORDS:
            break
        # A sentence that led to a code block ends here: the block is not part of the answer.
        chosen.append(re.sub(r":$", ".", sentence))
        if words >= WANTED_WORDS:
            break
    return " ".join(chosen)


def topics_from_documentation() -> list[Topic]:
    """Every row of sources.txt with its answer. Raises ValueError naming a row without one."""
    found: list[Topic] = []
    table = (DATA_DIRECTORY / "sources.txt").read_text(encoding="utf-8")
    for row in (line for line in table.splitlines() if line and not line.startswith("#")):
        kind, names, source, start = (*[cell.strip() for cell in row.split("|")], "")[:4]
        answer = answer_from(source_text(source), start)
        if not MIN_WORDS <= len(answer.split()) <= MAX_WORDS:
            raise ValueError(
                f"{row}: {len(answer.split())} words, wanted {MIN_WORDS} to {MAX_WORDS}: {answer!r}"
            )
        spellings = names.split("/")
        found.append(Topic(topic=spellings[0], kind=kind, names=spellings, answer=answer))
    return found


def passages_from_documentation() -> list[str]:
    """Runs of documentation prose, long enough to serve as a shared prefix."""
    from pydoc_data.topics import topics

    found = []
    for text in topics.values():
        prose = " ".join(sentences(text))
        if len(prose) >= PASSAGE_CHARACTERS[0]:
            found.append(prose[: PASSAGE_CHARACTERS[1]].rsplit(" ", 1)[0])
    return found


def load_topics(directory: Path = DATA_DIRECTORY) -> list[Topic]:
    """The frozen topics."""
    return list(json.loads((directory / "topics.json").read_text(encoding="utf-8")))


def load_passages(directory: Path = DATA_DIRECTORY) -> list[str]:
    """The frozen passages."""
    return list(json.loads((directory / "passages.json").read_text(encoding="utf-8")))


if __name__ == "__main__":
    for file, data in (
        ("topics.json", topics_from_documentation()),
        ("passages.json", passages_from_documentation()),
    ):
        (DATA_DIRECTORY / file).write_text(
            json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )
        print(f"{DATA_DIRECTORY.name}/{file}: {len(data)} entries")
