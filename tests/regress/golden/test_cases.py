import json
import wave
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from trimodal.errors import OperatorError
from trimodal.regress.golden import cases
from trimodal.regress.golden.cases import read_cases

GOOD = {"id": "a", "task": "llm", "input": {"prompt": "hello"}}
TEXT = {"id": "a", "task": "embedding", "input": {"text": "x"}}
IMAGE = {"id": "a", "task": "vision", "input": {"image": "x.png"}}


@pytest.fixture
def golden(tmp_path):
    path = tmp_path / "golden.jsonl"

    def write(*lines):
        texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        path.write_text("\n".join(texts))
        return path

    return write


def refusal(path):
    with pytest.raises(OperatorError) as caught:
        read_cases(path)
    return str(caught.value).removeprefix(f"{path}, ").removeprefix(f"{path}: ")


def recording(path, samples):
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, 16_000, 0, "NONE", ""))
        file.writeframes(np.asarray(samples, np.int16).tobytes())


def test_every_task(golden, tmp_path):
    (tmp_path / "seven.png").write_bytes(b"seven")
    recording(tmp_path / "answer.wav", [0, 16384] * 800)
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    options = {"max_tokens": 5, "temperature": 0, "stop": ["."], "tenant": "é", "cache_control": "no-store"}
    found = read_cases(
        golden(
            GOOD,
            "",
            {"id": "b.1:2-3", "task": "llm", "input": {"messages": chat, **options}, "repeat": 3},
            {"id": "c", "task": "vision", "input": {"image": "seven.png"}, "expect": {"label": "7"}},
            {"id": "d", "task": "speech", "input": {"audio": "answer.wav", "policy": "vad"}},
            {"id": "e", "task": "embedding", "input": {"text": ""}},
            {
                "id": "f",
                "task": "assistant",
                "input": {"audio": "answer.wav", "image": "seven.png", "tier": "x"},
            },
        )
    )
    assert [(case.number, case.id, case.line.task) for case in found] == [
        (1, "a", "llm"),
        (3, "b.1:2-3", "llm"),
        (4, "c", "vision"),
        (5, "d", "speech"),
        (6, "e", "embedding"),
        (7, "f", "assistant"),
    ]
    assert found[1].line.input.options == {**options, "stop": (".",)}
    assert found[1].line.repeat == 3
    assert found[2].image == found[5].image == b"seven"
    assert found[3].audio.shape == (1600,)
    np.testing.assert_array_equal(found[5].audio[:2], [0, 0.5])
    assert len({case.digest for case in found}) == 6


