"""What a model thinks and calls of its own accord, told apart from its words."""

from __future__ import annotations

from typing import Any

from tests.llm.doubles.sinks import Collector, FakeServer
from tests.llm.doubles.tensors import tensors
from trimodal.llm.engines.protocol import Sampling
from trimodal.llm.request.outputs import columns
from trimodal.llm.request.request import GenerationRequest, read_request
from trimodal.llm.tokenizer import ByteTokenizer

TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}]
CHAT = [{"role": "user", "content": "a"}]
CALL = '{"name": "get_weather", "parameters": {"city": "Paris"}}'


def answered(server: FakeServer, begun: str = "", **more: Any) -> Collector:
    """The whole answer to a chat whose prompt has the scripted one begin at its first byte."""
    script = server.settings.fake_answer.encode()
    for blanks in range(len(script)):
        messages = [{"role": "user", "content": "!" * blanks}]
        messages += [{"role": "assistant", "content": begun}] if begun else []
        inputs = tensors(messages=messages, max_tokens=len(script), **more)
        request = read_request(inputs, {}, server.settings)
        assert isinstance(request, GenerationRequest)
        if sum(request.token_ids(ByteTokenizer(), True)) % len(script) == 0:
            return server.submit(request).wait()
    raise AssertionError("no prompt begins it there")


def thoughts(sink: Collector) -> str:
    return "".join(delta.reasoning for delta in sink.deltas)


def test_thoughts_stream_apart_from_words() -> None:
    answer = "<think>\nTwo and two.\n</think>\n\nIt is 4."
    with FakeServer(fake_answer=answer, reasoning_parser="qwen3") as server:
        sink = answered(server)
        assert (thoughts(sink), sink.text) == ("Two and two.", "It is 4.")
        assert len(sink.deltas) > 3, "they stream"
        first = columns(next(delta for delta in sink.deltas if delta.reasoning))
        assert (first["text_output"][0], bytes(first["reasoning"][0])[:1]) == (b"", b"T")
        script = answer.encode()
        prompt = next(one for n in range(999) if sum(one := [3, *[1] * n]) % len(script) == 0)
        request = GenerationRequest(None, None, Sampling(len(script)), prompt_token_ids=tuple(prompt))
        raw = server.submit(request)
        assert (raw.wait().text, thoughts(raw)) == (answer, ""), "a raw prompt is answered raw"
    with FakeServer(fake_answer=answer) as server:
        assert answered(server).text == answer, "a model whose template has no thoughts thinks none"


def test_thoughts_that_the_prompt_began() -> None:
    with FakeServer(fake_answer="Two.</think>4", reasoning_parser="qwen3") as server:
        sink = answered(server, begun="<think>")
        assert (thoughts(sink), sink.text) == ("Two.", "4")


def test_a_call_in_free_text_is_one_where_functions_may_be_called() -> None:
    with FakeServer(fake_answer=CALL, tool_call_parser="llama3_json") as server:
        expected = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
        assert answered(server, tools=TOOLS).text == expected
        assert answered(server).text == CALL
        assert answered(server, tools=TOOLS, tool_choice="none").text == CALL


def test_a_grammar_holds_the_calls_that_must_be() -> None:
    """Those that are strict or asked for, and all of models that write Hermes' anyway."""
    strict = [{"type": "function", "function": {**TOOLS[0]["function"], "strict": True}}]  # type: ignore[dict-item]
    with FakeServer(tool_call_parser="mistral") as server, FakeServer() as hermes:

        def grammar(settings: Any, **inputs: Any) -> str:
            request = read_request(tensors(messages=CHAT, **inputs), {}, settings)
            assert isinstance(request, GenerationRequest)
            return request.sampling.grammar

        assert grammar(server.settings, tools=TOOLS) == ""
        assert "<tool_call>" in grammar(server.settings, tools=strict)
        assert "<tool_call>" in grammar(server.settings, tools=TOOLS, tool_choice="required")
        assert "<tool_call>" in grammar(hermes.settings, tools=TOOLS)


def test_an_answer_in_a_form_has_no_thoughts() -> None:
    with FakeServer(reasoning_parser="qwen3") as server:
        asked = tensors(messages=CHAT, response_format={"type": "json_object"})
        request = read_request(asked, {}, server.settings)
        assert isinstance(request, GenerationRequest)
        assert not request.form.free
