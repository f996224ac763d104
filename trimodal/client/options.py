"""Turns the options of a generated answer into tensors. The server checks their limits."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict, get_args, get_type_hints

import numpy as np

from trimodal.client.transports.base import Array, utf8
from trimodal.client.transports.tensors import strings
from trimodal.client.values import Message
from trimodal.errors import InvalidArgument


class Options(TypedDict, total=False):
    """Sampling, and the terms of a request; what is left out, or None, is as the model or the tier says.

    Attributes:
        response_format: how the answer must look, as OpenAI has it: {"type": "json_object"}, or
            {"type": "json_schema", "json_schema": {"schema": …}}. A `stop` beside it may cut the form.
        tools: functions that may be called, as OpenAI has them; a call is text of the answer:
            <tool_call>, a line with {"name": …, "arguments": …}, </tool_call>.
        tool_choice: "none", "auto", "required", or {"type": "function", "function": {"name": …}}.
        parallel_tool_calls: whether there may be several calls in one answer.
        apply_chat_template: whether a bare prompt becomes a user message, or is continued as it stands.
        add_generation_prompt, continue_final_message: whether the prompt of a chat ends where the assistant
            begins to speak, or within its last message; an assistant's last message is continued unasked.
        chat_template_kwargs: what the chat template is told besides.
        min_tokens: so many come before the answer may end. ignore_eos: it ends at `max_tokens` only.
        stop_token_ids: each ends the answer. logit_bias: token id → -100 to 100, added to its logit.
        top_logprobs: tells the log probability of each token, and of so many (0 to 20) of the most likely in
            its place, as far as the engine has them.
        prompt_logprobs: the same of the prompt's tokens, in `AnswerStream.prompt_logprobs`.
        lora_name: the adapter to answer with, one of those that are loaded.
        tenant: whose stored answers may be used; nothing is shared between two.
        tier: class of service. priority: may only lower the tier's.
        ttft_deadline_ms: until the first text; a request that cannot make it is refused at once, with
            `Unavailable.retry_after_s`. deadline_ms: until the end; what came until then is kept.
        cache_control: of "no-cache", "no-store" and "store", commas between.
        cache_namespace: how long its answer may be kept, by name.
        cache_salt: only prompts with the same one find each other in the prefix cache of computed prompts.
        truncation: of a chat that is too long, as OpenAI has it: "auto" (it loses its oldest turns),
            "disabled" (it is refused), or {"type": "retention_ratio", "retention_ratio": 0.8} (down to so
            much of its room).
        cancel_key: 16 to 128 random characters; `Client.cancel(key)` then ends it, from anywhere.
    """

    max_tokens: int | None
    temperature: float | None
    top_p: float | None
    top_k: int | None
    min_p: float | None
    presence_penalty: float | None
    frequency_penalty: float | None
    repetition_penalty: float | None
    seed: int | None
    stop: str | Sequence[str] | None
    min_tokens: int | None
    ignore_eos: bool | None
    stop_token_ids: Sequence[int] | None
    logit_bias: str | Mapping[int, float] | Mapping[str, float] | None
    response_format: str | Mapping[str, Any] | None
    tools: str | Sequence[Mapping[str, Any]] | None
    tool_choice: str | Mapping[str, Any] | None
    parallel_tool_calls: bool | None
    apply_chat_template: bool | None
    add_generation_prompt: bool | None
    continue_final_message: bool | None
    chat_template_kwargs: str | Mapping[str, Any] | None
    top_logprobs: int | None
    prompt_logprobs: int | None
    lora_name: str | None
    tenant: str | None
    tier: str | None
    priority: int | None
    ttft_deadline_ms: int | None
    deadline_ms: int | None
    cache_control: str | None
    cache_namespace: str | None
    cache_salt: str | None
    truncation: str | Mapping[str, Any] | None
    cancel_key: str | None


_LISTS = ("stop", "stop_token_ids")
_ARRAYS: dict[Any, type[np.generic]] = {int: np.int32, float: np.float32, bool: np.bool_}
# Option → type of its tensor; None: text, or JSON where the value is no text.
_KINDS: dict[str, type[np.generic] | None] = {
    name: np.uint64 if name == "seed" else _ARRAYS.get(get_args(hint)[0])
    for name, hint in get_type_hints(Options).items()
    if name not in _LISTS
}
_TEXTS = {name for name, hint in get_type_hints(Options).items() if get_args(hint) == (str, type(None))}


def generation_inputs(
    prompt: str | Sequence[int] | None, messages: Sequence[Message] | None, options: Options
) -> dict[str, Array]:
    """Makes the llm model's tensors: text as UTF-8, numbers as [1]. Raises: InvalidArgument."""
    if unknown := sorted(options.keys() - Options.__annotations__.keys()):
        # A typo that no type checker has seen must not be ignored.
        known = ", ".join(sorted(Options.__annotations__))
        raise InvalidArgument(f"unknown option '{unknown[0]}': {known} are known")
    inputs: dict[str, Array] = {}
    if isinstance(prompt, str):
        inputs["text_input"] = strings([utf8("prompt", prompt)])
    elif prompt is not None:
        inputs["prompt_token_ids"] = _numbers("prompt", prompt, "text or its token ids are needed")
    if messages is not None:
        inputs["messages"] = strings([as_json("messages", listed("messages", messages))])
    for name, kind in _KINDS.items():
        value: Any = options.get(name)
        if value is None:
            continue
        if kind is None:
            is_text = name in _TEXTS or isinstance(value, str)
            inputs[name] = strings([utf8(name, value) if is_text else as_json(name, value)])
        else:
            inputs[name] = flag(name, value) if kind is np.bool_ else number(name, value, kind)
    ids, stop = options.get("stop_token_ids"), options.get("stop")
    if ids is not None and len(numbers := _numbers("stop_token_ids", ids)):
        inputs["stop_token_ids"] = numbers
    if isinstance(stop, str):
        stop = [stop] if stop else []
    if stop is not None and (stops := listed("stop", stop)):
        inputs["stop"] = strings([utf8("stop", text) for text in stops])
    return inputs


