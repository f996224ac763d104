"""The glue of the speech model on a fake stub: tensors, refusals, and the call into the recogniser."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonclient.grpc import model_config_pb2
from tritonclient.utils import triton_to_np_dtype

from tests.doubles import pb_utils
from tests.doubles.pb_utils import InferenceRequest, ResponseSender, TritonError
from trimodal.speech.values import FIGURES

MODEL = Path(__file__).parents[2] / "model_repository" / "speech"
CONFIG, PARAMETERS = pb_utils.config_of(MODEL)
BOUND = 20.0
NOISE = np.random.default_rng(1).uniform(-0.3, 0.3, (1, 16_000)).astype(np.float32)
SILENCE = np.zeros((1, 16_000), np.float32)


class Recogniser:
    """Hears one word in every window. It may be held, or answer with an error."""

    def __init__(self) -> None:
        self.asked: list[Mapping[str, Any]] = []
        self.error: TritonError | None = None
        self.go = threading.Event()
        self.go.set()

    def __call__(self, inputs: Mapping[str, Any]) -> Any:
        self.asked.append(inputs)
        assert self.go.wait(BOUND)
        words = {
            "words": np.array([[" naïve".encode()]], object),
            "word_starts": np.array([[0.25]], np.float32),
            "word_ends": np.array([[0.75]], np.float32),
            "word_probabilities": np.array([[0.5]], np.float32),
            "word_tokens": np.array([[b"7 8"]], object),
            "word_count": np.array([[1]], np.int32),
        }
        texts = {
            name: np.array([[text]], object)
            for name, text in (
                ("language", b"en"),
                ("language_probabilities", b"{}"),
                ("doubted", b""),
                ("rejected", b""),
            )  # fmt: skip
        }
        return self.error or words | texts | {name: np.zeros((1, 1), np.float32) for name in FIGURES}


class SpeechGlue:
    """The model.py, initialized as its config.pbtxt says but for `parameters`."""

    def __init__(self, module: Any, **parameters: str) -> None:
        self.recogniser = pb_utils.MODELS["speech_recognize"] = Recogniser()
        config = PARAMETERS | {"vad": "energy", "policy": "vad"} | parameters
        self.model = pb_utils.initialized(module, MODEL, config)

    def ask(self, *requests: InferenceRequest) -> list[ResponseSender]:
        """All in one call, as Triton does with chunks of different streams."""
        assert self.model.execute(list(requests)) is None, "answers go through response senders"
        return [request.sender for request in requests]

    def tell(self, *requests: InferenceRequest) -> list[dict[str, Any]]:
        """One after the other, as Triton does with chunks of one stream; all must be taken."""
        return [answer(self.ask(request)[0]) for request in requests]


@pytest.fixture
def speech(module: Any) -> Iterator[SpeechGlue]:
    speech = SpeechGlue(module)
    yield speech
    speech.recogniser.go.set()
    speech.model.finalize()


def chunk(
    audio: Any = NOISE, stream: int | str = 1, *, start: bool = False, end: bool = False, **parameters: Any
) -> InferenceRequest:
    name = "audio_int16" if getattr(audio, "dtype", None) == np.int16 else "audio"
    flags = start * pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START
    flags |= end * pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END
    inputs = {} if audio is None else {name: audio}
    return InferenceRequest(inputs, parameters, correlation_id=stream, flags=flags)


def answer(sender: ResponseSender) -> dict[str, Any]:
    assert sender.ended.wait(BOUND)
    assert sender.error() is None, sender.error()
    assert (len(sender.responses), sender.finals) == (1, 1)
    return dict(sender.responses[0].outputs)


def refusal(sender: ResponseSender) -> tuple[int, str]:
    assert sender.ended.wait(BOUND)
    assert (len(sender.responses), sender.finals) == (1, 1)
    error = sender.error()
    assert error is not None
    return error.code, error.message()


def test_an_answer_has_the_tensors_of_the_config(speech):
    (sender,) = speech.ask(chunk(start=True, end=True, trace=True))
    told = answer(sender)
    assert set(told) == {output.name for output in CONFIG.output}
    assert set(answer(speech.ask(chunk(start=True, end=True))[0])) == set(told) - {"trace"}, "not asked for"
    for output in CONFIG.output:
        kind = triton_to_np_dtype(model_config_pb2.DataType.Name(output.data_type).removeprefix("TYPE_"))
        array = told[output.name]
        assert array.dtype == (np.object_ if output.data_type == model_config_pb2.TYPE_STRING else kind)
        count = 0 if output.name == "corrections" else 1
        assert array.shape == (1, count), "one word, one of everything else"
    assert told["committed"].item() == told["words"].item() == " naïve".encode()
    assert told["final"].item() is True
    assert told["received_s"].item() == 1.0


def test_the_recogniser_is_called_with_the_options_of_the_start(speech):
    speech.tell(chunk(start=True, language="de", prompt="Zürich"), chunk(None, end=True))
    (asked,) = speech.recogniser.asked
    known = {"prefix", "draft"}
    assert set(asked) == {"window", "samples", "prompt", "language", "task", "temperatures"} | known
    assert (asked["prompt"].item(), asked["language"].item()) == ("Zürich".encode(), b"de")
    assert asked["task"].item() == b"transcribe"


def test_chunks_of_different_streams_in_one_call_are_kept_apart(speech):
    numbers = range(1, 9)
    begins = speech.ask(*(chunk(NOISE[:, : 2_000 * n], n, start=True) for n in numbers))
    assert [answer(sender)["received_s"].item() for sender in begins] == [n / 8 for n in numbers]
    ends = speech.ask(*(chunk(None, n, end=True) for n in numbers))
    assert [answer(sender)["received_s"].item() for sender in ends] == [n / 8 for n in numbers]


def test_a_refused_chunk_adds_nothing_and_its_neighbours_are_answered(speech):
    bad = NOISE.copy()
    bad[0, 7] = np.nan
    speech.tell(chunk(start=True))
    refused, stranger, neighbour = speech.ask(chunk(bad), chunk(stream=2), chunk(stream=3, start=True))
    told = "audio: sample 7 is nan; FP32 samples are finite, within [-1, 1]"
    assert refusal(refused) == (TritonError.INVALID_ARG, told)
    code, told = refusal(stranger)
    assert code == TritonError.INVALID_ARG
    assert "stream 2 is not open" in told
    assert answer(neighbour)["received_s"].item() == 1.0
    assert speech.tell(chunk(None, end=True))[0]["received_s"].item() == 1.0


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TritonError("language: 'xx'", TritonError.INVALID_ARG), TritonError.INVALID_ARG),
        (TritonError("full", TritonError.UNAVAILABLE), TritonError.UNAVAILABLE),
    ],
)
def test_an_error_of_the_recogniser_is_told_with_its_code(module, monkeypatch, error, code):
    monkeypatch.setattr("trimodal.speech.live.service.BACKOFF_S", 0.01)
    speech = SpeechGlue(module, recognizer_wait_s="0")
    speech.recogniser.error = error
    (sender,) = speech.ask(chunk(start=True, end=True))
    assert refusal(sender) == (code, f"speech_recognize: {error}")
    speech.model.finalize()


class Latin1(InferenceRequest):
    """A request whose parameters are not UTF-8: the stub decodes them."""

    def parameters(self) -> str:
        return b"Z\xfcrich".decode()


def test_what_cannot_be_a_stream_or_its_options_is_refused(speech):
    (text,) = speech.ask(chunk(stream="seven", start=True))
    assert refusal(text) == (
        TritonError.INVALID_ARG,
        "sequence_id: 'seven' is a text; a stream's id is a number, 1 to 2^64 - 1",
    )
    inputs = {name: tensor.as_numpy() for name, tensor in chunk(start=True).inputs.items()}
    (latin1,) = speech.ask(Latin1(inputs, correlation_id=1))
    assert refusal(latin1) == (TritonError.INVALID_ARG, "parameters: a text among them is not UTF-8")
    assert refusal(speech.ask(chunk(end=True))[0])[1].startswith("stream 1 is not open")


class Surprise(InferenceRequest):
    """A request whose parameters cannot be read."""

    def parameters(self) -> str:
        raise OSError("/secret/path")


def test_an_exception_anywhere_in_execute_is_a_final_error(speech, capsys):
    inputs = {name: tensor.as_numpy() for name, tensor in chunk(start=True).inputs.items()}
    told = (TritonError.INTERNAL, "the model failed on this request; the server's log says why")
    (sender,) = speech.ask(Surprise(inputs))
    assert refusal(sender) == told
    (sender,) = speech.ask(chunk(np.full((1, 400), "x", object), start=True))
    assert refusal(sender) == told
    assert "/secret/path" in capsys.readouterr().err
    (sender,) = speech.ask(chunk(start=True, end=True))
    answer(sender)


def test_finalize_answers_what_is_owed_and_carries_the_metrics_over(module):
    speech = SpeechGlue(module)
    speech.recogniser.go.clear()
    speech.tell(chunk(start=True), chunk(stream=2, start=True))
    (end,) = speech.ask(chunk(None, end=True))
    closing = threading.Thread(target=speech.model.finalize)
    closing.start()
    assert refusal(end) == (
        TritonError.UNAVAILABLE,
        "speech is being unloaded; start the stream again later",
    )
    speech.recogniser.go.set()
    closing.join(BOUND)
    assert not closing.is_alive()
    families = {family.name: family for family in pb_utils.MetricFamily.families}
    assert families["trimodal_speech_active_streams"].metrics[0].values("set")[-1] == 0
    for gauge in ("active_requests", "windows_in_flight"):
        assert sum(families[f"trimodal_speech_{gauge}"].metrics[0].values("increment")) == 0
    assert not [t for t in threading.enumerate() if t.name.startswith(("window-", "listener", "sweeper"))]
