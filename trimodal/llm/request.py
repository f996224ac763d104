"""One request as the client sent it, checked: every refusal names the field and the limit.

It knows the llm model's tensors by name, as numpy arrays, and nothing of Triton.
Limits that need the tokenizer or the engine's state are admission's business.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trimodal.errors import InvalidArgument
from trimodal.llm.engine import Sampling
from trimodal.llm.settings import LlmSettings
from trimodal.llm.tokenizer import Message, Tokenizer

ROLES = ("system", "user", "assistant", "tool")
PARAMETERS = (
    "tenant",
    "tier",
    "priority",
    "ttft_deadline_ms",
    "deadline_ms",
    "cache_control",
    "cache_namespace",
)
"""Inputs that may come as a request parameter instead of a tensor."""
CACHE_CONTROLS = ("no-cache", "no-store", "store")
_MAX_MESSAGES = 1024
_MAX_TENANT_BYTES = 256
_CANCEL_KEY_BYTES = (16, 128)
_MAX_STOP_BYTES = 256
_MAX_QUOTED = 60
_GREEDY_BELOW = 1e-5
"""Below it the choice is greedy anyway, and logits divided by it can leave FP32's range (vLLM's limit)."""


@dataclass(frozen=True)
class Terms:
    """Who asks, how urgent it is, and what the cache may do. None: as the tier says.

    Attributes:
        cache_control: of "no-cache" (do not answer from the cache), "no-store" (do not keep the answer) and
            "store" (keep it although it was sampled).
        cache_namespace: one of the model's `cache_ttl_s`; "" is the first of them.
        cancel_key: whoever sends it as `cancel` ends this request; "" is none.
    """

    tenant: str = ""
    tier: str = ""
    priority: int | None = None
    ttft_deadline_ms: int | None = None
    deadline_ms: int | None = None
    cache_control: frozenset[str] = frozenset()
    cache_namespace: str = ""
    cancel_key: str = ""


@dataclass(frozen=True)
class CancelRequest:
    """Not a prompt: ends the request that was sent with `cancel_key` = `key`."""

    key: str


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

    def within(self, room: int) -> GenerationRequest:
        """This request with a default length of at most `room` tokens, but 1 at least."""
        if not self.default_length or room >= self.sampling.max_tokens:
            return self
        return replace(self, sampling=replace(self.sampling, max_tokens=max(1, room)))

    def token_ids(self, tokenizer: Tokenizer, apply_chat_template: bool) -> list[int]:
        """The prompt's tokens; with `apply_chat_template` a bare prompt is one user message.

        Raises:
            InvalidArgument: the chat template refuses the messages.
        """
        messages = self.messages
        if messages is None and apply_chat_template and tokenizer.has_chat_template:
            messages = ({"role": "user", "content": self.prompt or ""},)
        if messages is None:
            return tokenizer.encode_prompt(self.prompt or "")
        return tokenizer.encode(tokenizer.render(messages))


def read_request(
    inputs: Mapping[str, np.ndarray[Any, Any]], parameters: Mapping[str, Any], settings: LlmSettings
) -> GenerationRequest:
    """The request in `inputs` (tensor name → array) and Triton's request `parameters`.

    Raises:
        InvalidArgument: a field is missing, malformed or beyond its limit.
    """
    if parameters:
        # generate's JSON keys that match no tensor arrive here: a typo must not be ignored.
        name = next(iter(parameters))
        raise InvalidArgument(f"unknown parameter {_shown(name)}: send one of the model's inputs")
    prompt = _text(inputs, "text_input", settings)
    messages = _messages(_text(inputs, "messages", settings))
    if (prompt is None) == (messages is None):
        problem = "both are given" if prompt is not None else "neither is given"
        raise InvalidArgument(f"exactly one of text_input and messages is needed: {problem}")
    if prompt == "":
        raise InvalidArgument("text_input is empty: at least one character is needed")
    temperature = _number(inputs, "temperature", 0.0, 0.0, 10.0)
    sampling = Sampling(
        max_tokens=_integer(inputs, "max_tokens", settings.default_max_tokens, 1, settings.max_output_tokens),
        temperature=0.0 if temperature < _GREEDY_BELOW else temperature,
        top_p=_number(inputs, "top_p", 1.0, 0.0, 1.0, above=True),
        top_k=_integer(inputs, "top_k", 0, 0, 1 << 20),
        seed=_integer(inputs, "seed", None, 0, (1 << 64) - 1),
    )
    return GenerationRequest(
        prompt, messages, sampling, _stops(inputs, settings), default_length="max_tokens" not in inputs
    )


def _scalar(inputs: Mapping[str, np.ndarray[Any, Any]], name: str) -> Any:
    array = inputs.get(name)
    if array is None:
        return None
    if array.size != 1:
        raise InvalidArgument(f"{name} holds {array.size} values: exactly 1 is needed")
    return array.reshape(-1)[0]


def _decode(name: str, raw: Any) -> str:
    if isinstance(raw, str):
        return raw
    try:
        return bytes(raw).decode()
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"{name} is not valid UTF-8: byte {error.start} cannot be decoded") from None


def _text(inputs: Mapping[str, np.ndarray[Any, Any]], name: str, settings: LlmSettings) -> str | None:
    raw = _scalar(inputs, name)
    if raw is None:
        return None
    if len(raw) > settings.max_prompt_bytes:
        raise InvalidArgument(f"{name} has {len(raw)} bytes: at most {settings.max_prompt_bytes} are taken")
    return _decode(name, raw)


def _integer(inputs: Mapping[str, np.ndarray[Any, Any]], name: str, default: Any, low: int, high: int) -> Any:
    raw = _scalar(inputs, name)
    if raw is None:
        return default
    value = int(raw)
    if not low <= value <= high:
        raise InvalidArgument(f"{name} is {value}: it must be between {low} and {high}")
    return value


def _number(
    inputs: Mapping[str, np.ndarray[Any, Any]],
    name: str,
    default: float,
    low: float,
    high: float,
    *,
    above: bool = False,
) -> float:
    raw = _scalar(inputs, name)
    if raw is None:
        return default
    value = float(raw)
    if not math.isfinite(value) or not low <= value <= high or (above and value == low):
        bound = f"above {low:g} and at most {high:g}" if above else f"between {low:g} and {high:g}"
        raise InvalidArgument(f"{name} is {str(raw).removesuffix('.0')}: it must be {bound}")
    return value


def _stops(inputs: Mapping[str, np.ndarray[Any, Any]], settings: LlmSettings) -> tuple[str, ...]:
    array = inputs.get("stop")
    if array is None:
        return ()
    if array.size > settings.max_stop_strings:
        raise InvalidArgument(
            f"stop holds {array.size} strings: at most {settings.max_stop_strings} are taken"
        )
    stops = []
    for raw in array.reshape(-1):
        if not 0 < len(raw) <= _MAX_STOP_BYTES:
            raise InvalidArgument(
                f"stop holds a string of {len(raw)} bytes: 1 to {_MAX_STOP_BYTES} are taken"
            )
        stops.append(_decode("stop", raw))
    return tuple(stops)


def _shown(value: object) -> str:
    """What a client sent, quoted in an error: short, and a lone surrogate as its escape."""
    text = repr(value)
    return text if len(text) <= _MAX_QUOTED else f"{text[:_MAX_QUOTED]}…"


def _messages(text: str | None) -> tuple[Message, ...] | None:
    """The chat in `text`: a JSON list of {"role": …, "content": …}, with strings only."""
    if text is None:
        return None
    try:
        chat = json.loads(text)
    except RecursionError:
        raise InvalidArgument("messages is nested too deeply: a list of objects is needed") from None
    except json.JSONDecodeError as error:
        raise InvalidArgument(f"messages is not valid JSON: {error}") from None
    except ValueError:  # Python's own bound, which keeps the reading of a number from taking minutes
        raise InvalidArgument("messages holds a number of more digits than can be read") from None
    if not isinstance(chat, Sequence) or isinstance(chat, str) or not chat:
        raise InvalidArgument('messages must be a non-empty JSON list of {"role", "content"} objects')
    if len(chat) > _MAX_MESSAGES:
        raise InvalidArgument(f"messages holds {len(chat)} entries: at most {_MAX_MESSAGES} are taken")
    return tuple(_message(f"messages[{index}]", entry) for index, entry in enumerate(chat))


def _message(name: str, entry: Any) -> Message:
    if not isinstance(entry, dict):
        raise InvalidArgument(f"{name} must be an object with role and content")
    unknown = set(entry) - {"role", "content"}
    if unknown:
        raise InvalidArgument(f"{name} has an unknown key {_shown(min(unknown))}: role and content are known")
    role, content = entry.get("role"), entry.get("content")
    if role not in ROLES:
        raise InvalidArgument(f"{name}.role is {_shown(role)}: one of {', '.join(ROLES)} is needed")
    if not isinstance(content, str):
        raise InvalidArgument(f"{name}.content must be a string")
    try:
        content.encode()
    except UnicodeEncodeError:
        raise InvalidArgument(f"{name}.content holds a lone surrogate: it is not valid Unicode") from None
    return {"role": role, "content": content}
