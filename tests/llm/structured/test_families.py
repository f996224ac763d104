"""Texts as models of each family write them, whole and in pieces of every size."""

from __future__ import annotations

import pytest

from trimodal.llm.structured.families import (
    THINKING,
    AnswerReader,
    CallTranslator,
    ThoughtReader,
    calls_of,
    thinking_of,
)

NAMES = ("get_weather", "get_time")
WEATHER = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
TIME = '<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call>'
PYTHON = "<|python_tag|>"


def read(reader: AnswerReader, text: str, size: int) -> tuple[str, str]:
    """Thoughts and words of a text that comes in pieces."""
    thoughts, words = "", ""
    for at in range(0, len(text), size):
        for_now = reader.push(text[at : at + size], last=False)
        thoughts, words = thoughts + for_now[0], words + for_now[1]
    end = reader.push("", last=True)
    return thoughts + end[0], words + end[1]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 1000])
@pytest.mark.parametrize(
    ("family", "opened", "text", "thoughts", "words"),
    [
        ("qwen3", False, "<think>\nLet me see.\n</think>\n\n4", "Let me see.", "4"),
        ("qwen3", False, "\n<think>a</think>b", "a", "b"),
        ("qwen3", True, "Two and two.\n</think>\n\nIt is 4.\n", "Two and two.", "It is 4.\n"),
        ("qwen3", True, "cut off by its length </thi", "cut off by its length </thi", ""),
        ("qwen3", False, "It is <think>4</think>.", "", "It is <think>4</think>."),
        ("qwen3", False, "<thin ice", "", "<thin ice"),
        ("qwen3", False, "<thi", "", "<thi"),
        ("qwen3", False, "<think>a\n\nb < c</think>\n\n\nd\n\n", "a\n\nb < c", "d\n\n"),
        ("qwen3", True, "</think>\n\n4", "", "4"),
        ("qwen3", False, "  indented", "", "  indented"),
        ("seed_oss", False, "<seed:think>hm</seed:think>4", "hm", "4"),
        ("mistral", False, "[THINK]hm[/THINK]4", "hm", "4"),
    ],
)
def test_thoughts_and_words(
    family: str, opened: bool, text: str, thoughts: str, words: str, size: int
) -> None:
    reader = AnswerReader(ThoughtReader(THINKING[family], open=opened), None, whole=False)
    assert read(reader, text, size) == (thoughts, words)


