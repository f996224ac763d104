"""One server with every model on its fake engine, and the known-good request of each.

The answers of the fakes can be worked out beforehand, so "still right" means equal.
"""

from __future__ import annotations

import re
import urllib.request
from pathlib import Path

import numpy as np

from tests.e2e.bad_input.wire import Tensor, Wire, message, texts
from tests.e2e.fakes import MODELS as MODELS
from tests.e2e.fakes import png, vision
from tests.e2e.speech.streams import fresh, speak, spelled
from trimodal.client.transports.tensors import decode
from trimodal.embedding.engines.fake import FakeEmbedder
from trimodal.llm.tokenizer import ByteTokenizer

CLASSES = 7
AUDIO, WORDS = speak(["what", "is", "a", "lambda"])
SAID = "".join(spelled(WORDS))
SCRIPT = "abcdefghijklmnopqrstuvwxyz"
LLM = {
    "engine": "fake",
    "fake_answer": SCRIPT,
    "fake_step_ms": "1",
    "fake_prefill_us": "0",
    "default_max_tokens": "32",
    "num_kv_blocks": "32",
    "max_prompt_tokens": "500",
}
COUNTS = (
    "trimodal_llm_active_requests",
    "trimodal_llm_queued_requests",
    "trimodal_llm_kv_usage_ratio",
    "trimodal_speech_active_streams",
    "trimodal_speech_active_requests",
    "trimodal_speech_windows_in_flight",
    "nv_inference_pending_request_count",
)


def changes(directory: Path) -> dict[str, dict[str, str]]:
    """The models on their fakes; vision's artefact (no model in it) is made in `directory`."""
    return {
        "llm": LLM,
        "embedding": {"engine": "fake"},
        "speech": {"vad": "energy"},
        "speech_recognize": {"engine": "fake", "fake_batch_ms": "1", "fake_window_ms": "0"},
        **vision(directory, CLASSES),
    }


def good_llm(wire: Wire) -> None:
    answer, responses = wire.stream(message("llm", [texts("text_input", "hello")]))
    assert answer.served, answer
    outputs = [decode(response.infer_response) for response in responses]
    made = b"".join(part["text_output"][0] for part in outputs if part).decode()
    prompt = ByteTokenizer().render([{"role": "user", "content": "hello"}]).encode()
    start = sum(prompt) % len(SCRIPT)
    assert made == (SCRIPT * 3)[start : start + 32]


def good_vision(wire: Wire) -> None:
    images = texts("image", png(100), png(6), shape=[2, 1])
    answer, response = wire.unary(message("vision", [images]))
    assert answer.served, answer
    outputs = decode(response)
    assert list(outputs["labels"][:, 0]) == [f"class {100 % CLASSES}".encode(), b"class 6"]
    best = np.exp(10) / (np.exp(10) + CLASSES - 1)
    np.testing.assert_allclose(outputs["scores"][:, 0], best, rtol=1e-5)


def good_embedding(wire: Wire) -> None:
    answer, response = wire.unary(message("embedding", [texts("text_input", "hello", shape=[1, 1])]))
    assert answer.served, answer
    np.testing.assert_array_equal(decode(response)["embedding"], FakeEmbedder().embed(["hello"]).vectors)


def good_speech(wire: Wire) -> None:
    parameters = {"sequence_id": fresh(), "sequence_start": True, "sequence_end": True}
    answer, response = wire.unary(message("speech", [_floats("audio")], parameters=parameters))
    assert answer.served, answer
    assert decode(response)["committed"].item() == SAID.encode()


def good_recognize(wire: Wire) -> None:
    answer, response = wire.unary(message("speech_recognize", [_floats("window")]))
    assert answer.served, answer
    assert decode(response)["text"].item() == SAID.encode()


def _floats(name: str) -> Tensor:
    return Tensor(name, "FP32", [1, len(AUDIO)], AUDIO.tobytes())


GOOD = {
    "llm": good_llm,
    "vision": good_vision,
    "embedding": good_embedding,
    "speech": good_speech,
    "speech_recognize": good_recognize,
}


def counts(metrics_url: str) -> dict[str, float]:
    """What must be 0 on an idle server, by series."""
    with urllib.request.urlopen(f"http://{metrics_url}/metrics", timeout=20) as page:
        lines = page.read().decode().splitlines()
    found = (re.fullmatch(r"([a-z_]+)(\{.*\}) (\S+)", line) for line in lines)
    return {match[1] + match[2]: float(match[3]) for match in found if match and match[1] in COUNTS}
