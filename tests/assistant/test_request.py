"""What a question may hold: every refusal names the field and the limit, and nothing wrong gets through."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from tests.assistant.doubles import labelled
from trimodal.assistant.request import read_request
from trimodal.assistant.settings import AssistantSettings
from trimodal.errors import InvalidArgument

SETTINGS = AssistantSettings(max_text_bytes=100, max_audio_s=1)
AUDIO = np.linspace(-1, 1, 800, dtype=np.float32)


def text(value, name="text_input"):
    return {name: np.array([value if isinstance(value, bytes) else value.encode()], object)}


def audio(values, name="audio", kind=np.float32):
    return {name: np.asarray(values, kind)}


def number(name, value, kind=np.int32):
    return {name: np.array([value], kind)}


def read(*inputs, parameters=None, settings=SETTINGS):
    together = {}
    for one in inputs:
        together |= one
    return read_request(together, parameters or {}, settings)


def test_text_image_and_audio():
    request = read(text("é?"), text(b"\x89PNG", "image"), audio(AUDIO), number("deadline_ms", 500))
    assert (request.text, request.image, request.deadline_ms) == ("é?", b"\x89PNG", 500)
    np.testing.assert_array_equal(request.samples, AUDIO)
    assert request.ttft_deadline_ms is None
    spoken = read(text(""), audio([[16384, -32768]], "audio_int16", np.int16))
    assert (spoken.text, spoken.samples.tolist()) == (None, [0.5, -1.0])
    assert request.options == {}


def test_nothing_of_the_tensors_memory_is_kept():
    samples, tokens = AUDIO.copy(), np.array([5], np.int32)
    request = read(text("a"), {"audio": samples, "max_tokens": tokens})
    samples[:], tokens[:] = 0, 0
    np.testing.assert_array_equal(request.samples, AUDIO)
    assert request.options["max_tokens"].tolist() == [5]


def test_what_is_the_llms_is_handed_on_as_it_is():
    given = {
        **number("max_tokens", -5),
        **number("temperature", math.nan, np.float32),
        **number("seed", 2**64 - 1, np.uint64),
        "stop": np.array([b"a", b"b"], object),
        **text("x" * 500, "tenant"),
        **text("gold", "tier"),
    }
    request = read(text("a"), given, number("priority", -3))
    assert set(request.options) == {*given, "priority"}
    assert request.options["max_tokens"].tolist() == [-5]
    assert request.options["stop"].tolist() == [b"a", b"b"]
    assert request.options["priority"].dtype == np.int32


def test_terms_may_come_as_parameters():
    parameters = {"tier": "premium", "priority": -1, "deadline_ms": 900}
    request = read(text("a"), parameters=parameters)
    assert request.options["tier"].tolist() == [b"premium"]
    assert request.options["priority"].tolist() == [-1]
    assert request.deadline_ms == 900


REFUSED = [
    ((), "text_input, audio: at least one of them is needed"),
    ((text(""),), "text_input, audio: at least one of them is needed"),
    ((text(b"img", "image"),), "text_input, audio: at least one of them is needed"),
    ((text("a" * 101),), "text_input has 101 bytes: at most 100 are taken"),
    ((text(b"\xff"),), "text_input is not valid UTF-8"),
    (({"text_input": np.array([b"a", b"b"], object)},), "text_input holds 2 values: exactly 1"),
    ((text("a"), {"image": np.array([b"a", b"b"], object)}), "image holds 2 values"),
    ((text("a"), text(b"", "image")), "image: empty; JPEG, PNG, WebP, GIF"),
    ((audio([]),), "audio has 0 samples: 1 to 16000 are taken (1 s at 16 kHz)"),
    ((audio([0.0] * 16_001),), "audio has 16001 samples"),
    ((audio([0] * 16_001, "audio_int16", np.int16),), "audio_int16 has 16001 samples"),
    ((audio([[0.0, 0.0], [0.0, 0.0]]),), "audio: shape [2, 2]; one channel is taken"),
    ((audio([0.0, math.nan]),), "audio: sample 1 is nan"),
    ((text("a"), number("deadline_ms", 0)), "deadline_ms is 0: it must be between 1 and 86400000"),
    ((text("a"), number("ttft_deadline_ms", 2**31 - 1)), "ttft_deadline_ms is 2147483647"),
    ((text("a"), number("priority", 101)), "priority is 101: it must be between -100 and 100"),
]


@pytest.mark.parametrize(("inputs", "told"), REFUSED, ids=[told[:40] for _, told in REFUSED])
def test_what_is_refused(inputs, told):
    with pytest.raises(InvalidArgument) as caught:
        read(*inputs)
    assert told in str(caught.value)


def test_a_picture_that_no_model_takes_is_refused_before_it_is_copied():
    class Raw(bytes):
        def __bytes__(self):
            raise AssertionError("it is copied")

    inputs = {"text_input": np.array([b"a"], object), "image": np.array([b""], object)}
    inputs["image"][0] = Raw((24 << 20) + 1)
    with pytest.raises(InvalidArgument, match=r"image: 25165825 bytes; at most 25165824 are accepted"):
        read(inputs)


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ({"colour": "red"}, "unknown parameter 'colour'"),
        ({"deadline_ms": "soon"}, "deadline_ms is 'soon': a whole number is needed"),
        ({"tier": "\ud800"}, "tier holds a lone surrogate"),
        ({"deadline_ms": 10**30}, "deadline_ms is 1000000"),
        ({"versions": "2"}, "versions is '2': JSON of models and their versions is needed"),
        ({"versions": 2}, "versions is 2: JSON"),
        ({"versions": '{"llm": 2}'}, "versions is"),
        ({"versions": '{"llm": "-1"}'}, "versions is"),
        ({"versions": "\ud800"}, "versions is"),
        ({"versions": "[" * 100_000}, "versions is '[[["),
    ],
)
def test_parameters_that_are_refused(parameters, told):
    with pytest.raises(InvalidArgument) as caught:
        read(text("a"), parameters=parameters)
    assert told in str(caught.value)


def test_what_it_has_no_model_for():
    settings = SETTINGS.model_copy(update={"vision": "", "speech": ""})
    with pytest.raises(InvalidArgument, match="image: this assistant has no model for images"):
        read(text("a"), text(b"x", "image"), settings=settings)
    with pytest.raises(InvalidArgument, match="audio: this assistant has no model for audio"):
        read(audio(AUDIO), settings=settings)
    assert read(text("a"), settings=settings).text == "a"


def test_the_talk_until_now():
    turns = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "what is it?", "heard": "hm", "labels": [{"label": "7", "score": 0.9}]},
        {"role": "assistant", "content": "Seven."},
    ]
    request = read(text("sure?"), text(json.dumps(turns), "history"))
    assert [turn.role for turn in request.history] == ["system", "user", "assistant"]
    assert (request.history[1].heard, request.history[1].labels) == ("hm", labelled(("7", 0.9)))
    assert read(text("alone")).history == ()


@pytest.mark.parametrize(
    ("history", "told"),
    [
        ("{", "history: invalid json"),
        ("{}", "history: input should be a valid"),
        ('[{"role": "user"}]', r"history\[0\].content: field required"),
        ('[{"role": "robot", "content": "a"}]', r"history\[0\].role: input should be"),
        ('[{"role": "user", "content": "a", "image": "b"}]', r"history\[0\].image: extra inputs"),
        ('[{"role": "user", "content": "a", "labels": [{"label": 3, "score": 1}]}]', r"labels\[0\].label"),
        ("[" * 100_000, "history"),
        ('[{"role": "user", "content": "\\ud800"}]', "history"),
        (" " * 262_145, "history has 262145 bytes"),
    ],
)
def test_a_talk_that_is_none(history, told):
    with pytest.raises(InvalidArgument, match=told):
        read(text("a"), text(history, "history"))
