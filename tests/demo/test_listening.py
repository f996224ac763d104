"""The demo's live act, through a gateway in front of a fake Triton."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
import soundfile
from openai import AsyncOpenAI
from rich.console import Console
from websockets.asyncio.server import ServerConnection
from websockets.asyncio.server import serve as websockets_serve

from tests.gateway.conftest import Serve, fake_triton
from trimodal.client.transports.fake import FakeSpeech
from trimodal.demo import listening
from trimodal.demo.listening import Talk, captions, listen
from trimodal.errors import TrimodalError, Unavailable

# Heard a second late: "what" is final when "is" is over, and the end comes 0.8 s later.
WORDS = (("what", 0.05, 0.1), ("is", 1.0, 1.1), ("this", 1.6, 1.8))
LATE_S = 1.0


def talk() -> Talk:
    return Talk(np.full(30_400, 0.5, np.float32), "what is this")


async def test_words_come_with_their_lag_and_what_may_still_change(serve: Serve) -> None:
    shown, said = io.StringIO(), talk()
    running = serve(fake_triton(speech=FakeSpeech(*WORDS, delay_s=LATE_S)))
    async with running.openai_async() as api:
        await listen(api, said, Console(file=shown, width=100))
    assert said.heard == said.text
    lines = shown.getvalue().splitlines()
    assert re.fullmatch(r"    \d\.\d s, lag \d\.\d\d s  what  \(is( this)? …\)", lines[0])
    assert re.fullmatch(r"    \d\.\d s, lag \d\.\d\d s  is this", lines[1])
    assert len(said.lags) == 3
    assert LATE_S <= said.lags[0] < LATE_S + 5.0
    assert said.lags[1] - said.lags[2] == pytest.approx(0.7), "both came at once"
    samples = [request.inputs["audio"] for request in running.triton.requests if request.inputs]
    assert np.concatenate([one.ravel() for one in samples]) == pytest.approx(said.samples, abs=1e-4)


def written(folder: Path, monkeypatch: pytest.MonkeyPatch, *texts: str) -> Path:
    """A folder of recordings, of two speakers in turn."""
    monkeypatch.setattr(listening, "PAUSE_S", 0.2)
    monkeypatch.setattr(listening, "SPEAKERS", (slice(0, 2), slice(2, 4)))
    for number in range(len(texts)):
        soundfile.write(folder / f"{number}.wav", np.full(11_200, 0.5, np.float32), 16_000)
    listed = [{"file": f"{number}.wav", "text": text} for number, text in enumerate(texts)]
    (folder / "samples.json").write_text(json.dumps(listed))
    return folder


@pytest.mark.parametrize(("second", "right"), [("is this", True), ("was that", False)])
async def test_speakers_speak_at_once_and_one_of_them_is_shown(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, second: str, right: bool
) -> None:
    written(tmp_path, monkeypatch, "what", "is this", "what", second)
    shown, running = io.StringIO(), serve(fake_triton(speech=FakeSpeech(*WORDS)))
    async with running.openai_async() as api:
        assert await captions(api, Console(file=shown, width=100), tmp_path) is right
    assert len(re.findall(r" s  what\b", shown.getvalue())) == 1
    assert re.search(rf"6 +{0 if right else 33}.[03]%", shown.getvalue())
    streams = {request.parameters["sequence_id"] for request in running.triton.requests if request.inputs}
    assert len(streams) == len(listening.SPEAKERS)


async def test_where_no_word_is_heard_the_act_is_wrong(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = written(tmp_path, monkeypatch, "what", "is this", "what", "is this")
    shown, running = io.StringIO(), serve(fake_triton(speech=FakeSpeech()))
    async with running.openai_async() as api:
        assert not await captions(api, Console(file=shown, width=100), folder)
    assert re.search(r"6 +100.0%", shown.getvalue())


async def test_a_refusal_is_told(serve: Serve) -> None:
    def busy(request: object) -> object:
        raise Unavailable("no room for another stream")

    async with serve(fake_triton(speech=busy)).openai_async() as api:
        with pytest.raises(TrimodalError, match="no room"):
            await listen(api, talk())


async def test_a_connection_that_ends_early_is_told() -> None:
    async def leave(socket: ServerConnection) -> None:
        async for message in socket:
            if "input_audio_buffer.commit" in message:
                return

    async with (
        websockets_serve(leave, "127.0.0.1", 0) as server,
        AsyncOpenAI(
            base_url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", api_key="none"
        ) as api,
    ):
        with pytest.raises(TrimodalError, match="closed the connection"):
            await listen(api, talk())


async def test_nobody_there() -> None:
    async with AsyncOpenAI(base_url="http://127.0.0.1:9/v1", api_key="none") as api:
        with pytest.raises(OSError, match="Connect"):
            await listen(api, talk())
