"""Compares a case's answers and cache outcomes with the recorded ones: is a difference worse?

An answer that was recorded, in whichever repeat, is no difference. For others the case's expectation decides;
without one, how alike they are.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from trimodal.regress.latencies import fewer_successes
from trimodal.regress.schema import Expectation, broken
from trimodal.regress.values import Finding, Record, RecordedAnswer, Verdict

# Comparing all with all of a sampled case with many repeats would take minutes.
_MOST_COMPARED = 40
_SHOWN = 60
_LEAST_COSINE = 0.999
# Words, single signs, and single characters of scripts that put no spaces between words.
_PARTS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|\w+|[^\w\s]")


def compare_expectations(
    case: str, expect: Expectation, before: Record | None, after: Record, alpha: float
) -> list[Finding]:
    """Compares how often the expectation is kept; without an earlier run, says whether it is.

    Args:
        alpha: below which chance fewer kept ones are worse, if some were broken before, too.
    """
    failed, of = _failed(expect, after), len(after.observations)
    kept = of - len(failed)
    was_of = len(before.observations) if before else 1
    was_kept = was_of - len(_failed(expect, before)) if before else 1
    was = f"{was_kept} of {was_of} kept" if before else ""
    found = f"{kept} of {of} kept"
    if failed and was_kept == was_of:
        return [Finding(case, "expectation", "worse", was, found, failed[0])]
    if failed:
        p = fewer_successes((was_kept, was_of), (kept, of))
        if p < alpha:
            return [Finding(case, "expectation", "worse", was, found, failed[0], p)]
        return [Finding(case, "expectation", "known", was, found, failed[0])]
    if was_kept < was_of:
        return [Finding(case, "expectation", "better", was, found)]
    return []


def _failed(expect: Expectation, record: Record) -> list[str]:
    """Why, for each request whose answer breaks the expectation."""
    return [reason for one in record.observations if (reason := broken(expect, one.answer))]


def compare_answers(
    case: str, before: Record, after: Record, min_overlap: float, alpha: float, *, expected: bool
) -> list[Finding]:
    """Finds answers that were not recorded, and refusals that were, but are more now.

    Args:
        alpha: below which chance so many more refusals are worse.
        expected: an expectation judges this case; other differences are told, and not worse.
    """
    known = set(before.answers)
    new = [answer for answer in after.answers if answer not in known]
    if (
        not any(answer.error for answer in new)
        and not expected
        and (more := _refused(case, before, after, alpha))
    ):
        return [more]
    if not new:
        return []
    failed, fine = [answer for answer in new if answer.error], [answer for answer in new if not answer.error]
    recorded = [answer for answer in before.answers if not answer.error]
    share = sum(one.answer not in known for one in after.observations)
    seen = f"{share} of {len(after.observations)} requests"
    if failed:
        # One refusal for another is a change; a refusal for an answer is worse.
        verdict: Verdict = "worse" if recorded else "changed"
        return [Finding(case, "answer", verdict, shown(before.answers[0]), shown(failed[0]), seen)]
    if not recorded:
        return [Finding(case, "answer", "better", shown(before.answers[0]), shown(fine[0]), seen)]
    return [
        Finding(case, "answer", "changed" if expected else verdict, was, now, f"{detail}; {seen}")
        for verdict, was, now, detail in filter(
            None, (_text(recorded, fine, min_overlap), _labels(recorded, fine), _vectors(recorded, fine))
        )
    ]


def _refused(case: str, before: Record, after: Record, alpha: float) -> Finding | None:
    """Whether more requests are refused than by chance, as some were before."""
    was, now = ([one for one in run.observations if one.answer.error] for run in (before, after))
    if not was or not now:
        return None
    of, after_of = len(before.observations), len(after.observations)
    p = fewer_successes((of - len(was), of), (after_of - len(now), after_of))
    if p >= alpha:
        return None
    counts = f"{len(was)} of {of} refused", f"{len(now)} of {after_of} refused"
    return Finding(case, "answer", "worse", *counts, shown(now[0].answer), p)


_Difference = tuple[Verdict, str, str, str]


def _text(
    recorded: Sequence[RecordedAnswer], new: Sequence[RecordedAnswer], min_overlap: float
) -> _Difference | None:
    known = {(answer.text, answer.finish_reason) for answer in recorded}
    others = [answer for answer in new if (answer.text, answer.finish_reason) not in known]
    if not others:
        return None
    nearest = []
    for now in others[:_MOST_COMPARED]:
        ranked = [(overlap(old.text, now.text), old, now) for old in recorded[:_MOST_COMPARED]]
        nearest.append(max(ranked, key=lambda one: one[0]))
    likeness, old, now = min(nearest, key=lambda one: one[0])
    detail = f"overlap {likeness:.2f}"
    reasons = {answer.finish_reason for answer in recorded}
    ended = next((answer for answer in others if answer.finish_reason not in reasons), None)
    if ended:
        detail += f", finish reason {old.finish_reason} → {ended.finish_reason}"
    return "worse" if likeness < min_overlap or ended else "changed", shown(old), shown(now), detail


def overlap(first: str, second: str) -> float:
    """Share of the words and signs that both have in the same order: 1 for equal ones, 0 for none shared.

    Twice the matches over all parts of both (Ratcliff and Obershelp). Case counts, spaces do not.
    """
    parts = _PARTS.findall(first), _PARTS.findall(second)
    # Without its "junk" rule, which drops the frequent words of long texts.
    return difflib.SequenceMatcher(None, *parts, autojunk=False).ratio()


def _labels(recorded: Sequence[RecordedAnswer], new: Sequence[RecordedAnswer]) -> _Difference | None:
    best = {answer.labels[0][0]: answer for answer in recorded if answer.labels}
    other = next((answer for answer in new if answer.labels and answer.labels[0][0] not in best), None)
    if not best or not other:
        return None
    return "worse", _best(next(iter(best.values()))), _best(other), "another label"


def _vectors(recorded: Sequence[RecordedAnswer], new: Sequence[RecordedAnswer]) -> _Difference | None:
    known = [answer.vector for answer in recorded if answer.vector]
    others = [answer.vector for answer in new if answer.vector]
    if not known or not others:
        return None
    cosine, now = min((max(_cosine(old, vector) for old in known), vector) for vector in others)
    if cosine >= _LEAST_COSINE:
        return None
    return "worse", f"{len(known[0])} numbers", f"{len(now)} numbers", f"cosine {cosine:.5f}"


def _cosine(first: Sequence[float], second: Sequence[float]) -> float:
    if len(first) != len(second):
        return -1.0
    one, other = np.asarray(first), np.asarray(second)
    length = float(np.linalg.norm(one) * np.linalg.norm(other))
    return float(one @ other) / length if length else 0.0


def _best(answer: RecordedAnswer) -> str:
    name, score = answer.labels[0]
    return f"{_printable(name)} {score:.3f}"


def shown(answer: RecordedAnswer) -> str:
    """Shows the answer or refusal in one short line, safe for a terminal."""
    text = _printable(" ".join((f"{answer.error}: {answer.text}" if answer.error else answer.text).split()))
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def _printable(text: str) -> str:
    # An answer must not move a terminal's cursor or colour what comes after it.
    return "".join(sign if sign.isprintable() else "�" for sign in text)


def compare_cache(case: str, before: Record, after: Record) -> list[Finding]:
    """Compares whether a case is answered from the cache.

    The last request decides, because the first ones may only fill the cache.
    """
    was, now = before.observations[-1].cache, after.observations[-1].cache
    if was == now:
        return []
    verdict: Verdict = "worse" if not now else "changed" if was else "better"
    detail = f"{was or 'generated'} → {now or 'generated'}"
    return [Finding(case, "cache", verdict, _counts(before), _counts(after), detail)]


def _counts(record: Record) -> str:
    counts = Counter(one.cache or "generated" for one in record.observations)
    return ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
