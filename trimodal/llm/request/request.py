"""Reads and checks one request from its tensors; every refusal names the field and the limit.

Limits that need the tokenizer are checked by the input processor, those of the engine by admission.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trimodal import trace
from trimodal.errors import InvalidArgument
from trimodal.llm.engines.protocol import Sampling
from trimodal.llm.rendering import Rendering
from trimodal.llm.request import sampling, terms
from trimodal.llm.request.messages import read_messages
from trimodal.llm.request.operator import OperatorCall, read_operator_call
from trimodal.llm.request.sampling import MAX_TOKEN_ID, read_sampling
from trimodal.llm.request.terms import (
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
from trimodal.llm.structured.reading import MAX_BYTES, read_json
from trimodal.llm.structured.tools import Tools, read_tools
from trimodal.llm.tokenizer import Message, Tokenizer
from trimodal.triton.fields import Inputs, boolean, decode, integers, shown, text

_PROMPTS = ("text_input", "prompt_token_ids", "messages")
INPUTS = (
    *(*_PROMPTS, "apply_chat_template"),
    *("add_generation_prompt", "continue_final_message", "chat_template_kwargs"),
    *(*sampling.INPUTS, "prompt_logprobs", "stop"),
    *("response_format", "tools", "tool_choice", "parallel_tool_calls"),
    *("stream", "exclude_input_in_output"),
    *terms.INPUTS,
)
"""The llm model's input tensors; all are optional."""
_MAX_STOPS, _MAX_STOP_BYTES = 8, 256
_RENDERINGS = ("add_generation_prompt", "continue_final_message", "chat_template_kwargs")
_OURS = {"messages", "tools", *_RENDERINGS}


@dataclass(frozen=True)
class GenerationRequest:
    """A prompt, its token ids or a chat (exactly one is set), how to sample, and where to stop.

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
    prompt_token_ids: tuple[int, ...] = ()
    rendering: Rendering = Rendering()
    stream: bool = True  # else the answer comes in one response
    repeats_prompt: bool = False  # in front of the answer

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
        if self.prompt_token_ids:
            return list(self.prompt_token_ids)
        if self.apply_chat_template and not tokenizer.has_chat_template:
            raise InvalidArgument("apply_chat_template: this model has no chat template")
        if messages is None and tokenizer.has_chat_template and self.is_templated(apply_chat_template):
            messages = ({"role": "user", "content": self.prompt or ""},)
        if messages is None:
            return tokenizer.encode_prompt(self.prompt or "")
        functions = self.tools.offered if self.tools else ()
        return tokenizer.encode(tokenizer.render(messages, functions, self.rendering))


def read_request(
    inputs: Inputs, parameters: Mapping[str, Any], settings: LlmSettings
) -> GenerationRequest | CancelRequest | ProbeRequest | OperatorCall:
    """The request in `inputs` (tensor name → array) and Triton's request `parameters`.

    Raises:
        InvalidArgument: a field is missing, malformed or beyond its limit.
    """
    if not inputs and parameters == {"probe": True}:
        return ProbeRequest()
    if "operate" in parameters:
        return read_operator_call(parameters, settings.operator_hash)
    traced, parameters = trace.wanted(parameters)
    inputs = with_parameters(inputs, parameters, INPUTS)
    if cancel := read_cancel(inputs):
        return cancel
    prompt = text(inputs, "text_input", settings.max_prompt_bytes)
    messages = read_messages(text(inputs, "messages", settings.max_prompt_bytes))
    ids = integers(inputs, "prompt_token_ids", 0, MAX_TOKEN_ID, settings.max_prompt_bytes)
    given = [name for name in _PROMPTS if name in inputs]
    if len(given) != 1:
        problem = f"{' and '.join(given)} are" if given else "none is"
        raise InvalidArgument(
            f"exactly one of text_input, prompt_token_ids and messages is needed: {problem} given"
        )
    if "prompt_token_ids" in given and not ids:
        raise InvalidArgument("prompt_token_ids is empty: at least one is needed")
    if prompt == "":
        raise InvalidArgument("text_input is empty: at least one character is needed")
    templated = boolean(inputs, "apply_chat_template")
    if messages is not None and templated is False:
        raise InvalidArgument("apply_chat_template is false beside messages: text_input is a raw prompt")
    if ids and templated:
        raise InvalidArgument(
            "apply_chat_template is true beside prompt_token_ids: they are the whole prompt"
        )
    stream = boolean(inputs, "stream") is not False
    repeats_prompt = boolean(inputs, "exclude_input_in_output") is False
    if repeats_prompt and (stream or prompt is None):
        other = "stream must be false" if stream else "text_input is needed"
        raise InvalidArgument(f"exclude_input_in_output is false: {other} with it")
    tools = read_tools(
        text(inputs, "tools", MAX_BYTES),
        text(inputs, "tool_choice", MAX_BYTES),
        boolean(inputs, "parallel_tool_calls"),
    )
    if tools and messages is None:
        raise InvalidArgument(f"tools needs messages: {given[0]} is given")
    form = read_form(
        text(inputs, "response_format", MAX_BYTES), tools, settings.max_grammar_bytes, settings.family.calls
    )
    return GenerationRequest(
        prompt,
        messages,
        read_sampling(inputs, settings, form.grammar),
        _stops(inputs),
        default_length="max_tokens" not in inputs,
        terms=read_terms(inputs, settings),
        tools=tools,
        form=form,
        trace=traced,
        apply_chat_template=templated,
        prompt_token_ids=ids,
        rendering=_rendering(inputs, messages, settings),
        stream=stream,
        repeats_prompt=repeats_prompt,
    )


def _rendering(inputs: Inputs, messages: Sequence[Message] | None, settings: LlmSettings) -> Rendering:
    """How the chat becomes a prompt. What the assistant has begun to say is continued, unless told not to."""
    if messages is None:
        if needless := [name for name in _RENDERINGS if name in inputs]:
            raise InvalidArgument(f"{needless[0]} needs messages")
        return Rendering()
    begins, continues = (boolean(inputs, name) for name in _RENDERINGS[:2])
    if begins and continues:
        raise InvalidArgument("continue_final_message is given beside add_generation_prompt: one is taken")
    last = messages[-1]
    if continues is None:
        continues = begins is None and last["role"] == "assistant" and "tool_calls" not in last
    kwargs = read_json("chat_template_kwargs", text(inputs, "chat_template_kwargs", MAX_BYTES) or "{}")
    if not isinstance(kwargs, dict):
        raise InvalidArgument("chat_template_kwargs must be a JSON object")
    if taken := sorted(_OURS & set(kwargs)):
        raise InvalidArgument(f"chat_template_kwargs has {shown(taken[0])}: that is a field of its own")
    return Rendering(begins is not False and not continues, continues, kwargs)


def _stops(inputs: Inputs) -> tuple[str, ...]:
    array = inputs.get("stop")
    if array is None:
        return ()
    if array.size > _MAX_STOPS:
        raise InvalidArgument(f"stop holds {array.size} strings: at most {_MAX_STOPS} are taken")
    stops = []
    for raw in array.reshape(-1):
        size = len(raw)
        if not 0 < size <= _MAX_STOP_BYTES:
            raise InvalidArgument(f"stop holds a string of {size} bytes: 1 to {_MAX_STOP_BYTES} are taken")
        stops.append(decode("stop", raw))
    return tuple(stops)
