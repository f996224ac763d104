"""Chats as transformers renders them, by templates as checkpoints have them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from trimodal.errors import ArtefactError, InvalidArgument
from trimodal.llm.chat_template import ChatTemplate, special_tokens, template_source
from trimodal.llm.rendering import Rendering

TOKENS = {"bos_token": "<|begin|>", "eos_token": "<|end|>"}
CHAT = [
    {"role": "system", "content": " Be <brief> & 'kind'. "},
    {"role": "user", "content": "Wie spät?"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"type": "function", "function": {"name": "clock", "arguments": {"zone": "MEZ", "ü": [1, None]}}}
        ],
    },
    {"role": "tool", "content": "12:30"},
    {"role": "assistant", "content": "Halb eins."},
    {"role": "user", "content": "Danke!\n"},
]
PLAIN = [message for message in CHAT if message["role"] != "tool" and not message.get("tool_calls")]
CLOCK = {
    "type": "function",
    "function": {
        "name": "clock",
        "description": "Tells the time <now>.",
        "parameters": {"type": "object", "properties": {"zone": {"type": "string"}}},
    },
}

SMOLLM2 = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>"
    "\n' }}"
    "{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
LLAMA3 = """{{- bos_token }}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- if not date_string is defined %}
    {%- set date_string = strftime_now("%d %b %Y") %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\n\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\n" }}
{%- endif %}
{{- "Today Date: " + date_string + "\n\n" }}
{{- system_message + "<|eot_id|>" }}
{%- for tool in tools or [] %}
    {{- tool | tojson(indent=4) }}
{%- endfor %}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls | length == 1 %}
            {{- raise_exception("This model only supports single tool-calls at once!") }}
        {%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '{"name": "' + call.name + '", "parameters": ' }}
        {{- call.arguments | tojson }}
        {{- "}<|eot_id|>" }}
    {%- else %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\n\n" + message.content | tojson + "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %}
