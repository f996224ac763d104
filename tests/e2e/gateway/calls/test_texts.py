"""Text completions and embeddings."""

from __future__ import annotations

import base64

import numpy as np
import openai
import pytest

from tests.e2e.conftest import MODEL_REPOSITORY
from tests.e2e.gateway.calls.starter import JAPAN as CHAT
from tests.e2e.gateway.calls.starter import Starter
from trimodal.llm.tokenizer import CheckpointTokenizer

pytestmark = [pytest.mark.e2e, pytest.mark.build, pytest.mark.slow]

JAPAN = CHAT[0]["content"]
BEGUN = "The capital of Japan is"  # a completion goes on with its prompt
SIZE = 384


def test_a_completion(starter: Starter) -> None:
    answer = starter.client.completions.create(model="llm", prompt=BEGUN, max_tokens=8)
    assert answer.object == "text_completion"
    assert "Tokyo" in answer.choices[0].text
    assert answer.choices[0].finish_reason == "length"


def test_several_prompts_of_two_choices(starter: Starter) -> None:
    asked = [BEGUN, "The capital of Greece is"]
    answer = starter.client.completions.create(model="llm", prompt=asked, n=2, max_tokens=8, temperature=0)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    one, again, two, again_two = (choice.text for choice in answer.choices)
    assert (one, two) == (again, again_two)
    assert "Tokyo" in one
    assert "Athens" in two


def test_prompts_of_token_ids(starter: Starter) -> None:
    tokenizer = CheckpointTokenizer(MODEL_REPOSITORY / "llm" / "1" / "openvino-int8")
    asked = [tokenizer.encode_prompt(BEGUN), tokenizer.encode_prompt("The capital of Greece is")]
    answer = starter.client.completions.create(model="llm", prompt=asked, max_tokens=8)
    one, two = (choice.text for choice in answer.choices)
    assert one == starter.client.completions.create(model="llm", prompt=BEGUN, max_tokens=8).choices[0].text
    assert "Athens" in two


def test_a_text_beyond_the_models_length(starter: Starter) -> None:
    create, long = starter.lenient.embeddings.create, "word " * 300
    with pytest.raises(openai.BadRequestError, match="input has 300 tokens: this model reads 254"):
        create(model="embedding", input=long)
    answer = create(model="embedding", input=long, extra_body={"truncate": True})
    assert answer.usage.prompt_tokens == 256


def test_a_completion_with_its_prompt(starter: Starter) -> None:
    answer = starter.client.completions.create(model="llm", prompt=BEGUN, echo=True, max_tokens=5)
    assert answer.choices[0].text.startswith(f"{BEGUN} Tokyo")
    assert answer.choices[0].finish_reason == "length"


def test_a_completion_streamed(starter: Starter) -> None:
    *chunks, last = starter.lenient.completions.create(
        model="llm", prompt=BEGUN, max_tokens=8, stream=True, stream_options={"include_usage": True}
    )
    assert "Tokyo" in "".join(chunk.choices[0].text for chunk in chunks)
    assert chunks[-1].choices[0].finish_reason == "length"
    assert last.usage.completion_tokens == 8


def test_base64_has_the_same_numbers(starter: Starter) -> None:
    create = starter.lenient.embeddings.create
    floats = create(model="embedding", input="a text", encoding_format="float").data[0].embedding
    usual = create(model="embedding", input="a text").data[0].embedding  # the package asks for base64
    raw = create(model="embedding", input="a text", encoding_format="base64").data[0].embedding
    assert usual == pytest.approx(floats, abs=1e-6)
    assert np.frombuffer(base64.b64decode(raw), "<f4") == pytest.approx(np.array(floats), abs=1e-6)


def test_fewer_dimensions(starter: Starter) -> None:
    create = starter.lenient.embeddings.create
    whole = np.array(create(model="embedding", input="a text").data[0].embedding)
    cut = np.array(create(model="embedding", input="a text", dimensions=64).data[0].embedding)
    assert cut == pytest.approx(whole[:64] / np.linalg.norm(whole[:64]), abs=1e-6)


def test_a_hundred_texts_keep_their_order(starter: Starter) -> None:
    texts = [f"text number {number}" for number in range(100)]
    found = starter.lenient.embeddings.create(model="embedding", input=texts).data
    assert [one.index for one in found] == list(range(100))
    alone = starter.lenient.embeddings.create(model="embedding", input=texts[73]).data[0].embedding
    together = np.array([one.embedding for one in found])
    assert int(np.argmax(together @ np.array(alone))) == 73


def test_alike_texts_are_near(starter: Starter) -> None:
    texts = ["how do I read a file?", "opening and reading files", "the cat sleeps on the sofa"]
    found = starter.lenient.embeddings.create(model="embedding", input=texts).data
    question, near, far = (np.array(one.embedding) for one in found)
    assert question @ near > question @ far + 0.2


def test_tokens_for_an_embedding_are_refused(starter: Starter) -> None:
    for tokens in ([1, 2, 3], [[1, 2], [3]]):
        with pytest.raises(openai.BadRequestError, match="input"):
            starter.lenient.embeddings.create(model="embedding", input=tokens)