LLAMA = '{"name": "get_weather", "parameters": {"city": "Paris"}}'
CASES = [
    ("llama3_json", LLAMA, WEATHER),
    ("llama3_json", f"{PYTHON}{LLAMA}", WEATHER),
    ("llama3_json", f'{LLAMA}; {{"name": "get_time", "arguments": {{}}}}', f"{WEATHER}\n{TIME}"),
    ("llama3_json", f"\n\n{LLAMA}\n", WEATHER),
    ("llama3_json", "The weather is fine.", None),
    ("llama3_json", f"I would call {LLAMA}", None),
    ("llama3_json", '{"name": "launch", "parameters": {}}', None),
    ("llama3_json", '{"name": "get_weather", "parameters": {"city": "Par', None),
    ("llama3_json", '{"name": "get_weather", "parameters": "Paris"}', None),
    ("llama3_json", '{"answer": 42}', None),
    ("llama3_json", "{not JSON", None),
    ("llama3_json", "<|python", None),
    ("llama3_json", "", None),
    ("mistral", '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Paris"}}]', WEATHER),
    (
        "mistral",
        '[TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Paris"}}, '
        '{"name": "get_time", "arguments": {}}]',
        f"{WEATHER}\n{TIME}",
    ),
    (
        "mistral",
        '[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}[TOOL_CALLS]get_time[ARGS]{}',
        f"{WEATHER}\n{TIME}",
    ),
    ("mistral", '[TOOL_CALLS]get_weather[CALL_ID]1a2b3c4d5[ARGS]{"city": "Paris"}', WEATHER),
    ("mistral", '[TOOL_CALLS]get_weather{"city": "Paris"}', WEATHER),
    ("mistral", 'Let me look.[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}', f"Let me look.{WEATHER}"),
    ("mistral", "No [TOOL is needed.", None),
    ("mistral", '[TOOL_CALLS]launch[ARGS]{"city": "Paris"}', None),
    ("mistral", '[TOOL_CALLS]get_weather[ARGS]{"city": "Par', None),
    (
        "mistral",
        '[TOOL_CALLS]get_weather[ARGS]{"city": "[TOOL_CALLS]; [THINK]"}',
        WEATHER.replace("Paris", "[TOOL_CALLS]; [THINK]"),
    ),
    ("llama3_json", LLAMA.replace("Paris", PYTHON), WEATHER.replace("Paris", PYTHON)),
    ("mistral", '[TOOL_CALLS]get_weather[ARGS]{"degrees": NaN}', None),  # which JSON has not
    ("mistral", '[TOOL_CALLS]get_weather[ARGS]{"degrees": 1e999}', None),
    ("mistral", '[TOOL_CALLS]get_weather[ARGS]{"city": "\\ud800"}', None),  # which UTF-8 has not
    ("mistral", "[TOOL_CALLS]" + "[" * 5000, None),
    ("mistral", '[TOOL_CALLS]get_weather [ARGS] {"city": "Paris"}', WEATHER),
    ("mistral", '[TOOL_CALLS]get_weather[CALL_ID]1a2b \n[ARGS]\n{"city": "Paris"}', WEATHER),
    ("llama3_json", '{"a":' * 5000, None),
]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 1000])
@pytest.mark.parametrize(("family", "text", "expected"), CASES)
def test_calls_in_free_text(family: str, text: str, expected: str | None, size: int) -> None:
    reader = AnswerReader(None, CallTranslator(family, NAMES), whole=True)
    assert read(reader, text, size) == ("", text if expected is None else expected)


@pytest.mark.parametrize("text", ["[CALL_ID]", "", "[ARGS]", "[CALL_ID]a[ARGS]"])
def test_blanks_that_never_end_are_read_once(text: str) -> None:
    """Half a million of them would take an hour where each is tried as two things."""
    text = f"[TOOL_CALLS]get_weather{text}{' ' * 500_000}"
    assert CallTranslator("mistral", NAMES).push(text, last=True) == text


def test_a_call_after_thoughts() -> None:
    thoughts = ThoughtReader(THINKING["qwen3"], open=True)
    reader = AnswerReader(thoughts, CallTranslator("llama3_json", NAMES), whole=True)
    assert read(reader, f"Which city?</think>\n\n{LLAMA}", 4) == ("Which city?", WEATHER)


def test_text_goes_on_before_it_is_whole() -> None:
    for family in ("llama3_json", "mistral"):
        translator = CallTranslator(family, NAMES)
        assert translator.push("The weather", last=False) == "The weather"
        assert translator.push(" is {fine", last=False) == " is {fine"


@pytest.mark.parametrize(
    ("template", "calls", "thinking"),
    [
        ("{% if tools %}<tool_call>{% endif %}{{ content.split('</think>')[-1] }}", "hermes", "qwen3"),
        ("[AVAILABLE_TOOLS]…[TOOL_CALLS]", "mistral", None),
        ("[THINK]{{ x }}[/THINK][TOOL_CALLS]", "mistral", "mistral"),
        ('<|start_header_id|>{{ \'{"name": … \' }} "parameters": dictionary', "llama3_json", None),
        ("<|im_start|>{{ messages }}", "hermes", None),
    ],
)
def test_a_template_tells_the_family(template: str, calls: str, thinking: str | None) -> None:
    assert calls_of(template) == calls
    assert thinking_of(template) == (THINKING[thinking] if thinking else None)
