"""Opens the cache that a model's settings ask for, inside the server."""

from __future__ import annotations

import hashlib
import os
from functools import partial
from pathlib import Path
from typing import Any

from trimodal.cache.answers import AnswerCache, CacheOptions
from trimodal.cache.audit.auditor import Auditor
from trimodal.cache.calibration import calibration_of
from trimodal.cache.keys import join, pack
from trimodal.cache.metrics import CacheMetrics
from trimodal.cache.models import embed, judge
from trimodal.cache.stores.base import default_store
from trimodal.llm.settings import LlmSettings
from trimodal.manifest import MANIFEST
from trimodal.metrics import Metrics
from trimodal.paths import setting_path
from trimodal.repository import built_model

_DIGITS = 16
_CHANGE_ANSWERS = (
    *("engine", "kv_cache_precision", "numerics", "kv_cache_dtype", "speculation"),
    *("apply_chat_template", "tensor_parallel_size", "pipeline_parallel_size", "fake_answer"),
    *("quantization", "engine_args"),
)
"""Settings by which the same weights may give another answer to the same prompt."""


def engine_fingerprint(manifest: bytes, settings: LlmSettings) -> str:
    """16 hex digits over a built engine's manifest and the settings that change what it answers."""
    values = (f"{name}={getattr(settings, name)!r}" for name in _CHANGE_ANSWERS)
    return hashlib.sha256(join((manifest, pack(*values)))).hexdigest()[:_DIGITS]


def model_fingerprint(settings: LlmSettings) -> str:
    """`engine_fingerprint` of the artefact that `settings` name; its name where it has no manifest."""
    # Not by the name for libraries, which may be a descriptor's: another process may have that for another.
    directory = setting_path(str(settings.version_directory / setting_path(settings.artefact)))
    try:
        manifest = b"" if settings.engine == "fake" else (directory / MANIFEST).read_bytes()
    except OSError:
        manifest = os.fsencode(directory)
    return engine_fingerprint(manifest, settings)


def cache_options(settings: LlmSettings, model: str) -> CacheOptions:
    """The options of the cache of the model called `model`."""
    return CacheOptions(
        store=settings.cache_store or str(default_store(model)),
        budget_s=settings.cache_budget_ms / 1e3,
        embedding_budget_s=settings.cache_embedding_budget_ms / 1e3,
        judge_budget_s=settings.cache_judge_budget_ms / 1e3,
        ttls=settings.cache_ttls,
        max_entries=settings.cache_max_entries,
        max_answer_bytes=settings.cache_max_answer_bytes,
        max_false_hit=settings.cache_max_false_hit,
    )


def open_answers(
    settings: LlmSettings, pb_utils: Any, metrics: Metrics, llm: Path
) -> tuple[AnswerCache | None, str]:
    """The cache of the llm model in the directory `llm` (None: it stores nothing), and its fingerprint.

    Raises:
        OperatorError: the store cannot be used, or a model does not suit the semantic layer.
    """
    fingerprint = model_fingerprint(settings)
    if settings.cache in ("off", "coalesce"):
        return None, fingerprint
    counts, options = CacheMetrics(metrics, llm.name), cache_options(settings, llm.name)
    embeds = same = calibration = audits = None
    if settings.cache == "semantic":
        checkpoint = built_model(llm, settings.embedder, parameter="embedder", task="embedding").checkpoint
        # Vectors of another model must never be compared with this one's.
        fingerprint = hashlib.sha256(f"{fingerprint} {checkpoint}".encode()).hexdigest()[:_DIGITS]
        built = built_model(llm, settings.judge, parameter="judge", task="judge")
        embeds = partial(embed, pb_utils, settings.embedder, checkpoint)
        same = partial(judge, pb_utils, settings.judge, built.checkpoint)
        own = settings.beside_config(settings.cache_calibration)
        calibration = calibration_of(built, own, settings.cache_max_false_hit)
        if settings.cache_audit:
            audits = Auditor(settings.cache_audit, metrics, llm.name, embed=embeds, same=same)
    cache = AnswerCache(options, embeds, counts, same=same, calibration=calibration, audits=audits)
    return cache, fingerprint
