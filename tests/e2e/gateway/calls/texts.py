"""Text completions, responses and embeddings."""

from __future__ import annotations

import base64

import numpy as np
import openai
import pytest

from tests.e2e.gateway.calls.chat import TRUTH
from tests.e2e.gateway.calls.table import TOPICS, Demo, call

LAMBDA, WHILE = "what is a lambda?", "explain the while statement"
SIZE = 384


@call
def a_completion(demo: Demo) -> str:
    answer = demo.client.completions.create(model="llm", prompt=LAMBDA)
    assert (answer.object, answer.choices[0].text) == ("text_completion", TRUTH)
    assert answer.choices[0].finish_reason == "stop"
    return answer.choices[0].text


@call
def several_prompts_of_two_choices(demo: Demo) -> str:
    answer = demo.client.completions.create(model="llm", prompt=[LAMBDA, WHILE], n=2)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert [choice.text for choice in answer.choices] == [TRUTH, TRUTH, TOPICS["while"], TOPICS["while"]]
    return "four right texts"


@call
def a_completion_with_its_prompt(demo: Demo) -> str:
    answer = demo.client.completions.create(model="llm", prompt=LAMBDA, echo=True, max_tokens=5)
    text = answer.choices[0].text
    assert text.startswith(LAMBDA)
    assert TRUTH.startswith(text.removeprefix(LAMBDA))
    assert answer.choices[0].finish_reason == "length"
    return text


@call
def a_completion_streamed(demo: Demo) -> str:
    *chunks, last = demo.lenient.completions.create(
        model="llm", prompt=LAMBDA, stream=True, stream_options={"include_usage": True}
    )
    assert "".join(chunk.choices[0].text for chunk in chunks) == TRUTH
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert last.usage.completion_tokens > 5
    return f"{len(chunks)} chunks"


@call
def a_completion_until_a_stop(demo: Demo) -> str:
    answer = demo.client.completions.create(model="llm", prompt=LAMBDA, stop=["."], temperature=0)
    assert answer.choices[0].text == TRUTH.partition(".")[0]
    return answer.choices[0].text


@call
def a_response(demo: Demo) -> str:
    answer = demo.client.responses.create(model="llm", input=LAMBDA)
    assert (answer.status, answer.output_text) == ("completed", TRUTH)
    assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens > 0
    return answer.output_text


@call
def a_response_streamed(demo: Demo) -> str:
    events = list(demo.client.responses.create(model="llm", input=LAMBDA, stream=True))
    kinds = [event.type.removeprefix("response.") for event in events]
    assert list(dict.fromkeys(kinds)) == [
        "created", "in_progress", "output_item.added", "content_part.added", "output_text.delta",
        "output_text.done", "content_part.done", "output_item.done", "completed",
    ]  # fmt: skip
    assert [event.sequence_number for event in events] == list(range(len(events)))
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == events[-1].response.output_text == TRUTH
    return f"{len(events)} events"


@call
def the_packages_own_stream_of_a_response(demo: Demo) -> str:
    with demo.client.responses.stream(model="llm", input=LAMBDA) as stream:
        final = stream.get_final_response()
    assert final.output_text == TRUTH
    return final.output_text


@call
def a_response_that_is_cut(demo: Demo) -> str:
    answer = demo.client.responses.create(model="llm", input=LAMBDA, max_output_tokens=5)
    assert (answer.status, answer.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert answer.usage.output_tokens == 5
    assert TRUTH.startswith(answer.output_text)
    return answer.output_text


@call
def a_talk_of_responses(demo: Demo) -> str:
    create = demo.client.responses.create
    talk = [{"role": "user", "content": LAMBDA}]
    talk += create(model="llm", input=talk).output
    talk.append({"role": "user", "content": [{"type": "input_text", "text": WHILE}]})
    answer = create(model="llm", input=talk, instructions="You answer questions about Python.")
    assert answer.output_text == TOPICS["while"]
    return answer.output_text


@call
async def a_response_async(demo: Demo) -> str:
    async with demo.asynchronous() as client:
        answer = await client.responses.create(model="llm", input=WHILE)
        events = await client.responses.create(model="llm", input=WHILE, stream=True)
        last = [event async for event in events][-1]
    assert answer.output_text == last.response.output_text == TOPICS["while"]
    return answer.output_text


@call
def an_embedding_in_floats(demo: Demo) -> str:
    found = demo.client.embeddings.create(model="embedding", input="a text", encoding_format="float")
    vector = found.data[0].embedding
    assert len(vector) == SIZE
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-4)
    return f"{SIZE} numbers"


@call
def base64_has_the_same_numbers(demo: Demo) -> str:
    create = demo.lenient.embeddings.create
    floats = create(model="embedding", input="a text", encoding_format="float").data[0].embedding
    usual = create(model="embedding", input="a text").data[0].embedding  # the package asks for base64
    raw = create(model="embedding", input="a text", encoding_format="base64").data[0].embedding
    assert usual == pytest.approx(floats, abs=1e-6)
    assert np.frombuffer(base64.b64decode(raw), "<f4") == pytest.approx(np.array(floats), abs=1e-6)
    return f"{len(raw)} letters"


@call
def fewer_dimensions(demo: Demo) -> str:
    create = demo.lenient.embeddings.create
    whole = np.array(create(model="embedding", input="a text").data[0].embedding)
    cut = np.array(create(model="embedding", input="a text", dimensions=64).data[0].embedding)
    assert cut == pytest.approx(whole[:64] / np.linalg.norm(whole[:64]), abs=1e-6)
    return f"{len(cut)} numbers"


@call
def a_hundred_texts_keep_their_order(demo: Demo) -> str:
    texts = [f"text number {number}" for number in range(100)]
    found = demo.lenient.embeddings.create(model="embedding", input=texts).data
    assert [one.index for one in found] == list(range(100))
    alone = demo.lenient.embeddings.create(model="embedding", input=texts[73]).data[0].embedding
    together = np.array([one.embedding for one in found])
    assert int(np.argmax(together @ np.array(alone))) == 73
    return f"{len(found)} vectors"


@call
def alike_texts_are_near(demo: Demo) -> str:
    texts = ["how do I read a file?", "opening and reading files", "the cat sleeps on the sofa"]
    found = demo.lenient.embeddings.create(model="embedding", input=texts).data
    question, near, far = (np.array(one.embedding) for one in found)
    assert question @ near > question @ far + 0.2
    return f"{question @ near:.2f} and {question @ far:.2f}"


@call
async def an_embedding_async(demo: Demo) -> str:
    async with demo.asynchronous(strict=False) as client:
        found = await client.embeddings.create(model="embedding", input=["a", "b"])
    assert [len(one.embedding) for one in found.data] == [SIZE, SIZE]
    return f"{len(found.data)} vectors"


@call
def tokens_for_an_embedding_are_refused(demo: Demo) -> str:
    for tokens in ([1, 2, 3], [[1, 2], [3]]):
        with pytest.raises(openai.BadRequestError, match="input") as caught:
            demo.lenient.embeddings.create(model="embedding", input=tokens)
    return caught.value.message
