"""Compares a case's answers, prompts and cache outcomes with the recorded ones: is a difference worse?

An answer that was recorded, in whichever repeat, is no difference. For others the case's expectation decides;
without one, how alike they are.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from trimodal.regress.compare.findings import Finding, Limits, Verdict
from trimodal.regress.compare.significance import fewer_successes
from trimodal.regress.golden.schema import Expectation, broken, word_errors
from trimodal.regress.values import Record, RecordedAnswer

# Comparing all with all of a sampled case with many repeats would take minutes.
_MOST_COMPARED = 40
_SHOWN = 60
_SAME_VECTOR = 0.99999  # they are kept to five digits
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
        worse = Finding(case, "expectation", "worse", was, found, failed[0], p)
        return [worse if p < alpha else Finding(case, "expectation", "known", was, found, failed[0])]
    if was_kept < was_of:
        return [Finding(case, "expectation", "better", was, found)]
    return []


def _failed(expect: Expectation, record: Record) -> list[str]:
    """Why, for each request whose answer breaks the expectation."""
    reasons = [broken(expect, answer) for answer in record.answers]
    return [reasons[one.answer] for one in record.observations if reasons[one.answer]]


def compare_answers(
    case: str, before: Record, after: Record, limits: Limits, *, expected: bool
) -> list[Finding]:
    """Finds answers that were not recorded.

    Args:
        expected: an expectation judges this case; other differences are told, and not worse.
    """
    known = set(before.answers)
    new = [answer for answer in after.answers if answer not in known]
    if not new:
        return []
    failed, fine = [answer for answer in new if answer.error], [answer for answer in new if not answer.error]
    recorded = [answer for answer in before.answers if not answer.error]
    share = sum(answer in set(new) for answer in after.responses)
    seen = f"{share} of {len(after.observations)} requests"
    if failed:
        # One refusal for another is a change; a refusal for an answer is worse.
        verdict: Verdict = "worse" if any(not answer.error for answer in before.responses) else "changed"
        return [Finding(case, "answer", verdict, shown(before.responses[0]), shown(failed[0]), seen)]
    if not recorded:
        return [Finding(case, "answer", "better", shown(before.responses[0]), shown(fine[0]), seen)]
    found = [
        _text(recorded, fine, before.task, limits),
        _labels([one for one in recorded if one.labels], [one for one in fine if one.labels], limits),
        _vectors([one for one in recorded if one.vector], [one for one in fine if one.vector], limits),
    ]
    return [
        Finding(case, "answer", "changed" if expected else verdict, was, now, f"{detail}; {seen}")
        for verdict, was, now, detail in filter(None, found)
    ]


_Difference = tuple[Verdict, str, str, str]


def _text(
    recorded: Sequence[RecordedAnswer], new: Sequence[RecordedAnswer], task: str, limits: Limits
) -> _Difference | None:
    known = {(answer.text, answer.heard, answer.finish_reason) for answer in recorded}
    others = [answer for answer in new if (answer.text, answer.heard, answer.finish_reason) not in known]
    if not others:
        return None
    pairs = [(_nearest(answer.text, recorded), answer) for answer in others[:_MOST_COMPARED]]
    (likeness, old), now = min(pairs, key=lambda pair: pair[0][0])
    detail = f"overlap {likeness:.2f}"
    if task == "speech":
        detail += f", word errors {word_errors(old.text, now.text):.2f}"
    if now.heard != old.heard:
        detail += f", heard {old.heard!r} → {now.heard!r}"
    reasons = {answer.finish_reason for answer in recorded}
    ended = next((answer for answer in others if answer.finish_reason not in reasons), None)
    if ended:
        detail += f", finish reason {old.finish_reason} → {ended.finish_reason}"
    # Sampled answers differ among themselves: no more is asked of new ones.
    least = min(limits.overlap, _own_likeness(recorded))
    verdict: Verdict = "worse" if likeness < least or ended else "changed"
    return verdict, shown(old), shown(now), detail


def overlap(first: str, second: str) -> float:
    """Share of the words and signs that both have in the same order: 1 for equal ones, 0 for none shared.

    Twice the matches over all parts of both (Ratcliff and Obershelp). Case counts, spaces do not.
    """
    parts = _PARTS.findall(first), _PARTS.findall(second)
    # Without its "junk" rule, which drops the frequent words of long texts.
    return difflib.SequenceMatcher(None, *parts, autojunk=False).ratio()


def _nearest(text: str, others: Iterable[RecordedAnswer]) -> tuple[float, RecordedAnswer]:
    """Returns the most alike of some answers, and how much it is."""
    ranked = [(overlap(one.text, text), one) for one in list(others)[:_MOST_COMPARED]]
    return max(ranked, key=lambda pair: pair[0])


def _own_likeness(recorded: Sequence[RecordedAnswer]) -> float:
    """Returns the least that a recorded answer is like its most alike other one; 1 when there is only one."""
    if len(recorded) < 2:
        return 1.0
    some = recorded[:_MOST_COMPARED]
    return min(_nearest(one.text, (other for other in some if other is not one))[0] for one in some)


def _labels(
    recorded: Sequence[RecordedAnswer], new: Sequence[RecordedAnswer], limits: Limits
) -> _Difference | None:
    if not recorded or not new:
        return None
    best = {answer.labels[0][0] for answer in recorded}
    other = next((answer for answer in new if answer.labels[0][0] not in best), None)
    if other:
        return "worse", _best(recorded[0]), _best(other), "another label"
    drifts = [(min(_drift(old, answer) for old in recorded), answer) for answer in new]
    drift, now = max(drifts, key=lambda pair: pair[0])
    if drift <= limits.score:
        return None
    return "changed", _best(recorded[0]), _best(now), f"scores moved by {drift:.3f}"


def _drift(old: RecordedAnswer, new: RecordedAnswer) -> float:
    scores = dict(new.labels)
    # A label that one of them cut off (top_k) cannot be compared.
    return max((abs(score - scores[name]) for name, score in old.labels if name in scores), default=1.0)


def _vectors(
    recorded: Sequence[RecordedAnswer], new: Sequence[RecordedAnswer], limits: Limits
) -> _Difference | None:
    if not recorded or not new:
        return None
    cosine = min(max(_cosine(old.vector, answer.vector) for old in recorded) for answer in new)
    if cosine >= _SAME_VECTOR:
        return None
    verdict: Verdict = "worse" if cosine < limits.cosine else "changed"
    was, now = (f"{len(answer.vector)} numbers" for answer in (recorded[0], new[0]))
    return verdict, was, now, f"cosine {cosine:.5f}"


def _cosine(first: Sequence[float], second: Sequence[float]) -> float:
    if len(first) != len(second):
        return -1.0
    one, other = np.asarray(first), np.asarray(second)
    length = float(np.linalg.norm(one) * np.linalg.norm(other))
    return float(one @ other) / length if length else float(not one.any() and not other.any())


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


def compare_cache(case: str, before: Record, after: Record, alpha: float) -> list[Finding]:
    """Compares whether a case is answered from the cache.

    The last request decides, because the first ones may only fill the cache; fewer hits
    before it are worse when that is not chance.
    """
    was, now = before.observations[-1].cache, after.observations[-1].cache
    told = _counts(before), _counts(after)
    if was and not now:
        return [Finding(case, "cache", "worse", *told, f"{was} → generated")]
    if now and not was:
        return [Finding(case, "cache", "better", *told, f"generated → {now}")]
    p = fewer_successes(_hits(before), _hits(after))
    if was and p < alpha:
        return [Finding(case, "cache", "worse", *told, "fewer hits", p)]
    if was != now:
        return [Finding(case, "cache", "changed", *told, f"{was} → {now}")]
    return []


def compare_prompt(case: str, before: Record, after: Record) -> list[Finding]:
    """Compares the tokens of the prompt: they change with a template, a tokenizer or a budget."""
    was, now = (
        sorted({one.prompt_tokens for one in record.observations if one.prompt_tokens})
        for record in (before, after)
    )
    if was == now or not was or not now:
        return []
    told = [f"{', '.join(map(str, sizes))} tokens" for sizes in (was, now)]
    return [Finding(case, "prompt", "changed", told[0], told[1])]


def _hits(record: Record) -> tuple[int, int]:
    return sum(bool(one.cache) for one in record.observations), len(record.observations)


def _counts(record: Record) -> str:
    counts = Counter(one.cache or "generated" for one in record.observations)
    return ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
