"""Compares a case's prompts and cache outcomes with the recorded ones."""

from __future__ import annotations

from collections import Counter

from trimodal.regress.compare.findings import Finding
from trimodal.regress.compare.significance import fewer_successes
from trimodal.regress.values import Record


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
