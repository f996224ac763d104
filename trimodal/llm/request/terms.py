"""Reads the terms of a request: tenant, tier, urgency, what the cache may do, and its cancel key."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from trimodal.errors import InvalidArgument
from trimodal.llm.settings import LlmSettings
from trimodal.llm.structured.reading import read_json
from trimodal.triton.fields import Inputs, decode, integer, scalar, shown, text

INPUTS = (
    *("tenant", "tier", "priority", "ttft_deadline_ms", "deadline_ms"),
    *("cache_control", "cache_namespace", "cache_salt", "truncation", "cancel_key", "cancel"),
)
PARAMETERS: Mapping[str, type] = {
    **dict.fromkeys(("tenant", "tier", "cache_control", "cache_namespace", "cache_salt", "truncation"), str),
    **dict.fromkeys(("stop", "logit_bias", "response_format", "tools", "tool_choice"), str),
    **dict.fromkeys(("chat_template_kwargs", "lora_name", "cancel_key", "cancel"), str),
    **dict.fromkeys(("priority", "ttft_deadline_ms", "deadline_ms"), int),
    **dict.fromkeys(("max_tokens", "min_tokens", "top_k", "seed", "top_logprobs", "prompt_logprobs"), int),
    **dict.fromkeys(("temperature", "top_p", "min_p"), float),
    **dict.fromkeys(("presence_penalty", "frequency_penalty", "repetition_penalty"), float),
    **dict.fromkeys(("stream", "exclude_input_in_output", "ignore_eos", "parallel_tool_calls"), bool),
    **dict.fromkeys(("apply_chat_template", "add_generation_prompt", "continue_final_message"), bool),
}
"""Inputs of one value, which may come as a parameter of the request. Over gRPC `priority` may not:
Triton takes a parameter of that name for its own queue's, and does not hand it on."""
_KINDS = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}
CACHE_CONTROLS = ("no-cache", "no-store", "store")
MAX_TTFT_DEADLINE_MS = 3_600_000
MAX_DEADLINE_MS = 86_400_000
_MAX_NAME_BYTES = 256
RETAINED = 0.8
"""Share of its room that a talk keeps when it is trimmed. More would compute its prompt anew more often: what
follows the gap is not in the prefix cache."""
_CANCEL_KEY_BYTES = (16, 128)


@dataclass(frozen=True)
class Terms:
    """None: as the tier says."""

    tenant: str = ""
    tier: str = ""
    priority: int | None = None
    ttft_deadline_ms: int | None = None
    deadline_ms: int | None = None
    # "no-cache": do not answer from the cache. "no-store": do not keep the answer. "store": keep it although
    # it was sampled.
    cache_control: frozenset[str] = frozenset()
    cache_namespace: str = ""  # one of the model's `cache_ttl_s`; "" is the first of them
    cancel_key: str = ""  # a request with it as `cancel` ends this one; "" is none
    # A chat that is too long loses its oldest turns, down to this share of its room; 0: it is refused.
    retention: float | None = None
    cache_salt: str = ""  # its prompt shares the prefix cache only with those that have the same


@dataclass(frozen=True)
class CancelRequest:
    """Not a prompt: ends the request that was sent with `cancel_key` = `key`."""

    key: str


@dataclass(frozen=True)
class ProbeRequest:
    """Not a prompt: asks whether there is an engine. Sent as the request parameter `probe`."""


def with_parameters(
    inputs: Inputs, parameters: Mapping[str, Any], known: Collection[str]
) -> dict[str, np.ndarray[Any, Any]]:
    """`inputs` and, as if they were inputs, the request parameters.

    Args:
        known: the model's inputs.

    Raises:
        InvalidArgument: a parameter that is unknown, of another type, or given as an input too.
    """
    together = dict(inputs)
    for name, value in parameters.items():
        if name not in PARAMETERS or name not in known:
            # generate's JSON keys that match no tensor arrive here: a typo must not be ignored.
            raise InvalidArgument(f"unknown parameter {shown(name)}: send one of the model's inputs")
        if name in inputs:
            raise InvalidArgument(f"{name} is given twice: as an input and as a parameter")
        kind = PARAMETERS[name]
        if type(value) is not kind and not (kind is float and type(value) is int):
            raise InvalidArgument(f"{name} is {shown(value)}: {_KINDS[kind]} is needed")
        try:
            # As an object: a number beyond int64 is refused by its limit, not by numpy.
            raw = value.encode() if isinstance(value, str) else value
            together[name] = np.array([raw], dtype=object)
        except UnicodeEncodeError:
            raise InvalidArgument(f"{name} holds a lone surrogate: it is not valid Unicode") from None
    return together


