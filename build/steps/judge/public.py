"""Turns rows of public sets into pairs, where a hub is reachable.

Sets of inference tell one direction: what is no entailment differs, and entailment is the same only where the
set has it in both directions.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from steps.judge.crossing import Groups
from steps.judge.example import Example, normalised

from trimodal.errors import ArtefactError

Row = Mapping[str, Any]
MOST = 20_000  # pairs of one set
LONGEST = 300  # characters of a side


@dataclass(frozen=True)
class PublicSet:
    """Where a set is, under which licence, and how its rows become pairs."""

    hub: str
    config: str | None
    splits: tuple[str, ...]
    licence: str
    pairs: Callable[[Sequence[Row]], Iterable[tuple[str, str, bool]]]


def read_public(name: str, seed: int) -> list[Example]:
    """Up to 20,000 pairs of a set, drawn by seed; kind and domain are the set's name.

    Raises:
        ArtefactError: it cannot be had, or its rows have other fields.
    """
    return as_examples(name, _rows(name), seed)


def as_examples(name: str, rows: Sequence[Row], seed: int) -> list[Example]:
    """Pairs of these rows. Raises: ArtefactError: a row lacks a field."""
    try:
        found = [
            Example(a, b, same, name, name)
            for a, b, same in PUBLIC_SETS[name].pairs(rows)
            if 0 < len(a) <= LONGEST and 0 < len(b) <= LONGEST
        ]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ArtefactError(
            f"--public {name}: rows of {PUBLIC_SETS[name].hub} are not what was expected "
            f"({type(error).__name__}: {error})"
        ) from None
    if not found:
        raise ArtefactError(f"--public {name}: {PUBLIC_SETS[name].hub} gave no pairs")
    return random.Random(f"{seed} {name}").sample(found, min(MOST, len(found)))


def _rows(name: str) -> list[Row]:
    known = PUBLIC_SETS[name]
    try:
        import datasets
    except ImportError:
        raise ArtefactError(f"--public {name} needs datasets: pip install datasets") from None
    rows: list[Row] = []
    try:
        for split in known.splits:
            rows += datasets.load_dataset(known.hub, known.config, split=split)
    except Exception as error:  # The hub's client raises a dozen kinds, from HTTP, sockets and the cache.
        raise ArtefactError(
            f"--public {name}: the hub did not give {known.hub} ({type(error).__name__}): check the "
            "connection, or leave it out"
        ) from None
    return rows


def duplicates(rows: Sequence[Row]) -> Iterator[tuple[str, str, bool]]:
    """Quora's questions, cleaned: no duplicates with other numbers, none of both labels by transitivity."""
    pairs = [
        (row["question1"], row["question2"], row["label"] == 1) for row in rows if row["label"] in (0, 1)
    ]
    kept = [pair for pair in pairs if not pair[2] or _numbers(pair[0]) == _numbers(pair[1])]
    groups = Groups(Example(a, b, same, "", "") for a, b, same in kept)
    for a, b, same in kept:
        if same or groups.of(a) != groups.of(b):
            yield a, b, same


def paraphrases(rows: Sequence[Row]) -> Iterator[tuple[str, str, bool]]:
    """Sentences and a label of 0 or 1."""
    for row in rows:
        yield row["sentence1"], row["sentence2"], row["label"] == 1


def inference(
    one: str, other: str, label: str, entailment: object
) -> Callable[[Sequence[Row]], Iterator[tuple[str, str, bool]]]:
    """Reads rows of inference with these fields: entailment in both directions is the same."""

    def pairs(rows: Sequence[Row]) -> Iterator[tuple[str, str, bool]]:
        found = [row for row in rows if row[label] == entailment]
        entailed = {(normalised(row[one]), normalised(row[other])) for row in found}
        for row in rows:
            if row[label] == entailment:
                if (normalised(row[other]), normalised(row[one])) in entailed:
                    yield row[one], row[other], True
            elif row[label] not in (-1, "-"):  # no label that its authors agreed on
                yield row[one], row[other], False

    return pairs


def negations(rows: Sequence[Row]) -> Iterator[tuple[str, str, bool]]:
    """CondaQA: the one sentence that an edit of a passage changed; edit 1 is a paraphrase, 2 and 3 differ."""
    originals = {row["PassageID"]: row["sentence1"] for row in rows if row["PassageEditID"] == 0}
    seen = set()
    for row in rows:
        key = (row["PassageID"], row["sentence1"])
        if row["PassageEditID"] == 0 or key[0] not in originals or key in seen:
            continue
        seen.add(key)
        before, after = _sentences(originals[key[0]]), _sentences(row["sentence1"])
        gone = [each for each in before if each not in after]
        come = [each for each in after if each not in before]
        if len(gone) == len(come) == 1:
            yield gone[0], come[0], row["PassageEditID"] == 1


def _sentences(text: str) -> list[str]:
    return re.split(r"(?<=[.!?])\s+", text.strip())


def _numbers(text: str) -> list[str]:
    return sorted(re.findall(r"\d+", text))


NLI = inference("premise", "hypothesis", "label", 0)
PUBLIC_SETS = {
    "qqp": PublicSet(
        "nyu-mll/glue", "qqp", ("train",), "Quora's terms: not for commercial use", duplicates
    ),
    "paws": PublicSet(
        "google-research-datasets/paws", "labeled_final", ("train",),
        "free for any purpose, with acknowledgement", paraphrases,
    ),
    "mnli": PublicSet("nyu-mll/glue", "mnli", ("train",), "OANC and others, see its paper", NLI),
    "snli": PublicSet("stanfordnlp/snli", None, ("train",), "CC BY-SA 4.0", NLI),
    "anli": PublicSet(
        "facebook/anli", None, ("train_r1", "train_r2", "train_r3"), "CC BY-NC 4.0", NLI
    ),
    "med": PublicSet(
        "tasksource/monotonicity-entailment", None, ("train",), "not stated by the hub: see its repository",
        inference("sentence1", "sentence2", "gold_label", "entailment"),
    ),
    "help": PublicSet(
        "tasksource/help-nli", None, ("train",), "not stated by the hub: see its repository",
        inference("ori_sentence", "new_sentence", "gold_label", "entailment"),
    ),
    "condaqa": PublicSet("lasha-nlp/CONDAQA", None, ("train",), "Apache-2.0", negations),
}  # fmt: skip
