"""What the table of counts tells of looks, and a short run of some kinds on fake engines."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.soak.__main__ import main
from tests.soak.counts import FIELDS, KINDS, Counted, Look, asking, table
from tests.soak.run import Server


def look(sent: int, memory: float, threads: int, files: int = 0) -> Look:
    held = {"memory": memory, "private": 10.0, "descriptors": 5.0, "threads": float(threads)}
    return Look(sent, {"llm": held, "vision": dict.fromkeys(FIELDS, 1.0)}, 12.0, 9, files, 7.0)


def test_what_grew_has_a_row_and_what_a_request_of_the_last_step_adds() -> None:
    counted = Counted("chat", [look(0, 50, 7), look(500, 80, 9), look(1000, 90, 9, files=3)])
    shown = table([counted])
    assert shown.columns == ("kind", "process", "", "0", "500", "1,000", "a request")
    assert shown.rows == [
        ["chat", "llm", "memory", "50", "80", "90", "+20.5"],
        ["chat", "llm", "threads", "7", "9", "9", ""],
        ["chat", "", "temporary files", "0", "0", "3", ""],
    ]


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.parametrize(
    "kinds", [("streamed", "recording", "reload"), ("left live", "left socket", "bad request")]
)
def test_kinds_are_asked_and_nothing_ends_as_it_should_not(tmp_path: Path, kinds: tuple[str, ...]) -> None:
    told = tmp_path / "counts.json"
    assert main(["--fake", "--counts", "4,8", "--only", ",".join(kinds), "--json", str(told)]) == 0
    found = json.loads(told.read_text())
    assert [one["kind"] for one in found] == list(kinds)
    for one in found:
        assert [each["sent"] for each in one["looks"]] == [0, 4, 8]
        assert {"launcher", "tritonserver", "llm", "llm engine"} <= one["looks"][-1]["held"].keys()


def test_each_kind_has_what_sends_it() -> None:
    async def names() -> set[str]:
        async with asking(
            Server(0, "127.0.0.1:1", "", "", tmp, tmp), "http://127.0.0.1:1", fake=True
        ) as kinds:
            return {*kinds}

    tmp = Path()
    assert asyncio.run(names()) == {*KINDS}
