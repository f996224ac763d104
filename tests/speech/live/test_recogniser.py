"""Calls of the recogniser model, on a fake stub."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from tests.doubles.pb_utils import Tensor, TritonError
from trimodal.audio.values import Word
from trimodal.errors import InternalError, InvalidArgument, RequestError, Unavailable
from trimodal.speech.live.recogniser import OUTPUTS, WORDS, recognise
from trimodal.speech.values import Recognition, Window

HEARD = {
    "words": np.array([[b" what", " naïve".encode()]], object),
    "word_starts": np.array([[0.25, 0.5]], np.float32),
    "word_ends": np.array([[0.5, 1.0]], np.float32),
    "word_probabilities": np.array([[0.5, 0.75]], np.float32),
    "word_count": np.array([[2]], np.int32),
    "language": np.array([[b"en"]], object),
    "no_speech_probability": np.array([[0.125]], np.float32),
    "average_log_probability": np.array([[-0.25]], np.float32),
    "compression_ratio": np.array([[1.5]], np.float32),
    "word_tokens": np.array([[b"437", b"1 2"]], object),
    "temperature": np.float32([[0.2]]),
    "language_probability": np.float32([[0.75]]),
    "language_probabilities": np.array([[b'{"en": 0.75, "de": 0.25}']], object),
    "doubted": np.array([[b""]], object),
    "rejected": np.array([[b""]], object),
}


class FakeStub:
    """Answers every call with `outputs` or `error`, and keeps what was asked."""

    Tensor, TritonError = Tensor, TritonError

    def __init__(self, outputs=None, error=None):
        self.asked = []
        self.response = SimpleNamespace(
            has_error=lambda: error is not None, error=lambda: error, outputs=outputs or {}
        )
        if error is not None:
            error_code = error.code
            self.response.error = lambda: SimpleNamespace(code=lambda: error_code, message=error.message)

    def InferenceRequest(self, **request):  # noqa: N802
        self.asked.append(request)
        return SimpleNamespace(exec=lambda: self.response)

    @staticmethod
    def get_output_tensor_by_name(response, name):
        return Tensor(name, response.outputs[name])


def test_a_window_goes_out_and_its_words_come_back():
    stub = FakeStub(HEARD)
    samples = np.arange(4, dtype=np.float32)
    (heard,) = recognise(stub, "other", [Window(samples, "en", "naïve", True, (), " é", " ü")])
    words = (Word(" what", 0.25, 0.5, 0.5, (437,)), Word(" naïve", 0.5, 1.0, 0.75, (1, 2)))
    chances = (("en", 0.75), ("de", 0.25))
    assert heard == Recognition(
        words, "en", 0.125, -0.25, 1.5, np.float32(0.2), 0.75, language_probabilities=chances
    )
    (asked,) = stub.asked
    assert asked["model_name"] == "other"
    assert asked["requested_output_names"] == list(OUTPUTS)
    sent = {tensor.name(): tensor.as_numpy() for tensor in asked["inputs"]}
    np.testing.assert_array_equal(sent["window"], samples[None])
    assert (sent["prompt"].item(), sent["language"].item()) == ("naïve".encode(), b"en")
    given = [sent[name].item().decode() for name in ("task", "prefix", "draft")]
    assert given == ["translate", " é", " ü"]


def test_nothing_heard_is_an_empty_recognition():
    silence = HEARD | {name: np.zeros((1, 0), HEARD[name].dtype) for name in WORDS}
    silence["word_count"] = np.array([[0]], np.int32)
    silence["rejected"] = np.array([[b"silence"]], object)
    (heard,) = recognise(FakeStub(silence), "other", [Window(np.zeros(4, np.float32))])
    assert (heard.words, heard.text, heard.rejected) == ((), "", "silence")


def test_every_call_has_the_same_inputs_so_that_triton_batches_them():
    stub = FakeStub(HEARD)
    recognise(stub, "other", [Window(np.zeros(4, np.float32))])
    recognise(stub, "other", [Window(np.zeros(9, np.float32), language="de", prompt="x", prefix=" y")])
    first, second = ([tensor.name() for tensor in asked["inputs"]] for asked in stub.asked)
    assert first == second


LOST = TritonError.INTERNAL  # a refusal whose code is lost is known by its sentence


@pytest.mark.parametrize(
    ("code", "told", "kind"),
    [
        (TritonError.INVALID_ARG, "not today", InvalidArgument),
        (TritonError.UNAVAILABLE, "not today", Unavailable),
        (TritonError.INTERNAL, "not today", InternalError),
        (TritonError.NOT_FOUND, "not today", InternalError),
        (LOST, "language: 'xx' is not known (known: en)", InvalidArgument),
        (LOST, "prompt is not valid UTF-8: byte 1 cannot be decoded", InvalidArgument),
        (
            LOST,
            "window: 480000 samples; 1 to 160000 are accepted (10 s at 16000 Hz)",
            InternalError,
        ),
        (LOST, "the model failed on this request; the server's log says why", InternalError),
        (LOST, "Stub process 'speech_recognize_0' is not healthy.", InternalError),
    ],
)
def test_an_error_keeps_its_kind_and_names_the_model(code, told, kind):
    stub = FakeStub(error=TritonError(told, code))
    with pytest.raises(RequestError) as caught:
        recognise(stub, "other", [Window(np.zeros(4, np.float32))])
    assert type(caught.value) is kind
    assert str(caught.value) == f"other: {told}"


def test_windows_of_two_lengths_go_out_in_one_call():
    rows = {name: np.concatenate([column, column]) for name, column in HEARD.items()}
    for name in WORDS:  # the second has one word, and what fills its row
        rows[name][1, 1] = b"" if rows[name].dtype == object else 0
    rows["word_count"] = np.array([[2], [1]], np.int32)
    stub = FakeStub(rows)
    long, short = np.arange(4, dtype=np.float32), np.ones(3, np.float32)
    heard = recognise(stub, "other", [Window(long, "en"), Window(short, "de", prefix=" é")])
    assert [one.text for one in heard] == [" what naïve", " what"]
    sent = {tensor.name(): tensor.as_numpy() for tensor in stub.asked[0]["inputs"]}
    np.testing.assert_array_equal(sent["window"], [long, [1, 1, 1, 0]])
    np.testing.assert_array_equal(sent["samples"], [[4], [3]])
    assert [row.item() for row in sent["language"]] == [b"en", b"de"]
    assert [row.item() for row in sent["prefix"]] == [b"", " é".encode()]
