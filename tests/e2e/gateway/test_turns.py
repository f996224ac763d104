"""The end of a turn on real models: a pause is no end, and the answer begins before the turn is over."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable

import httpx
import numpy as np
import pytest
import soundfile
from websockets.sync.client import connect

from tests.e2e.conftest import BOUND, MODEL_REPOSITORY
from tests.e2e.gateway.test_openai import gateway
from tests.e2e.metrics import total
from trimodal.gateway.realtime.openai import buffer
from trimodal.paths import data_directory
from trimodal.server.process import TritonServer

BUILT = {
    "turn": "onnx-int8",
    "llm": "openvino-int8",
    "speech_recognize": "ctranslate2-tiny.en",
}
MISSING = [name for name, built in BUILT.items() if not (MODEL_REPOSITORY / name / "1" / built).is_dir()]
# "… | your call will be answered by the | next available representative.": before it two sentences end.
TALK, BEGIN_S, CUT_S = "telephone-2-busy.flac", 4.05, 5.48
DETECTION = {"type": "semantic_vad", "eagerness": "medium"}
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"not built: {', '.join(MISSING)}"),
]


@pytest.mark.timeout(180)
def test_a_pause_is_no_end_and_the_answer_begins_before_the_turn_is_over(
    serve: Callable[..., TritonServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buffer, "JUDGED_WITHIN_S", BOUND)  # a busy machine is slower than any caller waits
    monkeypatch.setattr(buffer, "LATE_S", BOUND)  # nor is a client that sends late one that is muted
    samples, rate = soundfile.read(data_directory() / "samples" / "speech" / TALK, dtype="float32")
    begin, cut, pause = round(BEGIN_S * rate), round(CUT_S * rate), np.zeros(round(0.7 * rate), np.float32)
    said = np.concatenate([pause, samples[begin:cut], pause, samples[cut:], np.zeros(6 * rate, np.float32)])
    server = serve(
        ("llm", "speech", "speech_recognize", "turn"),
        {"speech_recognize": {"artefact": BUILT["speech_recognize"]}},
    )
    with (
        gateway(server.grpc_url, early_waste=1.0) as url,
        connect(f"{url.replace('http', 'ws')}/v1/realtime?model=llm") as socket,
    ):
        audio = {"format": {"type": "audio/pcm", "rate": rate}, "turn_detection": DETECTION}
        session = {"type": "realtime", "max_output_tokens": 16, "audio": {"input": audio}}
        socket.send(json.dumps({"type": "session.update", "session": session}))
        began, kinds, done = time.monotonic(), [], None
        for at in range(0, len(said), rate // 20):
            time.sleep(max(0.0, began + at / rate - time.monotonic()))
            pcm = (said[at : at + rate // 20] * 32_767).astype("<i2").tobytes()
            chunk = {"type": "input_audio_buffer.append", "audio": base64.b64encode(pcm).decode()}
            socket.send(json.dumps(chunk))
        while done is None:
            event = json.loads(socket.recv(BOUND))
            kinds.append(event["type"])
            assert event["type"] != "error", event
            if event["type"] == "response.done":
                done = event["response"]
        metrics = httpx.get(f"{url}/metrics").text
    assert kinds.count("input_audio_buffer.speech_stopped") == 1, "a pause of 0.7 s is no end"
    assert done["status"] in ("completed", "incomplete")
    assert done["output"][0]["content"][0]["text"].strip()
    assert total(server, "trimodal_turn_recordings_total") >= 2
    assert "trimodal_gateway_early_answers_total{" in metrics, "one was begun"