"""  # noqa: E501
QWEN = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- "# Tools\\n\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == "assistant" %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content }}
        {%- for tool_call in message.tool_calls or [] %}
            {%- set tool_call = tool_call.function %}
            {{- '\\n<tool_call>\\n{"name": "' ~ tool_call.name ~ '", "arguments": ' ~ tool_call.arguments | tojson ~ '}' }}
            {{- '\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' }}
    {%- elif loop.index0 > 0 or not tools %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""  # noqa: E501
MISTRAL = """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- for message in loop_messages | rejectattr("role", "equalto", "tool") | selectattr("tool_calls", "undefined") %}
    {%- if (message["role"] == "user") != (loop.index0 % 2 == 0) %}
        {{- raise_exception("conversation roles must alternate user and assistant") }}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[AVAILABLE_TOOLS]" + tools | tojson + "[/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {{- "[INST] " + (system_message + "\n\n" if loop.last and system_message is defined else "") }}
        {{- message["content"] + "[/INST]" }}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[TOOL_CALLS] [" }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function|tojson %}
            {{- out[:-1] }}
            {%- if not tool_call.id is defined or tool_call.id|length != 9 %}
                {{- raise_exception("Tool call IDs should be alphanumeric strings with length 9!") }}
            {%- endif %}
            {{- ', "id": "' + tool_call.id + '"}' }}
            {%- if not loop.last %}
                {{- ", " }}
            {%- else %}
                {{- "]" + eos_token }}
            {%- endif %}
        {%- endfor %}
    {%- elif message["role"] == "tool" %}
        {{- '[TOOL_RESULTS] {"content": ' + message.content|string + ", " }}
        {%- if not message.tool_call_id is defined or message.tool_call_id|length != 9 %}
            {{- raise_exception("Tool call IDs should be alphanumeric strings with length 9!") }}
        {%- endif %}
        {{- '"call_id": "' + message.tool_call_id + '"}[/TOOL_RESULTS]' }}
    {%- else %}
        {{- " " + message["content"] + eos_token }}
    {%- endif %}
{%- endfor %}
"""  # noqa: E501
TAGS = """
{% for message in messages %}
    {% if message.role == 'system' %}
        {% continue %}
    {% endif %}
    {% if loop.index > 5 %}
        {% break %}
    {% endif %}
    {% if message.role == 'assistant' %}
        {% generation %}
{{ loop.index }}:{{ message.content }}{{ eos_token }}
        {% endgeneration %}
    {% else %}
        {%- set mark = '>' -%}
{{ mark }}{{ message.content }}
    {% endif %}
{% endfor %}
{%- if tools is not none %}{{ tools | tojson(separators=(',', ':'), sort_keys=true) }}{% endif %}
{%- generation -%} {% set mark = 'inside' %}{{ mark }} {%- endgeneration -%}
{{ mark is defined }}{{ documents is none }}
"""


def called(*ids: str) -> list[dict[str, Any]]:
    """A chat with a call and its answer by each of the ids."""
    function = {"name": "clock", "arguments": {"zone": "MEZ"}}
    calls = [{"id": id, "type": "function", "function": function} for id in ids]
    answers = [{"role": "tool", "content": "12:30", "tool_call_id": id} for id in ids]
    asked = {"role": "user", "content": "Wie spät?"}
    return [asked, {"role": "assistant", "content": "", "tool_calls": calls}, *answers]


CONTINUED = Rendering(add_generation_prompt=False, continue_final_message=True)
CASES = {
    "smollm2": (SMOLLM2, PLAIN, ()),
    "smollm2, its own system message": (SMOLLM2, PLAIN[1:], ()),
    "llama 3": (LLAMA3, PLAIN, ()),
    "llama 3 with tools": (LLAMA3, CHAT, (CLOCK,)),
    "qwen": (QWEN, PLAIN, ()),
    "qwen with tools": (QWEN, CHAT, (CLOCK,)),
    "mistral": (MISTRAL, PLAIN, ()),
    "mistral with tools": (MISTRAL, called("aB3dE6gH9"), (CLOCK,)),
    "generation, break, continue": (TAGS, CHAT, ()),
    "generation, break, continue, with tools": (TAGS, CHAT, (CLOCK,)),
}


@pytest.fixture(scope="module")
def reference() -> Any:
    """transformers' tokenizer, which renders by whatever template it is given."""
    transformers = pytest.importorskip("transformers")
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, **TOKENS)


def rendered_by(reference: Any, template: str, chat: list[dict[str, Any]], tools: Any = ()) -> str:
    rendered: str = reference.apply_chat_template(
        chat, list(tools) or None, chat_template=template, add_generation_prompt=True, tokenize=False
    )
    return rendered


@pytest.mark.build
@pytest.mark.parametrize(("template", "chat", "tools"), CASES.values(), ids=CASES)
def test_a_chat_is_rendered_as_in_transformers(
    reference: Any, template: str, chat: list[dict[str, Any]], tools: tuple[Any, ...]
) -> None:
    theirs = rendered_by(reference, template, chat, tools)
    assert ChatTemplate(template).render(chat, tools, TOKENS) == theirs
    assert chat[1]["content"] in theirs or chat[0]["content"] in theirs


@pytest.mark.build
@pytest.mark.parametrize("template", [SMOLLM2, LLAMA3, QWEN, MISTRAL])
def test_a_message_is_continued_as_in_transformers(reference: Any, template: str) -> None:
    begun = [{"role": "user", "content": "When?"}, {"role": "assistant", "content": "It is  about"}]
    theirs = reference.apply_chat_template(
        begun, chat_template=template, continue_final_message=True, tokenize=False
    )
    assert theirs.endswith("It is  about")
    assert ChatTemplate(template).render(begun, (), TOKENS, CONTINUED) == theirs


@pytest.mark.parametrize(
    "ids", [("call_0123456789abcdef01234567", "call_2"), ("chatcmpl-tool-ü", "a-b_c-d_e")]
)
def test_mistrals_templates_are_given_ids_of_calls_that_they_take(ids: tuple[str, str]) -> None:
    chat = called(*ids)
    rendered = ChatTemplate(MISTRAL).render(chat, [CLOCK], TOKENS)
    first, second = re.findall('"id": "([a-zA-Z0-9]{9})"}', rendered)
    assert first != second
    assert re.findall('"call_id": "(.*?)"', rendered) == [first, second]
    assert chat == called(*ids)


def test_a_call_of_mistrals_without_an_id_and_its_answer_have_one() -> None:
    rendered = ChatTemplate(MISTRAL).render(CHAT[1:4], [CLOCK], TOKENS)
    assert re.findall('"id": "(.{9})"', rendered) == re.findall('"call_id": "(.{9})"', rendered) != []


def test_a_template_that_leaves_the_last_message_out_continues_nothing() -> None:
    with pytest.raises(InvalidArgument, match="^continue_final_message: the chat template leaves"):
        ChatTemplate("{{ messages[0].content }}").render([*PLAIN, PLAIN[-1]], (), TOKENS, CONTINUED)


def test_a_template_is_told_what_else_the_request_has() -> None:
    template = "{{ 'thinks' if enable_thinking else 'talks' }} {{ add_generation_prompt }}"
    told = Rendering(add_generation_prompt=False, kwargs={"enable_thinking": True})
    assert ChatTemplate(template).render(PLAIN, (), TOKENS, told) == "thinks False"
    assert ChatTemplate(template).render(PLAIN, (), TOKENS) == "talks True"


@pytest.mark.parametrize(("template", "dated"), [(LLAMA3, True), (QWEN, False), (MISTRAL, False)])
def test_a_template_that_may_write_the_day_is_known(template: str, dated: bool) -> None:
    assert ChatTemplate(template).is_dated is dated


@pytest.mark.build
def test_what_a_template_refuses_is_refused_by_both(reference: Any) -> None:
    import jinja2

    chat = [*PLAIN, PLAIN[-1]]
    with pytest.raises(jinja2.TemplateError, match="must alternate user and assistant"):
        rendered_by(reference, MISTRAL, chat)
    with pytest.raises(InvalidArgument, match="template refuses them: .* must alternate user and assistant"):
        ChatTemplate(MISTRAL).render(chat, (), TOKENS)


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages[0].content + 1 }}",
        "{{ messages[9].content.x }}",
        "{{ 1 / 0 }}",
        "{{ messages[0].content.nothing.at.all }}",
        "{{ messages.append(1) }}",
        "{{ range(10000000) | list }}",
        "{{ messages.__class__.__mro__ }}",
    ],
)
def test_a_template_that_fails_is_one_sentence(template: str) -> None:
    with pytest.raises(InvalidArgument, match="^messages: the chat template refuses them: .+"):
        ChatTemplate(template).render(PLAIN, (), TOKENS)


def test_a_template_that_is_none_stops_loading_and_names_the_line() -> None:
    with pytest.raises(ArtefactError, match="chat template cannot be read: line 2: .* unknown tag 'think'"):
        ChatTemplate("{{ bos_token }}\n{% think %}")


def test_a_template_is_found_in_its_file_or_in_the_configuration(tmp_path: Path) -> None:
    assert template_source(tmp_path, {}) is None
    named = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
    assert template_source(tmp_path, {"chat_template": named}) == "d"
    (tmp_path / "chat_template.jinja").write_text("ü", encoding="utf-8")
    assert template_source(tmp_path, {"chat_template": "c"}) == "ü"


def test_special_tokens_are_those_with_a_text() -> None:
    config = {"bos_token": {"content": "<s>"}, "eos_token": "</s>", "pad_token": None, "add_bos_token": True}
    assert special_tokens(config) == {"bos_token": "<s>", "eos_token": "</s>"}
