from pathlib import Path
from types import SimpleNamespace

import pytest

from trimodal.cache.answers import AnswerCache
from trimodal.cache.protocol import NoAnswers
from trimodal.llm import answer_cache
from trimodal.llm.answer_cache import model_fingerprint, open_answers
from trimodal.llm.settings import LlmSettings
from trimodal.metrics import MemoryMetrics


def settings(cache: str) -> LlmSettings:
    return LlmSettings.model_validate({"engine": "fake", "cache": cache, "cache_store": "memory:"})


def test_off_opens_nothing_and_coalesce_stores_nothing(tmp_path: Path) -> None:
    assert open_answers(settings("off"), None, MemoryMetrics(), tmp_path)[0] is None
    assert isinstance(open_answers(settings("coalesce"), None, MemoryMetrics(), tmp_path)[0], NoAnswers)


def test_exact_needs_no_embedding_model(tmp_path: Path) -> None:
    answers, fingerprint = open_answers(settings("exact"), None, MemoryMetrics(), tmp_path)
    assert isinstance(answers, AnswerCache)
    assert fingerprint == model_fingerprint(settings("exact"))
    answers.close()


def test_another_embedding_model_finds_nothing_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prints = []
    for checkpoint in ("a" * 64, "b" * 64):
        monkeypatch.setattr(answer_cache, "embedder_checkpoint", lambda llm, model, found=checkpoint: found)
        monkeypatch.setattr(answer_cache, "AnswerCache", lambda *parts: SimpleNamespace())
        prints.append(open_answers(settings("semantic"), None, MemoryMetrics(), tmp_path)[1])
    assert len({*prints, model_fingerprint(settings("semantic"))}) == 3
    assert {len(one) for one in prints} == {16}
