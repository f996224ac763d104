"""Where responses are kept: by tenant, bounded in count, bytes and age."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from trimodal.cache.stores.base import StoreError
from trimodal.cache.values import CacheScope, Entry
from trimodal.client.values import Prediction
from trimodal.errors import SettingsError
from trimodal.gateway.errors import ApiError
from trimodal.gateway.openai.conversation import DecodedMessage
from trimodal.gateway.openai.responses import store
from trimodal.gateway.openai.responses.store import KeptResponse, MemoryAnswers, ResponseStore

CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def kept(number: int = 0, text: str = "hi") -> KeptResponse:
    messages = [
        DecodedMessage("user", text, heard="what", labels=(Prediction("seven", 0.9),)),
        DecodedMessage("assistant", "", calls=[CALL]),
        DecodedMessage("tool", "naïve 日本 \ud800", answers="call_1"),
    ]
    return KeptResponse({"id": f"resp_{number:032x}", "output": []}, messages, 4)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"messages": [{"role": "user", "labels": [], "new": 1}]}'])
async def test_what_another_version_kept_is_not_there(text: str) -> None:
    responses = ResponseStore("memory")
    id = kept().body["id"]
    responses._answers.put(scope(), id, entry(text, math.inf), None)
    with pytest.raises(ApiError, match="there is no response"):
        await responses.get("", id)


def scope(tenant: str = "") -> CacheScope:
    return CacheScope("responses", tenant, "responses", "")


def entry(answer: str, expires_at: float) -> Entry:
    return Entry("", answer, "stop", 0, 0, 0.0, expires_at)


@pytest.mark.parametrize("place", ["memory", "responses.sqlite"])
async def test_what_was_put_comes_back(place: str, tmp_path: Path) -> None:
    responses = ResponseStore(place if place == "memory" else str(tmp_path / place))
    assert await responses.put("a", kept())
    found = await responses.get("a", kept().body["id"])
    assert (found.body, found.left_out) == (kept().body, 4)
    assert [one.for_llm for one in found.messages[:2]] == [one.for_llm for one in kept().messages[:2]]
    assert (found.messages[0].heard, found.messages[0].labels) == ("what", (Prediction("seven", 0.9),))
    assert found.messages[2].text == "naïve 日本 ?", "a lone surrogate has no form in UTF-8"
    for tenant, id in (("b", kept().body["id"]), ("a", kept(1).body["id"]), ("a", "resp_1"), ("a", "")):
        with pytest.raises(ApiError, match="there is no response"):
            await responses.get(tenant, id)
    await responses.delete("a", kept().body["id"])
    with pytest.raises(ApiError) as told:
        await responses.get("a", kept().body["id"])
    assert told.value.status == 404
    responses.close()


def test_memory_is_bounded_in_count_bytes_and_age(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MAX_BYTES", 10)
    now = 0.0
    answers = MemoryAnswers(3, lambda: now)

    def held() -> str:
        return "".join(key for key in "abcdef" if answers.get(scope(), key))

    for key in "abc":
        answers.put(scope(), key, entry("1", 100.0), None)
    assert answers.get(scope(), "a")
    answers.put(scope(), "d", entry("1", 100.0), None)
    assert held() == "acd", "the one that was not asked for the longest went"
    answers.put(scope(), "e", entry("日本語", 100.0), None)
    assert held() == "de", "nine bytes leave room for one more"
    answers.put(scope(), "e", entry("1", 100.0), None)
    answers.put(scope("other"), "f", entry("1" * 8, 50.0), None)
    assert held() == "de", "what was replaced counts no more, and tenants are apart"
    assert answers.get(scope("other"), "f")
    now = 50.0
    assert answers.get(scope("other"), "f") is None


@pytest.mark.parametrize(("count", "size"), [(20, 1), (10, 9)], ids=["many", "large"])
def test_who_keeps_much_pushes_out_only_what_is_his(
    monkeypatch: pytest.MonkeyPatch, count: int, size: int
) -> None:
    monkeypatch.setattr(store, "MAX_BYTES", 40)
    answers = MemoryAnswers(6, lambda: 0.0)
    for key in "ab":
        answers.put(scope("small"), key, entry("1", 100.0), None)
    for number in range(count):
        answers.put(scope("large"), str(number), entry("1" * size, 100.0), None)
    assert all(answers.get(scope("small"), key) for key in "ab")
    assert [number for number in range(count) if answers.get(scope("large"), str(number))] == [
        *range(count - 4, count)
    ]


@pytest.mark.parametrize("place", ["memory", "responses.sqlite"])
async def test_as_many_as_the_operator_allows_are_kept_and_counted(place: str, tmp_path: Path) -> None:
    responses = ResponseStore(place if place == "memory" else str(tmp_path / place), most=2)
    assert responses.count is None
    for number in range(3):
        assert await responses.put("a", kept(number))
    assert responses.count == 2
    with pytest.raises(ApiError, match="there is no response"):
        await responses.get("a", kept(0).body["id"])
    await responses.delete("a", kept(2).body["id"])
    assert responses.count == 1
    responses.close()


async def test_what_is_kept_is_kept_where_nobody_can_count(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    responses = ResponseStore(str(tmp_path / "responses.sqlite"))

    def fails() -> None:
        raise StoreError("locked")

    monkeypatch.setattr(responses._answers, "count", fails)
    assert await responses.put("", kept())
    await responses.delete("", kept().body["id"])
    responses.close()


async def test_one_that_is_too_large_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MAX_RESPONSE_BYTES", 1_000)
    responses = ResponseStore("memory")
    assert not await responses.put("", kept(text="x" * 1_000))
    assert await responses.put("", kept())


async def test_a_store_that_does_not_answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An answer is given all the same, and says that it is not kept."""
    responses = ResponseStore(str(tmp_path / "responses.sqlite"))

    def fails(*_: Any) -> None:
        raise StoreError("locked")

    for name in ("get", "put"):
        monkeypatch.setattr(responses._answers, name, fails)
    assert not await responses.put("", kept())
    with pytest.raises(ApiError) as told:
        await responses.get("", kept().body["id"])
    assert (told.value.status, told.value.code) == (503, "store_unavailable")


@pytest.mark.parametrize("place", ["notes.txt", "ftp://host"])
def test_a_place_where_nothing_can_be_kept_is_refused(place: str) -> None:
    with pytest.raises(SettingsError, match="^responses "):
        ResponseStore(place)