def as_json(name: str, value: Any) -> bytes:
    """Returns the bytes of a field that is JSON. Raises: InvalidArgument."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgument(f"{name} cannot be written as JSON: {error}") from None
    return utf8(name, text)


def listed(name: str, items: object, needed: str = "a list is needed") -> list[Any]:
    """Returns the items of a list or an array. Raises: InvalidArgument.

    Not those of a text or a dictionary: each letter, or key, would be one.
    """
    if isinstance(items, str | bytes | bytearray | memoryview | Mapping) or not isinstance(items, Iterable):
        raise InvalidArgument(f"{name} is {type(items).__name__}: {needed}")
    return list(items)


def _numbers(name: str, ids: Sequence[int], *needed: str) -> Array:
    numbers = [number(name, id, np.int32) for id in listed(name, ids, *needed)]
    return np.concatenate(numbers) if numbers else np.array([], np.int32)


def flag(name: str, value: object) -> Array:
    """Returns what is true or false as [1]. Raises: InvalidArgument: numpy takes "false" for true."""
    if not isinstance(value, bool | np.bool_):
        raise InvalidArgument(f"{name} is {value!r}: true or false is needed")
    return np.array([value], np.bool_)


def number(name: str, value: Any, kind: type[np.generic]) -> Array:
    """Returns a number as [1] of its tensor's type. Raises: InvalidArgument."""
    if issubclass(kind, np.integer):
        limits = np.iinfo(kind)
        if not isinstance(value, int | np.integer) or not limits.min <= value <= limits.max:
            raise InvalidArgument(
                f"{name} is {value}: a whole number from {limits.min} to {limits.max} is needed"
            )
        return np.array([value], kind)
    try:
        return np.array([float(value)], kind)
    except (ValueError, TypeError, OverflowError):
        raise InvalidArgument(f"{name} is {value!r}: a number is needed") from None
