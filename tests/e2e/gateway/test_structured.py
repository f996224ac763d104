"""Answers of a real language model that are held to a form, on a real Triton, by OpenAI's own package.

What an answer in a form needs of Triton; calls/test_forms.py has the forms.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest

from tests.e2e.conftest import wait_until
from tests.e2e.gateway.calls.test_forms import WEATHER
from tests.e2e.gateway.test_openai import gateway, opened
from tests.e2e.metrics import total
from trimodal.client import Client
from trimodal.errors import InvalidArgument
from trimodal.server.process import TritonServer

pytestmark = [pytest.mark.e2e, pytest.mark.build, pytest.mark.slow]

CHAT = [{"role": "user", "content": "What is the capital of Japan?"}]


@pytest.fixture(scope="module")
def server(serve: Callable[..., TritonServer]) -> TritonServer:
    return serve(models=("llm",), changes={"llm": {"cache": "coalesce", "numerics": "reproducible"}})


@pytest.fixture(scope="module")
def client(server: TritonServer) -> Iterator[openai.OpenAI]:
    with gateway(server.grpc_url) as url, opened(url) as client:
        yield client


def test_a_schema_that_cannot_be_kept_fails_alone(server: TritonServer, client: openai.OpenAI) -> None:
    schema = {"type": "string", "pattern": "("}
    create = client.chat.completions.create
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}
    with ThreadPoolExecutor(5) as pool:
        others = [pool.submit(create, model="llm", messages=CHAT, max_tokens=60) for _ in range(4)]
        with pytest.raises(openai.BadRequestError, match="response_format") as caught:
            create(model="llm", messages=CHAT, response_format=form)
        assert "pattern" in str(caught.value)
        assert caught.value.param == "response_format"
        texts = {one.result().choices[0].message.content for one in others}
    assert len(texts) == 1
    wait_until(lambda: total(server, "trimodal_llm_active_requests") == 0, "no active request")


async def test_the_typed_client_asks_for_a_form(server: TritonServer) -> None:
    form = {"type": "json_schema", "json_schema": {"schema": {"type": "array", "items": {"enum": [1, 2]}}}}
    async with Client(server.grpc_url) as client:
        answer = await client.complete(messages=CHAT, response_format=form, max_tokens=200, temperature=1)
        if answer.finish_reason == "stop":
            assert set(json.loads(answer.text)) <= {1, 2}
        cut = await client.complete(messages=CHAT, response_format=form, stop="[", max_tokens=20)
        assert (cut.text.strip(), cut.finish_reason) == ("", "stop")
        with pytest.raises(InvalidArgument, match="tools needs messages"):
            await client.complete("hi", tools=[WEATHER])


def test_equal_prompts_of_other_forms_are_not_shared(client: openai.OpenAI) -> None:
    """With `coalesce` equal requests share one generation: these are not equal."""
    create = client.chat.completions.create
    forms = [{"type": "text"}, {"type": "json_object"}, {"type": "text"}, {"type": "json_object"}]
    with ThreadPoolExecutor(4) as pool:
        asked = [
            pool.submit(create, model="llm", messages=CHAT, response_format=form, max_tokens=40)
            for form in forms
        ]
        first = [one.result().choices[0].message.content[0] for one in asked]
    assert [letter == "{" for letter in first] == [False, True, False, True]
