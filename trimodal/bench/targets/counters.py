"""Reads what a server counted during a run from its metrics page: caches, speculation, KV blocks."""

from __future__ import annotations

import re
from collections.abc import Mapping

from trimodal.errors import ServerError

_LINE = re.compile(r"^(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>[^}]*)\})? (?P<value>\S+)$", re.MULTILINE)
Page = Mapping[str, float]


def read_page(text: str) -> dict[str, float]:
    """Returns family, with its labels but for `model`, → value: those of several models are added.

    Raises:
        ServerError: it is no page of metrics.
    """
    found: dict[str, float] = {}
    for line in _LINE.finditer(text):
        labels = [one for one in (line["labels"] or "").split(",") if one and not one.startswith("model=")]
        key = f"{line['name']}{{{','.join(labels)}}}" if labels else line["name"]
        try:
            found[key] = found.get(key, 0.0) + float(line["value"])
        except ValueError:
            raise ServerError(f"the metrics page holds no number in '{line[0][:80]}'") from None
    return found


def between(before: Page, after: Page) -> dict[str, float]:
    """Figures of what happened between two pages; those of models that are not served are left out."""

    def grown(key: str) -> float:
        return after.get(key, 0.0) - before.get(key, 0.0)

    found = {}
    if prompt := grown('trimodal_llm_tokens_total{kind="prompt"}'):
        found["prefix_cached_share"] = grown('trimodal_llm_tokens_total{kind="cached"}') / prompt
    for layer in ("exact", "semantic"):
        of = f'trimodal_cache_lookups_total{{layer="{layer}",outcome='
        hits, misses = grown(f'{of}"hit"}}'), grown(f'{of}"miss"}}')
        if hits + misses:
            found[f"{layer}_hit_rate"] = hits / (hits + misses)
    gauges = {
        "kv_usage_at_end": "trimodal_llm_kv_usage_ratio",
        "tokens_per_step": "trimodal_llm_tokens_per_step",
        "speculation_acceptance": "trimodal_llm_speculation_acceptance_ratio",
    }
    found |= {name: after[key] for name, key in gauges.items() if key in after}
    if not after.get("trimodal_llm_speculation_active"):
        found.pop("speculation_acceptance", None)
    batches = {"images_per_run": "trimodal_vision_classify", "texts_per_run": "trimodal_embedding"}
    for name, family in batches.items():
        if runs := grown(f"{family}_batch_size_count"):
            found[name] = grown(f"{family}_batch_size_sum") / runs
    if runs := grown("trimodal_speech_batch_size_count"):
        found["windows_per_run"] = grown("trimodal_speech_batch_size_sum") / runs
    return found
