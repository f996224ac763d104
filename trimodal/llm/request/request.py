"""Reads and checks one request from its tensors; every refusal names the field and the limit.

Limits that need the tokenizer are checked by the input processor, those of the engine by admission.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from trimodal import trace
from trimodal.errors import InvalidArgument
from trimodal.llm.engines.protocol import MAX_TOP_LOGPROBS, Sampling
from trimodal.llm.request.messages import read_messages
from trimodal.llm.request.terms import (
    PARAMETERS,
    CancelRequest,
    ProbeRequest,
    Terms,
    read_cancel,
    read_terms,
    with_parameters,
)
from trimodal.llm.settings import LlmSettings
from trimodal.llm.structured.constraint import read_form
from trimodal.llm.structured.form import Form
from trimodal.llm.structured.reading import MAX_BYTES
from trimodal.llm.structured.tools import Tools, read_tools
from trimodal.llm.tokenizer import Message, Tokenizer
from trimodal.triton.fields import Inputs, boolean, decode, integer, number, text

INPUTS = (
    *("text_input", "messages", "apply_chat_template"),
    *("max_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "stop"),
    *("presence_penalty", "frequency_penalty", "repetition_penalty"),
    *("response_format", "tools", "tool_choice", "parallel_tool_calls", "top_logprobs"),
    *PARAMETERS,
    *("cancel_key", "cancel"),
)
"""The llm model's input tensors; all are optional."""
_MAX_STOP_BYTES = 256
_MOST_MIN_P = 0.999
"""OpenVINO GenAI refuses 1, which would mean greedy."""
_GREEDY_BELOW = 1e-5
"""Below it the choice is greedy anyway, and logits divided by it can leave FP32's range (vLLM's limit)."""


@dataclass(frozen=True)
class GenerationRequest:
    """A prompt or a chat (exactly one of the two is set), how to sample, and where to stop.

    `default_length`: the client named no max_tokens; the default may be shortened to what fits.
    """

    prompt: str | None
    messages: tuple[Message, ...] | None
    sampling: Sampling
    stops: tuple[str, ...] = ()
    default_length: bool = False
    terms: Terms = Terms()
    tools: Tools | None = None
    form: Form = Form()
    trace: bool = False  # the client wants to be told what took how long
    apply_chat_template: bool | None = None  # to a bare prompt; None: as the model's parameter says

    def within(self, room: int) -> GenerationRequest:
        """This request with a default length of at most `room` tokens, but 1 at least."""
        if not self.default_length or room >= self.sampling.max_tokens:
            return self
        return replace(self, sampling=replace(self.sampling, max_tokens=max(1, room)))

    def is_templated(self, default: bool) -> bool:
        """Whether the prompt goes through a chat template; `default`: what a bare one does unasked."""
        return self.messages is not None or (
            default if self.apply_chat_template is None else self.apply_chat_template
        )

    def token_ids(self, tokenizer: Tokenizer, apply_chat_template: bool) -> list[int]:
        """The prompt's tokens; where `is_templated`, a bare prompt is one user message.

        Raises:
            InvalidArgument: the chat template refuses the messages, or there is none and it is asked for.
        """
        messages = self.messages
        if self.apply_chat_template and not tokenizer.has_chat_template:
            raise InvalidArgument("apply_chat_template: this model has no chat template")
        if messages is None and tokenizer.has_chat_template and self.is_templated(apply_chat_template):
            messages = ({"role": "user", "content": self.prompt or ""},)
        if messages is None:
            return tokenizer.encode_prompt(self.prompt or "")
        return tokenizer.encode(tokenizer.render(messages, self.tools.offered if self.tools else ()))


def read_request(
    inputs: Inputs, parameters: Mapping[str, Any], settings: LlmSettings
) -> GenerationRequest | CancelRequest | ProbeRequest:
    """The request in `inputs` (tensor name → array) and Triton's request `parameters`.

    Raises:
        InvalidArgument: a field is missing, malformed or beyond its limit.
    """
    if not inputs and parameters == {"probe": True}:
        return ProbeRequest()
    traced, parameters = trace.wanted(parameters)
    inputs = with_parameters(inputs, parameters)
    if cancel := read_cancel(inputs):
        return cancel
    prompt = text(inputs, "text_input", settings.max_prompt_bytes)
    messages = read_messages(text(inputs, "messages", settings.max_prompt_bytes))
    if (prompt is None) == (messages is None):
        problem = "both are given" if prompt is not None else "neither is given"
        raise InvalidArgument(f"exactly one of text_input and messages is needed: {problem}")
    if prompt == "":
        raise InvalidArgument("text_input is empty: at least one character is needed")
    templated = boolean(inputs, "apply_chat_template")
    if messages is not None and templated is False:
        raise InvalidArgument("apply_chat_template is false beside messages: text_input is a raw prompt")
    temperature = number(inputs, "temperature", 0.0, 0.0, 10.0)
    tools = read_tools(
        text(inputs, "tools", MAX_BYTES),
        text(inputs, "tool_choice", MAX_BYTES),
        boolean(inputs, "parallel_tool_calls"),
    )
    if tools and messages is None:
        raise InvalidArgument("tools needs messages: text_input is given")
    form = read_form(text(inputs, "response_format", MAX_BYTES), tools, settings.max_grammar_bytes)
    sampling = Sampling(
        max_tokens=integer(inputs, "max_tokens", settings.default_max_tokens, 1, settings.max_output_tokens),
        temperature=0.0 if temperature < _GREEDY_BELOW else temperature,
        top_p=number(inputs, "top_p", 1.0, 0.0, 1.0, above=True),
        top_k=integer(inputs, "top_k", 0, 0, 1 << 20),
        seed=integer(inputs, "seed", None, 0, (1 << 64) - 1),
        min_p=number(inputs, "min_p", 0.0, 0.0, _MOST_MIN_P),
        presence_penalty=number(inputs, "presence_penalty", 0.0, -2.0, 2.0),
        frequency_penalty=number(inputs, "frequency_penalty", 0.0, -2.0, 2.0),
        repetition_penalty=number(inputs, "repetition_penalty", 1.0, 0.0, 10.0, above=True),
        grammar=form.grammar,
        top_logprobs=integer(inputs, "top_logprobs", None, 0, MAX_TOP_LOGPROBS),
    )
    return GenerationRequest(
        prompt,
        messages,
        sampling,
        _stops(inputs, settings),
        default_length="max_tokens" not in inputs,
        terms=read_terms(inputs, settings),
        tools=tools,
        form=form,
        trace=traced,
        apply_chat_template=templated,
    )


def _stops(inputs: Inputs, settings: LlmSettings) -> tuple[str, ...]:
    array, most = inputs.get("stop"), settings.max_stop_strings
    if array is None:
        return ()
    if array.size > most:
        raise InvalidArgument(f"stop holds {array.size} strings: at most {most} are taken")
    stops = []
    for raw in array.reshape(-1):
        size = len(raw)
        if not 0 < size <= _MAX_STOP_BYTES:
            raise InvalidArgument(f"stop holds a string of {size} bytes: 1 to {_MAX_STOP_BYTES} are taken")
        stops.append(decode("stop", raw))
    return tuple(stops)
