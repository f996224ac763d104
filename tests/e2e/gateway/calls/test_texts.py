"""Text completions and embeddings."""

from __future__ import annotations

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


def test_a_completion_streamed(starter: Starter) -> None:
    *chunks, last = starter.lenient.completions.create(
        model="llm", prompt=BEGUN, max_tokens=8, stream=True, stream_options={"include_usage": True}
    )
    assert "Tokyo" in "".join(chunk.choices[0].text for chunk in chunks)
    assert chunks[-1].choices[0].finish_reason == "length"
    assert last.usage.completion_tokens == 8


def test_alike_texts_are_near(starter: Starter) -> None:
    texts = ["how do I read a file?", "opening and reading files", "the cat sleeps on the sofa"]
    found = starter.lenient.embeddings.create(model="embedding", input=texts).data
    question, near, far = (np.array(one.embedding) for one in found)
    assert question @ near > question @ far + 0.2
