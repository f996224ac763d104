"""The page's spoken conversation in Chromium, by human voices, on real models."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.starter.conversation import INTERRUPTED, LONG, VOICES, converse, find_chromium
from tests.e2e.gateway.test_openai import gateway
from tests.e2e.gateway.test_turns import BUILT, MISSING
from trimodal.server.process import TritonServer

CHROMIUM = find_chromium()
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"not built: {', '.join(MISSING)}"),
    pytest.mark.skipif(
        CHROMIUM is None, reason="there is no Chromium on this machine: apt-get install chromium"
    ),
]


@pytest.mark.timeout(400)
def test_four_turns_are_answered_and_the_answer_that_was_interrupted_is_marked(
    serve: Callable[..., TritonServer], tmp_path: Path
) -> None:
    changes = {"speech_recognize": {"artefact": BUILT["speech_recognize"]}, **LONG}
    server = serve(("llm", "speech", "speech_recognize", "turn"), changes)
    with gateway(server.grpc_url) as url:
        turns = asyncio.run(converse(url, CHROMIUM or "", tmp_path / "page.png"))
    assert len(turns) == len(VOICES)
    assert all(turn.question for turn in turns)
    assert turns[INTERRUPTED].state == "interrupted"  # on a busy machine others may be, too
    assert all(turn.answer for turn in turns)
    assert (tmp_path / "page.png").stat().st_size
