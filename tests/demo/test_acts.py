"""The demo's acts in front of a fake Triton: what they show, and by which rule they count as right."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from tests.gateway.conftest import Serve, fake_triton
from trimodal.client.transports.base import Request, Tensors
from trimodal.client.transports.fake import Streaming, labelled, llm_outputs
from trimodal.client.transports.tensors import strings
from trimodal.demo import acts
from trimodal.paths import data_directory

SAMPLES = data_directory() / "samples"


def console() -> Console:
    return Console(file=io.StringIO(), width=150)


def shown(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def answers(known: dict[str, str], *, cached: int = 32, layers: tuple[str, ...] = ()) -> Streaming:
    """An llm that says what is known of the last question; the n-th comes from this layer of the cache."""
    asked = 0

    async def llm(request: Request) -> AsyncIterator[Tensors]:
        nonlocal asked
        inputs = request.inputs
        if "messages" in inputs:
            text = json.loads(inputs["messages"][0])[-1]["content"]
        else:
            text = bytes(inputs["text_input"][0]).decode()
        outputs = llm_outputs(known.get(text, "I do not know."), "stop", completion_tokens=4)
        outputs["cached_tokens"][:] = cached
        if layer := layers[asked] if asked < len(layers) else "":
            outputs |= {"cache": strings([layer.encode()]), "trimmed": strings([b""])}
            figures = {"similarity": 0.97, "queue_ms": 0.0, "predicted_ttft_ms": -1.0}
            outputs |= {name: np.array([value], np.float32) for name, value in figures.items()}
        asked += 1
        yield outputs

    return llm


CAPITALS = {acts.TURNS[0][0]: "It is Tokyo.", acts.TURNS[1][0]: "It is Berlin."}


@pytest.mark.parametrize(
    ("known", "cached", "right"),
    [
        (CAPITALS, 32, True),
        (CAPITALS, 0, False),
        ({**CAPITALS, acts.TURNS[1][0]: "It is Bonn."}, 32, False),
    ],
)
async def test_a_chat_is_right_with_both_capitals_and_cached_tokens(
    serve: Serve, known: dict[str, str], cached: int, right: bool
) -> None:
    out = console()
    async with serve(fake_triton(llm=answers(known, cached=cached))).openai_async() as api:
        assert await acts.chat(api, out) is right
    assert f"{cached} of them cached" in shown(out)
    assert known[acts.TURNS[1][0]] in shown(out)


@pytest.mark.parametrize(("wrong", "right"), [(3, True), (4, False)])
async def test_a_burst_may_have_three_wrong_answers(serve: Serve, wrong: int, right: bool) -> None:
    known = {text: f"I say {words[0]}." for text, words in acts.BURST[wrong:]}
    out = console()
    async with serve(fake_triton(llm=answers(known))).openai_async() as api:
        assert await acts.burst(api, out) is right
    assert f"{len(acts.BURST) - wrong} of {len(acts.BURST)}" in shown(out)


@pytest.mark.parametrize(
    ("layers", "judged", "right"),
    [
        (("", "exact", "semantic", ""), True, True),
        (("", "exact", "", ""), False, True),
        (("", "exact", "", ""), True, False),
        (("", "", "semantic", ""), True, False),
        (("", "exact", "semantic", "semantic"), True, False),
    ],
)
async def test_answers_come_from_where_they_are_to_come_from(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, layers: tuple[str, ...], judged: bool, right: bool
) -> None:
    monkeypatch.setattr(acts, "_STORING_S", 0)
    known = {text: f"It is {word}." for text, _, word in acts.CACHED}
    async with serve(fake_triton(llm=answers(known, layers=layers))).openai_async() as api:
        assert await acts.cache(api, console(), judged=judged) is right


@pytest.mark.parametrize(("wrong", "right"), [(0, True), (3, True), (4, False)])
async def test_four_photos_in_five_are_named(serve: Serve, tmp_path: Path, wrong: int, right: bool) -> None:
    """Of 15 all show a panda, but for the wrong ones; one that no class is named after is not asked about."""
    kinds = [["bear"]] * wrong + [["giant panda"]] * (15 - wrong) + [[]]
    listed = [{"file": f"{number}.jpg", "shows": words} for number, words in enumerate(kinds)]
    (tmp_path / "samples.json").write_text(json.dumps(listed))
    for one in listed:
        (tmp_path / str(one["file"])).write_bytes(b"a picture")
    out = console()
    async with serve(fake_triton(vision=labelled(("giant panda", 0.9), ("fox", 0.1)))).openai_async() as api:
        assert await acts.photos(api, out, tmp_path) is right
    assert f"{15 - wrong} of 15" in shown(out)


def test_each_sample_photo_is_listed_once_with_its_author() -> None:
    listed = [one["file"] for one in json.loads((SAMPLES / "photos" / "samples.json").read_text())]
    there = sorted(file.name for file in (SAMPLES / "photos").glob("*.jpg"))
    assert sorted(listed) == there
    table = (SAMPLES / "README.md").read_text()
    assert [name for name in there if f"| {name} | " not in table] == []
    assert sum(file.stat().st_size for file in SAMPLES.rglob("*")) < 4_000_000
