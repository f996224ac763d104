"""What not every engine has: walls between tenants, prompts' log probabilities, adapters, sleep, drafts."""

from __future__ import annotations

import json
from contextlib import closing
from itertools import combinations

import pytest

from tests.llm.contract.adapters import NAMES
from tests.llm.contract.conftest import settings
from tests.llm.contract.served import SECONDS, Client, Served
from tests.llm.doubles.sinks import eventually
from trimodal.errors import InvalidArgument, Unavailable
from trimodal.llm.request.outputs import columns

PROMPT = "The capital of Japan is"


def test_tenants(served: Served) -> None:
    def cached(**terms: str) -> int:
        return served.ask(None, prompt_token_ids=ids, max_tokens=2, **terms).answer().last.cached_tokens

    ids = [40 + place % 11 for place in range(200)]

    assert cached(tenant="acme") == 0
    assert cached(tenant="acme") > 0
    assert cached(tenant="umbrella") == cached(tenant="umbrella", cache_salt="own") == 0
    assert cached(tenant="acme") > 0


def test_prompt_logprobs(served: Served) -> None:
    prompt = {"apply_chat_template": False, "prompt_logprobs": 2, "top_logprobs": 2}
    whole = served.ask("The capital of Japan is Tokyo", max_tokens=1, **prompt).answer()
    told = json.loads(columns(whole.deltas[0])["prompt_logprobs"][0])
    assert "".join(one["token"] for one in told) == "The capital of Japan is Tokyo"
    assert told[0]["logprob"] is None
    assert all(one["logprob"] <= 0 and len(one["top_logprobs"]) == 2 for one in told[1:])
    # What the model would have said there is what it says after the prompt without its end.
    shorter = served.ask("The capital of Japan is", max_tokens=1, **prompt).answer()
    if served.name != "fake":
        likeliest = told[-1]["top_logprobs"][0]
        (said,) = shorter.deltas[0].logprobs or ()
        assert said.token.decode() == likeliest["token"] == " Tokyo"
        assert said.logprob == pytest.approx(likeliest["logprob"], abs=0.05)


def test_adapters(served: Served) -> None:
    def begun(name: str, tokens: int) -> Client:
        raw = {"apply_chat_template": False, "ignore_eos": True, "top_logprobs": 0, "max_tokens": tokens}
        return served.ask(PROMPT, lora_name=name, **raw)

    def told(asked: Client) -> tuple[bytes, float, str]:
        """The first token, its log probability, and the whole text."""
        answer = asked.answer()
        first = next(one for delta in answer.deltas for one in delta.logprobs or ())
        return first.token, first.logprob, answer.text

    def alike(one: tuple[bytes, float, str], other: tuple[bytes, float, str]) -> bool:
        """Sums of 16 bits differ with the batch, and later near ties fall either way; adapters do more."""
        if served.name == "fake":
            return one[2] == other[2]
        return one[0] == other[0] and abs(one[1] - other[1]) < 0.05

    plain = told(begun("", 6))
    for name in NAMES:
        served.operate("load_lora_adapter", name)
    alone = [told(begun(name, 6)) for name in NAMES]
    assert not any(alike(one, other) for one, other in combinations([plain, *alone], 2))
    asked = [begun(name, 6) for name in (*NAMES, "")]
    assert all(alike(told(one), other) for one, other in zip(asked, [*alone, plain], strict=True))
    first, second = NAMES
    going = begun(second, 150)
    eventually(lambda: bool(going.deltas), SECONDS)
    for name in NAMES:
        served.operate("unload_lora_adapter", name)
    assert going.answer().last.completion_tokens == 150
    with pytest.raises(InvalidArgument, match=f"lora_name is '{first}', which is not loaded"):
        begun(first, 2)
    served.operate("load_lora_adapter", first)
    assert alike(told(begun(first, 6)), alone[0])
    served.operate("unload_lora_adapter", first)
    served.nothing_left()


@pytest.mark.parametrize("level", [1, 2])
def test_sleep(served: Served, level: int) -> None:
    before = served.ask(PROMPT, max_tokens=6).answer().text
    served.operate("sleep", level=level)
    with pytest.raises(Unavailable, match="the engine sleeps"):
        served.ask(PROMPT)
    served.operate("wake_up")
    assert served.ask(PROMPT, max_tokens=6).answer().text == before


def test_speculation(served: Served) -> None:
    raw = {"apply_chat_template": False, "ignore_eos": True, "max_tokens": 24}
    prompt = "one two three four five six seven. " * 6
    plain = served.ask(prompt, **raw).answer().text
    asked = settings(served.name) | {"speculation": "prompt_lookup"}
    asked.pop("max_loras", None)
    with closing(Served(asked)) as drafting:
        assert drafting.ask(prompt, **raw).answer().text == plain
        eventually(lambda: drafting.value("speculation_acceptance_ratio") > 0, SECONDS)
