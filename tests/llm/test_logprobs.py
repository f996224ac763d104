"""Log probabilities go with the text that is sent: characters in parts, stop strings, special tokens."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from typing import Any

import pytest

from tests.llm.doubles.sinks import FakeServer
from tests.llm.test_detokenizer import TEXT, WordTokenizer
from trimodal.llm.detokenizer import TextStream
from trimodal.llm.engines.protocol import Logprobs, Sampling
from trimodal.llm.logprobs import TextLogprobs
from trimodal.llm.request.outputs import TokenLogprob, columns
from trimodal.llm.request.request import GenerationRequest
from trimodal.llm.tokenizer import ByteTokenizer, Tokenizer


class Answer:
    """Steps of one answer: `text` and `told` grow as they would be sent."""

    def __init__(self, tokenizer: Any, stops: Sequence[str] = ()) -> None:
        checked: Tokenizer = tokenizer
        self._stream = TextStream(checked, stops)
        self._logprobs = TextLogprobs(checked)
        self._place = 0
        self.text = ""
        self.told: list[TokenLogprob] = []
        self.ended = False

    def step(self, token_ids: Sequence[int], *, last: bool = False) -> Sequence[TokenLogprob]:
        """Takes tokens; the logprob of a token is minus its place."""
        logprobs = [Logprobs(-float(self._place + at), ((id, -0.5),)) for at, id in enumerate(token_ids)]
        self._place += len(token_ids)
        text, stopped = self._stream.push(token_ids, last=last)
        self.ended = last or stopped
        told = self._logprobs.push(token_ids, logprobs, text, last=self.ended)
        self.text += text
        self.told += told
        return told

    @property
    def bytes(self) -> bytes:
        return b"".join(one.token for one in self.told)

    @property
    def places(self) -> list[int]:
        return [round(-one.logprob) for one in self.told]


@pytest.mark.parametrize("seed", range(20))
def test_any_split_tells_every_token_with_its_own_bytes_as_its_text_is_sent(seed: int) -> None:
    rng = random.Random(seed)
    tokens, answer = ByteTokenizer().encode(TEXT), Answer(ByteTokenizer())
    left = list(tokens)
    while left:
        count = rng.randint(1, 7)
        answer.step(left[:count], last=count >= len(left))
        left = left[count:]
        assert answer.bytes == answer.text.encode()
    assert answer.text == TEXT
    assert answer.places == list(range(len(tokens)))
    assert [one.top[0].token for one in answer.told] == [bytes([token]) for token in tokens]


def test_a_token_is_told_with_its_character_and_with_the_text_that_a_stop_string_held_back() -> None:
    answer = Answer(ByteTokenizer(), ["xyz"])
    assert answer.step(["é".encode()[0]]) == []
    assert [one.token for one in answer.step(["é".encode()[1]])] == ["é".encode()[:1], "é".encode()[1:]]
    assert answer.step(list(b"xy")) == []
    assert [one.token for one in answer.step(list(b"!"))] == [b"x", b"y", b"!"]


def test_a_token_that_a_stop_string_cuts_in_two_is_told() -> None:
    answer = Answer(WordTokenizer(), ["wo"])
    answer.step([1, 2, 3])
    assert (answer.text, answer.bytes, answer.ended) == ("one t", b"one two", True)


@pytest.mark.parametrize("tokens", [[1, 2, 0], [0, 1, 2], [1, 0, 2], [1, 0, 0, 2]])
def test_a_special_token_is_not_told_and_a_blank_that_is_left_out_neither(tokens: list[int]) -> None:
    answer = Answer(WordTokenizer())
    for at, token in enumerate(tokens, 1):
        answer.step([token], last=at == len(tokens))
    assert (answer.text, answer.bytes) == ("one two", b"one two")
    assert answer.places == [at for at, token in enumerate(tokens) if token]


def test_half_a_character_at_the_end_is_its_bytes() -> None:
    answer = Answer(ByteTokenizer())
    answer.step("é".encode()[:1], last=True)
    assert (answer.text, answer.bytes) == ("\ufffd", b"\xc3")


def test_what_no_number_of_json_can_say_is_bounded() -> None:
    logprobs = TextLogprobs(ByteTokenizer())
    given = [Logprobs(value, ((65, value),)) for value in (1e-7, -math.inf, math.nan)]
    told = logprobs.push(list(b"abc"), given, "abc", last=True)
    assert [(one.logprob, one.top[0].logprob) for one in told] == [(0, 0), (-9999, -9999), (-9999, -9999)]


def test_an_engine_that_tells_fewer_is_noticed() -> None:
    with pytest.raises(ValueError, match="shorter"):
        TextLogprobs(ByteTokenizer()).push(list(b"ab"), [Logprobs(-1.0)], "ab", last=False)


def test_a_prompts_tokens_are_told_once_before_the_answer() -> None:
    with FakeServer(fake_answer="no") as server:
        sampling = Sampling(3, logprobs=1, prompt_logprobs=2)
        ids = tuple("né".encode())
        asked = GenerationRequest(None, None, sampling, prompt_token_ids=ids)
        first, *later = server.submit(asked).wait().deltas
        assert [one.prompt_logprobs for one in later] == [()] * len(later)
        told = json.loads(columns(first)["prompt_logprobs"][0])
    assert [one["logprob"] for one in told] == [None, -0.25, -0.375]
    assert [one["token"] for one in told] == ["n", "\\xc3", "\\xa9"]
    assert [len(one["top_logprobs"]) for one in told] == [0, 2, 2]
