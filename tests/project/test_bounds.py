"""The table of bounds in docs/security.md says what the code holds requests to."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from trimodal.gateway import limits, quota, server
from trimodal.gateway.openai import conversation, generation, rows, schemas
from trimodal.gateway.openai.responses import store
from trimodal.gateway.realtime import protocol, session
from trimodal.gateway.settings import GatewaySettings
from trimodal.llm.settings import LlmSettings

PAGE = (Path(__file__).parents[2] / "docs" / "security.md").read_text(encoding="utf-8")
GATEWAY, LLM = GatewaySettings(), LlmSettings(engine="fake")
BOUNDS = {
    "bytes of a body": (GATEWAY.max_body_bytes, limits.HELD_BODIES),
    "bytes of a key's bodies": (limits.BURST_BYTES, limits.BODY_BYTES_PER_S),
    "seconds until a body": (GATEWAY.body_timeout_s, GATEWAY.header_timeout_s),
    "bytes of headers": (server.HEADER_BYTES,),
    "connections": (server._OTHER_FILES,),
    "requests of a connection": (server.PIPELINED,),
    "values in JSON": (limits.MAX_VALUES,),
    "prompts ×": (schemas.MAX_ANSWERS, generation._AT_ONCE),
    "texts of embeddings": (rows.MAX_TEXTS,),
    "pictures of": (rows.MAX_IMAGES,),
    "seconds of one recording": (conversation._MAX_AUDIO_S, quota.MAX_AUDIO_S),
    "seconds of recordings in chats": (quota.KEY_HELD_S, quota.HELD_S),
    "bytes of a prompt": (LLM.max_prompt_bytes, LLM.max_grammar_bytes),
    "requests that wait": (LLM.max_queue,),
    "events of a session": (session.LIVE_BYTES_PER_S, session.BURST_BYTES, session.BYTES_PER_S),
    "frames of a session": (protocol.SPARE_FRAMES, protocol.SPARE_FRAMES_PER_S),
    "kept responses": (GATEWAY.max_responses, store.MAX_RESPONSE_BYTES, store.MAX_BYTES),
}


@pytest.mark.parametrize("row", BOUNDS)
def test_a_bound_is_the_codes(row: str) -> None:
    (line,) = [one for one in PAGE.splitlines() if one.startswith(f"| {row}")]
    told = re.findall(r"\d[\d,]*", line.split("|")[2])
    assert [int(one.replace(",", "")) for one in told] == list(BOUNDS[row])
