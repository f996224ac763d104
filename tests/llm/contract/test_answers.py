"""Answers: what every engine gives for a request."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.llm.contract.served import BATCH, SECONDS, Client, Served
from tests.llm.doubles.sinks import counts, eventually
from trimodal.errors import Cancelled, InvalidArgument

KEY = "0123456789abcdef"
STORY: dict[str, Any] = {"prompt": "Write a long story about a lighthouse.", "ignore_eos": True}
SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "Rome"]}, "people": {"type": "integer", "maximum": 99}},
    "required": ["city", "people"],
    "additionalProperties": False,
}
WEATHER = {
    "name": "weather",
    "parameters": {
        "type": "object",
        "properties": {"city": {"enum": ["Paris", "Rome"]}},
        "required": ["city"],
    },
}


def chat(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def logprobs(client: Client) -> list[Any]:
    return [one for delta in client.deltas for one in delta.logprobs or ()]


def test_deltas(served: Served) -> None:
    one = served.ask(**STORY, max_tokens=24).answer()
    assert len(one.deltas) > 2
    told = [delta.completion_tokens for delta in one.deltas]
    assert told == sorted(told)
    assert told[-1] == 24
    assert [delta.finish_reason for delta in one.deltas[:-1]] == [""] * (len(one.deltas) - 1)
    assert one.text.strip()
    assert one.after_end == 0
    assert served.ask(**STORY, max_tokens=24).answer().text == one.text


def test_token_ids(served: Served) -> None:
    ids = served.service._input.tokenizer.encode_prompt("The capital of Japan is")
    of_ids = served.ask(None, prompt_token_ids=ids, max_tokens=8).answer()
    of_text = served.ask("The capital of Japan is", apply_chat_template=False, max_tokens=8).answer()
    assert of_ids.text == of_text.text != ""
    assert of_ids.last.prompt_tokens == len(ids)


def test_length(served: Served) -> None:
    for tokens in (1, 7):
        one = served.ask(**STORY, max_tokens=tokens).answer()
        assert (one.last.finish_reason, one.last.completion_tokens) == ("length", tokens)


def test_end_of_sequence(served: Served) -> None:
    one = served.ask(chat("What is the capital of Japan?"), max_tokens=60).answer()
    assert (one.last.finish_reason, "Tokyo" in one.text) == ("stop", True)
    assert one.last.completion_tokens < 60
    longer = served.ask(chat("What is the capital of Japan?"), max_tokens=60, ignore_eos=True).answer()
    assert (longer.last.finish_reason, longer.last.completion_tokens) == ("length", 60)


def test_stop_strings(served: Served) -> None:
    whole = served.ask(**STORY, max_tokens=30).answer().text
    stop = whole[12:15]
    one = served.ask(**STORY, max_tokens=30, stop=[stop]).answer()
    assert (one.text, one.last.finish_reason) == (whole[: whole.index(stop)], "stop")
    served.nothing_left()


def test_stop_token_ids(served: Served) -> None:
    tokenizer = served.service._input.tokenizer
    whole = served.ask(**STORY, max_tokens=30).answer()
    ids = tokenizer.encode_prompt(whole.text)
    third = ids[-20:][3]
    one = served.ask(**STORY, max_tokens=30, stop_token_ids=[third]).answer()
    assert (one.last.finish_reason, one.last.completion_tokens < 30) == ("stop", True)
    later = served.ask(**STORY, max_tokens=30, stop_token_ids=[third], min_tokens=29).answer()
    assert later.last.completion_tokens >= 29


def test_usage(served: Served) -> None:
    ids = [20 + place % 7 for place in range(50)]
    one = served.ask(None, prompt_token_ids=ids, max_tokens=5, ignore_eos=True).answer()
    assert (one.last.prompt_tokens, one.last.completion_tokens, one.last.cached_tokens) == (50, 5, 0)


def test_cached_tokens(served: Served) -> None:
    ids = [30 + place % 11 for place in range(400)]
    first = served.ask(None, prompt_token_ids=ids, max_tokens=2).answer().last
    second = served.ask(None, prompt_token_ids=ids, max_tokens=2).answer().last
    assert first.cached_tokens == 0
    assert 256 <= second.cached_tokens < 400


def test_seeds(served: Served) -> None:
    def drawn(seed: int | None) -> str:
        return served.ask(**STORY, max_tokens=16, temperature=1.5, seed=seed).answer().text

    assert drawn(7) == drawn(7)
    assert len({drawn(seed) for seed in (7, 8, None, None)}) == 4


def test_penalties(served: Served) -> None:
    fields = {**STORY, "prompt": "Say yes, yes, yes, yes, yes, yes, yes.", "max_tokens": 40}
    plain = served.ask(**fields).answer()
    for penalty in ({"repetition_penalty": 1.8}, {"presence_penalty": 2.0, "frequency_penalty": 2.0}):
        assert served.ask(**fields, **penalty).answer().text != plain.text


def test_logit_bias(served: Served) -> None:
    first = served.ask(chat("What is the capital of Japan?"), max_tokens=1, top_logprobs=1).answer()
    (token,) = served.service._input.tokenizer.encode_prompt(logprobs(first)[0].token.decode())[-1:]
    fields = {"max_tokens": 1, "logit_bias": {str(token): -100}}
    assert served.ask(chat("What is the capital of Japan?"), **fields).answer().text != first.text


def test_logprobs(served: Served) -> None:
    one = served.ask(**STORY, max_tokens=12, top_logprobs=0).answer()
    told = logprobs(one)
    assert len(told) == one.last.completion_tokens == 12
    assert all(-50 < each.logprob <= 0 and not each.top for each in told)
    assert b"".join(each.token for each in told).decode() == one.text
    assert not logprobs(served.ask(**STORY, max_tokens=4).answer())


def test_top_logprobs(served: Served) -> None:
    for each in logprobs(served.ask(**STORY, max_tokens=6, top_logprobs=3).answer()):
        best = [other.logprob for other in each.top]
        assert (len(best), best) == (3, sorted(best, reverse=True))
        assert each.logprob == best[0]  # greedy


def test_schema(served: Served) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "place", "schema": SCHEMA}}
    for temperature in (0.0, 1.5):
        question = chat("Where is the Louvre, and how many people are there?")
        one = served.ask(question, max_tokens=100, response_format=form, temperature=temperature).answer()
        found = json.loads(one.text)
        assert found["city"] in ("Paris", "Rome")
        assert found["people"] <= 99
        assert one.last.finish_reason == "stop"


def test_form_logprobs(served: Served) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "place", "schema": SCHEMA}}
    one = served.ask(chat("Where?"), max_tokens=100, response_format=form, top_logprobs=20).answer()
    told = logprobs(one)  # the end of the sequence is counted and has no text
    assert len(told) + 1 == one.last.completion_tokens
    assert min(len(each.top) for each in told) < 20, "what the form forbids is told"
    assert min(other.logprob for each in told for other in each.top) > -1000


def test_tools(served: Served) -> None:
    tools = [{"type": "function", "function": WEATHER}]
    fields = {"tools": tools, "tool_choice": "required", "max_tokens": 120}
    one = served.ask(chat("What is the weather in Rome?"), **fields).answer()
    call = json.loads(one.text.partition("<tool_call>")[2].partition("</tool_call>")[0])
    assert (call["name"], call["arguments"]["city"] in ("Paris", "Rome")) == ("weather", True)


def test_concurrent(served: Served) -> None:
    """More than a batch holds, of every kind at once: each is whole, and has its own length."""
    clients = [
        served.ask(
            **STORY, max_tokens=8 + place, **({"temperature": 1.0, "seed": place} if place % 2 else {})
        )
        for place in range(3 * BATCH)
    ]
    for place, client in enumerate(clients):
        assert client.answer().last.completion_tokens == 8 + place
    served.nothing_left()


def test_priorities(served: Served) -> None:
    # One after the other: those that begin in one step have no order.
    running = [served.ask(**STORY, max_tokens=40 + 20 * place) for place in range(BATCH)]
    eventually(lambda: counts(served.service)[0] == BATCH, SECONDS)
    lazy = [served.ask(**STORY, max_tokens=2, priority=-5) for _ in range(2)]
    urgent = served.ask(**STORY, max_tokens=2)
    for client in (*running, *lazy, urgent):
        client.answer()
    assert served.order.index(urgent) < min(served.order.index(one) for one in lazy)


def test_limits(served: Served) -> None:
    room = served.room()
    ids = [40 + place % 13 for place in range(room - 4)]
    assert served.ask(None, prompt_token_ids=ids, max_tokens=4, ignore_eos=True).answer()
    with pytest.raises(InvalidArgument, match=rf"\b{room}\b|max_tokens"):
        served.ask(None, prompt_token_ids=ids, max_tokens=5)
    vocabulary = served.info.vocab_size
    with pytest.raises(InvalidArgument, match=str(vocabulary)):
        served.ask(None, prompt_token_ids=[vocabulary], max_tokens=5)
    with pytest.raises(InvalidArgument, match="top_logprobs"):
        served.ask("Hello", top_logprobs=21)
    served.nothing_left()


def test_extremes(served: Served) -> None:
    """Of vLLM the first and the last ended the core on GPUs, the second was an internal error."""
    core = served.core()
    ends = list(range(100, 228))
    for fields in ({"seed": (1 << 64) - 1}, {"temperature": 10.0}, {"min_tokens": 3, "stop_token_ids": ends}):
        client = served.ask(**STORY, max_tokens=4, **fields)
        client.wait(SECONDS)
        if client.error:
            assert isinstance(client.error, InvalidArgument)
            assert any(name in str(client.error) for name in fields)
        else:
            assert client.last.completion_tokens >= 1
    assert served.core() == core
    served.nothing_left()


def test_cancel_queued(served: Served) -> None:
    running = [served.ask(**STORY, max_tokens=40) for _ in range(BATCH)]
    eventually(lambda: counts(served.service)[0] == BATCH, SECONDS)
    waiting = served.ask(**STORY, max_tokens=40, cancel_key=KEY)
    assert served.service.cancel(KEY)
    assert isinstance(waiting.refusal(), Cancelled)
    assert not waiting.deltas
    for client in running:
        assert client.answer().last.completion_tokens == 40
    served.nothing_left()


def test_cancel_prefill(served: Served) -> None:
    ids = [50 + place % 17 for place in range(served.room() - 500)]
    one = served.ask(None, prompt_token_ids=ids, max_tokens=400)
    eventually(lambda: counts(served.service)[0] == 1, SECONDS)
    one.cancelled = True
    assert isinstance(one.refusal(), Cancelled)
    assert len(one.deltas) < 50
    served.nothing_left()
    assert served.ask(**STORY, max_tokens=4).answer().last.completion_tokens == 4


def test_cancel_decoding(served: Served) -> None:
    leaving, staying = served.ask(**STORY, max_tokens=600), served.ask(**STORY, max_tokens=30)
    eventually(lambda: len(leaving.deltas) > 2, SECONDS)
    leaving.cancelled = True
    assert isinstance(leaving.refusal(), Cancelled)
    assert staying.answer().last.completion_tokens == 30
    served.nothing_left()


def test_memory(served: Served) -> None:
    info = served.info
    assert info.num_kv_blocks * info.block_tokens >= served.room()
    ids = [60 + place % 19 for place in range(300)]
    one = served.ask(None, prompt_token_ids=ids, max_tokens=100, ignore_eos=True)
    eventually(lambda: served.value("kv_usage_ratio") > 0, SECONDS)
    expected = 300 / (info.num_kv_blocks * info.block_tokens)
    seen = []
    while not one.ended.wait(0.005):
        seen.append(served.value("kv_usage_ratio"))
    one.answer()
    assert expected / 2 < max(seen) < 4 * expected
    served.nothing_left()