def test_a_digest_is_of_what_is_sent(golden, tmp_path):
    (tmp_path / "x.png").write_bytes(b"one")
    image = {"id": "b", "task": "vision", "input": {"image": "x.png"}}
    near = {"text": "x", "similarity_min": 0.5}
    (a, b) = read_cases(golden(GOOD, image))
    (same, other) = read_cases(golden({**GOOD, "expect": {"exact": "x"}, "repeat": 2, "id": "z"}, image))
    assert (same.digest, other.digest) == (a.digest, b.digest)
    (tmp_path / "x.png").write_bytes(b"two")
    (more, changed, to_x, to_y) = read_cases(
        golden(
            {**GOOD, "input": {"prompt": "hello", "max_tokens": 5}},
            image,
            {**GOOD, "id": "x", "expect": near},
            {**GOOD, "id": "y", "expect": {**near, "text": "y"}},
        )
    )
    assert len({a.digest, b.digest, more.digest, changed.digest, to_x.digest, to_y.digest}) == 6
    assert to_x.models == {"llm", "embedding"}
    assert a.models == {"llm"}


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("{", "Invalid JSON"),
        ("[]", "Input should be"),
        ("null", "Input should be"),
        ({"id": "a", "input": {}}, "task is missing: one of llm, vision"),
        ({**GOOD, "task": "video"}, "task is 'video': one of llm, vision"),
        ({"task": "llm", "input": {"prompt": ""}}, "id: it is missing"),
        ({**GOOD, "id": "a b"}, "id: String should match"),
        ({**GOOD, "id": ""}, "id: String should match"),
        ({**GOOD, "id": 5}, "id: Input should be a valid string"),
        ({**GOOD, "input": {}}, "input: one of prompt and messages is needed"),
        ({**GOOD, "input": {"prompt": "a", "messages": []}}, "input: one of prompt and messages is needed"),
        ({**GOOD, "input": {"prompt": "a", "max_token": 5}}, "input.max_token: there is no such field"),
        ({**GOOD, "input": {"prompt": "a", "max_tokens": "5"}}, "input.max_tokens: Input should be"),
        ({**GOOD, "input": {"prompt": "a", "max_tokens": True}}, "input.max_tokens: Input should be"),
        ({**GOOD, "input": {"prompt": "a", "stop": 5}}, "input.stop: Input should be"),
        ({**GOOD, "input": {"messages": [{"role": "user"}]}}, "input.messages.0.content: it is missing"),
        ('{"id": "a", "task": "llm", "input": {"prompt": "a", "temperature": NaN}}', "input.temperature: "),
        ('{"id": "a", "task": "llm", "input": {"prompt": "\\ud800"}}', "Invalid JSON"),
        ({**GOOD, "repeat": 0}, "repeat: Input should be greater than or equal to 1"),
        ({**GOOD, "repeat": 1001}, "repeat: Input should be less than or equal to 1000"),
        ({**GOOD, "repeats": 3}, "repeats: there is no such field"),
        ({**GOOD, "expect": {"regex": "("}}, "expect.regex: it is no regular expression: missing )"),
        ({**GOOD, "expect": {"wer_max": 0.1}}, "expect: wer_max and similarity_min need text"),
        ({**GOOD, "expect": {"text": "x"}}, "expect: text alone checks nothing"),
        ({**GOOD, "expect": {"text": " ", "wer_max": 0}}, "expect: wer_max and similarity_min need text"),
        ({**GOOD, "expect": {"text": "x", "wer_max": -1}}, "expect.wer_max: Input should be greater"),
        ({**GOOD, "expect": {"label": "7"}}, "expect.label: the task llm gives no labels"),
        ({**TEXT, "expect": {"exact": "x"}}, "gives no text to check"),
        ({**TEXT, "input": {"text": 5}}, "input.text: Input should be a valid string"),
        ({**GOOD, "task": "assistant", "input": {"image": "x"}}, "input: at least one of text and audio"),
        ({**IMAGE, "input": {"image": "x", "top_k": 0}}, "input.top_k: Input should be greater"),
        ({**GOOD, "task": "speech", "input": {"audio": "x", "policy": "no"}}, "input.policy: Input"),
        ({**GOOD, "task": "vision", "input": {"image": "none.png"}}, "none.png cannot be read: no such file"),
        ({**GOOD, "task": "vision", "input": {"image": "."}}, "cannot be read: is a directory"),
        ({**GOOD, "task": "vision", "input": {"image": "a\0b"}}, "cannot be read: "),
        ({**GOOD, "task": "speech", "input": {"audio": "none.wav"}}, "input.audio: "),
    ],
)  # fmt: skip
def test_a_bad_line_names_itself_and_the_field(golden, line, sentence):
    told = refusal(golden({**GOOD, "id": "fine"}, line))
    assert told.startswith("line 2")
    assert sentence in told
    assert "\n" not in told


def test_an_id_that_comes_twice(golden):
    assert refusal(golden(GOOD, {**GOOD, "input": {"prompt": "other"}})) == (
        "line 2 (a): id is that of line 1, too: each needs its own"
    )


def test_audio_that_is_none(golden, tmp_path):
    line = {"id": "a", "task": "speech", "input": {"audio": "answer.wav"}}
    (tmp_path / "answer.wav").write_bytes(b"no audio")
    assert "line 1 (a): input.audio: " in refusal(golden(line))
    recording(tmp_path / "answer.wav", [])
    assert "there is no audio in it" in refusal(golden(line))


def test_files_that_are_no_golden_set(tmp_path, golden, monkeypatch):
    assert refusal(golden("", "  ")) == "there is no case in it"
    with pytest.raises(OperatorError, match="cannot be read: no such file or directory"):
        read_cases(tmp_path / "none.jsonl")
    with pytest.raises(OperatorError, match="cannot be read: is a directory"):
        read_cases(tmp_path)
    monkeypatch.setattr(cases, "_MAX_GOLDEN_BYTES", 10)
    assert "is it a golden set?" in refusal(golden(GOOD))


def test_a_large_image(golden, tmp_path, monkeypatch):
    monkeypatch.setattr(cases, "MAX_IMAGE_BYTES", 4)
    (tmp_path / "x.png").write_bytes(b"large")
    line = {"id": "a", "task": "vision", "input": {"image": "x.png"}}
    assert "line 1 (a): input.image: " in refusal(golden(line))


def test_a_byte_order_mark_and_windows_lines(tmp_path):
    path = tmp_path / "golden.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(GOOD).encode() + b"\r\n\r\n")
    assert [case.id for case in read_cases(path)] == ["a"]


@settings(max_examples=100)
@given(st.binary(max_size=60))
@example(b"\xff\xfe{\x00")
@example(b"[" * 60)
@example(b'{"id": "a", "task": {"x": 1}}')
def test_whatever_is_in_it_the_answer_is_one_sentence(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    path.write_bytes(content)
    with pytest.raises(OperatorError) as caught:
        read_cases(path)
    assert "\n" not in str(caught.value)


def test_the_golden_set_of_the_demo_can_be_read():
    found = read_cases(Path(__file__).parents[3] / "build" / "demo" / "golden.jsonl")
    assert {case.line.task for case in found} >= {"llm", "vision", "speech", "embedding"}
    assert all(case.audio is not None for case in found if case.line.task == "speech")
