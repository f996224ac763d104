"""Text completions, responses and embeddings."""

from __future__ import annotations

import base64

import numpy as np
import openai
import pytest

from tests.e2e.gateway.calls.demo import TOPICS, TRUTH, Demo

pytestmark = [pytest.mark.e2e, pytest.mark.build, pytest.mark.slow]

LAMBDA, WHILE = "what is a lambda?", "explain the while statement"
SIZE = 384


def test_a_completion(demo: Demo) -> None:
    answer = demo.client.completions.create(model="llm", prompt=LAMBDA)
    assert (answer.object, answer.choices[0].text) == ("text_completion", TRUTH)
    assert answer.choices[0].finish_reason == "stop"


def test_several_prompts_of_two_choices(demo: Demo) -> None:
    answer = demo.client.completions.create(model="llm", prompt=[LAMBDA, WHILE], n=2)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert [choice.text for choice in answer.choices] == [TRUTH, TRUTH, TOPICS["while"], TOPICS["while"]]


def test_a_completion_with_its_prompt(demo: Demo) -> None:
    answer = demo.client.completions.create(model="llm", prompt=LAMBDA, echo=True, max_tokens=5)
    text = answer.choices[0].text
    assert text.startswith(LAMBDA)
    assert TRUTH.startswith(text.removeprefix(LAMBDA))
    assert answer.choices[0].finish_reason == "length"


def test_a_completion_streamed(demo: Demo) -> None:
    *chunks, last = demo.lenient.completions.create(
        model="llm", prompt=LAMBDA, stream=True, stream_options={"include_usage": True}
    )
    assert "".join(chunk.choices[0].text for chunk in chunks) == TRUTH
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert last.usage.completion_tokens > 5


def test_a_response(demo: Demo) -> None:
    answer = demo.client.responses.create(model="llm", input=LAMBDA)
    assert (answer.status, answer.output_text) == ("completed", TRUTH)
    assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens > 0


def test_a_response_streamed(demo: Demo) -> None:
    events = list(demo.client.responses.create(model="llm", input=LAMBDA, stream=True))
    kinds = [event.type.removeprefix("response.") for event in events]
    assert list(dict.fromkeys(kinds)) == [
        "created", "in_progress", "output_item.added", "content_part.added", "output_text.delta",
        "output_text.done", "content_part.done", "output_item.done", "completed",
    ]  # fmt: skip
    assert [event.sequence_number for event in events] == list(range(len(events)))
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == events[-1].response.output_text == TRUTH


def test_the_packages_own_stream_of_a_response(demo: Demo) -> None:
    with demo.client.responses.stream(model="llm", input=LAMBDA) as stream:
        final = stream.get_final_response()
    assert final.output_text == TRUTH


def test_a_response_that_is_cut(demo: Demo) -> None:
    answer = demo.client.responses.create(model="llm", input=LAMBDA, max_output_tokens=5)
    assert (answer.status, answer.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert answer.usage.output_tokens == 5
    assert TRUTH.startswith(answer.output_text)


def test_a_talk_of_responses(demo: Demo) -> None:
    create = demo.client.responses.create
    talk = [{"role": "user", "content": LAMBDA}]
    talk += create(model="llm", input=talk).output
    talk.append({"role": "user", "content": [{"type": "input_text", "text": WHILE}]})
    answer = create(model="llm", input=talk, instructions="You answer questions about Python.")
    assert answer.output_text == TOPICS["while"]


def test_base64_has_the_same_numbers(demo: Demo) -> None:
    create = demo.lenient.embeddings.create
    floats = create(model="embedding", input="a text", encoding_format="float").data[0].embedding
    usual = create(model="embedding", input="a text").data[0].embedding  # the package asks for base64
    raw = create(model="embedding", input="a text", encoding_format="base64").data[0].embedding
    assert usual == pytest.approx(floats, abs=1e-6)
    assert np.frombuffer(base64.b64decode(raw), "<f4") == pytest.approx(np.array(floats), abs=1e-6)


def test_fewer_dimensions(demo: Demo) -> None:
    create = demo.lenient.embeddings.create
    whole = np.array(create(model="embedding", input="a text").data[0].embedding)
    cut = np.array(create(model="embedding", input="a text", dimensions=64).data[0].embedding)
    assert cut == pytest.approx(whole[:64] / np.linalg.norm(whole[:64]), abs=1e-6)


def test_a_hundred_texts_keep_their_order(demo: Demo) -> None:
    texts = [f"text number {number}" for number in range(100)]
    found = demo.lenient.embeddings.create(model="embedding", input=texts).data
    assert [one.index for one in found] == list(range(100))
    alone = demo.lenient.embeddings.create(model="embedding", input=texts[73]).data[0].embedding
    together = np.array([one.embedding for one in found])
    assert int(np.argmax(together @ np.array(alone))) == 73


def test_alike_texts_are_near(demo: Demo) -> None:
    texts = ["how do I read a file?", "opening and reading files", "the cat sleeps on the sofa"]
    found = demo.lenient.embeddings.create(model="embedding", input=texts).data
    question, near, far = (np.array(one.embedding) for one in found)
    assert question @ near > question @ far + 0.2


def test_tokens_for_an_embedding_are_refused(demo: Demo) -> None:
    for tokens in ([1, 2, 3], [[1, 2], [3]]):
        with pytest.raises(openai.BadRequestError, match="input"):
            demo.lenient.embeddings.create(model="embedding", input=tokens)
