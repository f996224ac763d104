import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.cache.doubles import calibration
from trimodal.cache.answers import AnswerCache, CacheOptions
from trimodal.cache.stores.base import default_store
from trimodal.errors import OperatorError
from trimodal.llm import answer_cache
from trimodal.llm.answer_cache import (
    cache_options,
    engine_fingerprint,
    model_fingerprint,
    open_answers,
)
from trimodal.llm.settings import LlmSettings
from trimodal.manifest import MANIFEST
from trimodal.metrics import MemoryMetrics
from trimodal.repository import FAKE, Built

FAKE_MODEL = """name: "{}" backend: "python"
parameters {{ key: "engine" value {{ string_value: "fake" }} }}
parameters {{ key: "artefact" value {{ string_value: "none" }} }}
"""


def settings(cache: str) -> LlmSettings:
    return LlmSettings.model_validate({"engine": "fake", "cache": cache})


@pytest.fixture(autouse=True)
def _own_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRIMODAL_CACHE", str(tmp_path / "cache"))


def test_off_opens_nothing_and_coalesce_stores_nothing(tmp_path: Path) -> None:
    for mode in ("off", "coalesce"):
        assert open_answers(settings(mode), None, MemoryMetrics(), tmp_path)[0] is None


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
        built = {"embedding": Built(checkpoint), "judge": Built(FAKE)}
        monkeypatch.setattr(answer_cache, "built_model", lambda *_, task, built=built, **__: built[task])
        monkeypatch.setattr(answer_cache, "AnswerCache", lambda *parts, **more: SimpleNamespace())
        prints.append(open_answers(settings("semantic"), None, MemoryMetrics(), tmp_path)[1])
    assert len({*prints, model_fingerprint(settings("semantic"))}) == 3
    assert {len(one) for one in prints} == {16}


def test_the_semantic_layer_is_opened_with_the_calibration_that_is_named(tmp_path: Path) -> None:
    for name in ("embedding", "judge"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.pbtxt").write_text(FAKE_MODEL.format(name))
    named = settings("semantic").model_copy(
        update={
            "cache_calibration": "own.json",
            "version_directory": tmp_path / "llm" / "1",
        }
    )
    (tmp_path / "llm" / "1").mkdir(parents=True)
    llm = tmp_path / "llm"
    with pytest.raises(OperatorError, match=r"llm/own.json: no calibration of the cache"):
        open_answers(named, None, MemoryMetrics(), llm)
    (llm / "own.json").write_text(calibration(checkpoint_sha256="another").model_dump_json())
    with pytest.raises(OperatorError, match="the judge's checkpoint another, served is fake"):
        open_answers(named, None, MemoryMetrics(), llm)
    (llm / "own.json").write_text(calibration().model_dump_json())
    answers, fingerprint = open_answers(named, None, MemoryMetrics(), llm)
    assert isinstance(answers, AnswerCache)
    assert answers.embeds
    assert answers.audits
    assert answers.audits.share == 0.02
    assert fingerprint != model_fingerprint(named)
    answers.close()
    quiet, _ = open_answers(named.model_copy(update={"cache_audit": 0.0}), None, MemoryMetrics(), llm)
    assert isinstance(quiet, AnswerCache)
    assert quiet.audits is None
    quiet.close()


def test_settings_become_seconds_and_values():
    settings = LlmSettings(
        cache="semantic",
        cache_store="redis://127.0.0.1:6379/0",
        cache_budget_ms=15,
        cache_embedding_budget_ms=40,
        cache_judge_budget_ms=30,
        cache_ttl_s="faq=60 live=5",
        cache_max_entries=7,
        cache_max_answer_bytes=8,
        cache_max_false_hit=0.02,
    )
    assert cache_options(settings, "llm") == CacheOptions(
        "redis://127.0.0.1:6379/0",
        0.015,
        0.04,
        0.03,
        {"faq": 60.0, "live": 5.0},
        7,
        8,
        0.02,
    )


def test_without_a_store_answers_lie_in_the_users_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("TRIMODAL_CACHE", str(tmp_path))
    options = cache_options(LlmSettings(cache="exact"), "chat")
    assert options.store == str(tmp_path / "answers" / "chat.sqlite") == str(default_store("chat"))
    assert not (tmp_path / "answers").exists()


class TestFingerprint:
    def test_changes_with_the_manifest(self):
        assert engine_fingerprint(b"a", LlmSettings()) != engine_fingerprint(b"b", LlmSettings())

    @pytest.mark.parametrize(
        "change",
        [
            {"numerics": "reproducible"},
            {"kv_cache_precision": "f16"},
            {"apply_chat_template": False},
            {"speculation": "prompt_lookup"},
            {"engine": "fake"},
        ],
    )
    def test_changes_with_what_changes_answers(self, change):
        assert engine_fingerprint(b"", LlmSettings(**change)) != engine_fingerprint(b"", LlmSettings())

    @pytest.mark.parametrize("change", [{"quantization": "fp8"}, {"engine_args": "--dtype float16"}])
    def test_changes_with_how_vllm_computes(self, change):
        plain = LlmSettings(engine="vllm")
        assert engine_fingerprint(b"", LlmSettings(engine="vllm", **change)) != engine_fingerprint(b"", plain)

    @pytest.mark.parametrize("change", [{"max_queue": 1}, {"num_kv_blocks": 64}, {"cancel_poll_ms": 10}])
    def test_stays_with_what_does_not(self, change):
        assert engine_fingerprint(b"", LlmSettings(**change)) == engine_fingerprint(b"", LlmSettings())

    def test_of_a_model_is_that_of_its_manifest(self, tmp_path):
        settings = LlmSettings(version_directory=tmp_path, artefact="built")
        without = model_fingerprint(settings)
        (tmp_path / "built").mkdir()
        (tmp_path / "built" / MANIFEST).write_bytes(b"{}")
        assert model_fingerprint(settings) == engine_fingerprint(b"{}", settings) != without

    def test_without_a_manifest_is_that_of_its_name_and_not_of_a_descriptor(self, tmp_path):
        """Of a name that libraries cannot open: two models could have had one, by turns."""
        version = tmp_path / os.fsdecode(b"m\xfcnchen")
        (version / "built").mkdir(parents=True)
        settings = LlmSettings(version_directory=version, artefact="built")
        assert settings.artefact_directory.parent == Path("/proc/self/fd")
        assert model_fingerprint(settings) == engine_fingerprint(os.fsencode(version / "built"), settings)

    def test_of_a_fake_engine_has_no_manifest(self, tmp_path):
        (tmp_path / MANIFEST).write_bytes(b"{}")
        settings = LlmSettings(version_directory=tmp_path, artefact=".", engine="fake")
        assert model_fingerprint(settings) == engine_fingerprint(b"", settings)
