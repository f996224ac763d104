import json
import wave
from pathlib import Path

import numpy as np
import pytest

from trimodal.errors import OperatorError
from trimodal.regress.cases import read_cases

GOOD = {"id": "a", "task": "llm", "input": {"prompt": "hello"}}
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
            {"id": "b.1:2-3", "task": "llm", "input": {"messages": chat, **options}},
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
    assert [(case.number, case.id) for case in found] == [
        (1, "a"), (3, "b.1:2-3"), (4, "c"), (5, "d"), (6, "e"), (7, "f"),
    ]  # fmt: skip
    assert found[1].line.input.options == {**options, "stop": (".",)}
    assert found[2].image == found[5].image == b"seven"
    assert found[3].audio.shape == (1600,)
    np.testing.assert_array_equal(found[5].audio[:2], [0, 0.5])
    assert len({case.digest for case in found}) == 6


def test_a_digest_is_of_what_is_sent(golden, tmp_path):
    (tmp_path / "x.png").write_bytes(b"one")
    image = {"id": "b", "task": "vision", "input": {"image": "x.png"}}
    (a, b) = read_cases(golden(GOOD, image))
    (same, other) = read_cases(golden({**GOOD, "expect": {"exact": "x"}, "id": "z"}, image))
    assert (same.digest, other.digest) == (a.digest, b.digest)
    (tmp_path / "x.png").write_bytes(b"two")
    (more, changed) = read_cases(golden({**GOOD, "input": {"prompt": "hello", "max_tokens": 5}}, image))
    assert len({a.digest, b.digest, more.digest, changed.digest}) == 4


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("{", "Invalid JSON"),
        ({**GOOD, "id": "fine"}, "line 2 (fine): id is that of line 1, too: each needs its own"),
        ({"id": "a", "input": {}}, "Unable to extract tag using discriminator 'task'"),
        ({**GOOD, "task": "video"}, "tag 'video' found using 'task' does not match any"),
        ({**GOOD, "id": "a b"}, "id: String should match"),
        ({**GOOD, "input": {}}, "input: one of prompt and messages is needed"),
        ({**GOOD, "input": {"prompt": "a", "max_token": 5}}, "input.max_token: Extra inputs"),
        ({**GOOD, "input": {"prompt": "a", "max_tokens": "5"}}, "input.max_tokens: Input should be"),
        ('{"id": "a", "task": "llm", "input": {"prompt": "a", "temperature": NaN}}', "input.temperature: "),
        ('{"id": "a", "task": "llm", "input": {"prompt": "\\ud800"}}', "Invalid JSON"),
        ({**GOOD, "expect": {"regex": "("}}, "expect.regex: Input should be a valid regular expression"),
        ({**GOOD, "expect": {"regex": "a{99999999999}"}}, "expect.regex: it cannot be compiled: the "),
        ({**GOOD, "expect": {"regex": "(" * 5000}}, "expect.regex: it cannot be compiled: "),
        ({**GOOD, "expect": {"wer_max": 0.1}}, "expect: wer_max goes with text"),
        ({**GOOD, "expect": {"text": " ...", "wer_max": 0}}, "expect: wer_max goes with text"),
        ({**IMAGE, "input": {"image": "x", "top_k": 0}}, "input.top_k: Input should be greater"),
        ({**GOOD, "task": "speech", "input": {"audio": "x", "policy": "no"}}, "input.policy: Input"),
        ({**IMAGE, "input": {"image": "none.png"}}, "none.png cannot be read: no such file"),
        ({**IMAGE, "input": {"image": "a\0b"}}, "cannot be read: "),
    ],
)  # fmt: skip
def test_a_bad_line_names_itself_and_the_field(golden, line, sentence):
    told = refusal(golden({**GOOD, "id": "fine"}, line))
    assert told.startswith("line 2")
    assert sentence in told
    assert "\n" not in told


def test_audio_that_is_none(golden, tmp_path):
    line = {"id": "a", "task": "speech", "input": {"audio": "answer.wav"}}
    (tmp_path / "answer.wav").write_bytes(b"no audio")
    assert "line 1 (a): input.audio: " in refusal(golden(line))
    recording(tmp_path / "answer.wav", [])
    assert "there is no audio in it" in refusal(golden(line))


def test_a_golden_set_without_a_case(golden):
    assert refusal(golden("", "  ")) == "there is no case in it"


def test_a_byte_order_mark_and_windows_lines(tmp_path):
    path = tmp_path / "golden.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(GOOD).encode() + b"\r\n\r\n")
    assert [case.id for case in read_cases(path)] == ["a"]


def test_the_golden_set_of_the_samples_can_be_read():
    found = read_cases(Path(__file__).parents[2] / "samples" / "golden.jsonl")
    assert {case.line.task for case in found} >= {"llm", "vision", "speech", "embedding"}
    assert all(case.audio is not None for case in found if case.line.task == "speech")
