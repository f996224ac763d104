"""Makers of near-identical questions whose sense another word changes: what is meant, not what is named."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

from steps.judge.changed_sense.frames import make_pair
from steps.judge.made import Maker

KINDS = (
    "quantifier", "scope", "tense", "aspect", "modality", "comparison",
    "condition", "cause", "severity", "eligibility", "order", "part",
)  # fmt: skip

CHANGED_SENSE: Mapping[str, Maker] = MappingProxyType({kind: partial(make_pair, kind) for kind in KINDS})
"""Kind of difference → its maker."""