def read_cancel(inputs: Inputs) -> CancelRequest | None:
    """The request to end another one, if that is what `inputs` are.

    Raises:
        InvalidArgument: other inputs came with it, or no key.
    """
    if "cancel" not in inputs:
        return None
    if others := sorted(set(inputs) - {"cancel"}):
        raise InvalidArgument(f"cancel goes alone: {', '.join(others)} came with it")
    return CancelRequest(_cancel_key(inputs, "cancel"))


def read_terms(inputs: Inputs, settings: LlmSettings) -> Terms:
    """Raises InvalidArgument naming the field and its limit."""
    namespace = text(inputs, "cache_namespace", _MAX_NAME_BYTES) or ""
    if namespace and namespace not in settings.cache_ttls:
        known = ", ".join(settings.cache_ttls)
        raise InvalidArgument(f"cache_namespace is {shown(namespace)}: one of {known} is needed")
    return Terms(
        tenant=text(inputs, "tenant", _MAX_NAME_BYTES) or "",
        tier=text(inputs, "tier", _MAX_NAME_BYTES) or "",
        priority=integer(inputs, "priority", None, -100, 100),
        ttft_deadline_ms=integer(inputs, "ttft_deadline_ms", None, 1, MAX_TTFT_DEADLINE_MS),
        deadline_ms=integer(inputs, "deadline_ms", None, 1, MAX_DEADLINE_MS),
        cache_control=_controls(text(inputs, "cache_control", _MAX_NAME_BYTES)),
        cache_namespace=namespace,
        cache_salt=text(inputs, "cache_salt", _MAX_NAME_BYTES) or "",
        cancel_key=_cancel_key(inputs, "cancel_key") if "cancel_key" in inputs else "",
        retention=_retention(text(inputs, "truncation", _MAX_NAME_BYTES)),
    )


def _retention(value: str | None) -> float | None:
    """What OpenAI's `truncation` asks for: auto, disabled, or an object with a ratio."""
    if value is None or value in ("auto", "disabled"):
        return None if value is None else RETAINED if value == "auto" else 0.0
    given = read_json("truncation", value) if value.startswith("{") else None
    if not isinstance(given, dict) or given.keys() != {"type", "retention_ratio"}:
        form = '{"type": "retention_ratio", "retention_ratio": 0.8}'
        raise InvalidArgument(f"truncation is {shown(value)}: auto, disabled or {form} is needed")
    ratio = given["retention_ratio"]
    number = isinstance(ratio, int | float) and not isinstance(ratio, bool)
    if given["type"] != "retention_ratio" or not number or not 0 <= ratio <= 1:
        raise InvalidArgument("truncation.retention_ratio must be a number between 0 and 1")
    return max(float(ratio), 1e-6)  # of 0, too, the last turn stays


def _controls(value: str | None) -> frozenset[str]:
    controls = frozenset(part.strip().lower() for part in (value or "").split(",")) - {""}
    if unknown := controls - set(CACHE_CONTROLS):
        raise InvalidArgument(
            f"cache_control has {shown(min(unknown))}: {', '.join(CACHE_CONTROLS)} are known, commas between"
        )
    if {"no-store", "store"} <= controls:
        raise InvalidArgument("cache_control has no-store and store: at most one of them is needed")
    return controls


def _cancel_key(inputs: Inputs, name: str) -> str:
    raw = scalar(inputs, name)
    least, most = _CANCEL_KEY_BYTES
    if not least <= len(raw) <= most:
        # Short ones could be guessed, and knowing one is enough to end the request.
        raise InvalidArgument(f"{name} has {len(raw)} bytes: {least} to {most} random ones are needed")
    return decode(name, raw)
