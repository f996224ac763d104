"""Reads an operator's call: the request parameter `operate`, with the operator's key."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from trimodal.errors import InvalidArgument
from trimodal.llm.engines.protocol import CallName
from trimodal.triton.fields import shown

PARAMETERS = {"operate", "operator_key", "lora_name", "level"}
_LEVELS = (1, 2)


@dataclass(frozen=True)
class OperatorCall:
    """Not a prompt: `lora_name` is for the two of adapters, `level` for sleep."""

    name: CallName
    lora_name: str = ""
    level: int = 1


def read_operator_call(parameters: Mapping[str, Any], operator_hash: str) -> OperatorCall:
    """The call in a request's parameters.

    Raises:
        InvalidArgument: the key is not the operator's, or a parameter is wrong.
    """
    key = str(parameters.get("operator_key", ""))
    given = hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()
    if not operator_hash or not hmac.compare_digest(given, operator_hash):
        raise InvalidArgument("operator_key is not the operator's: `trimodal serve` is given it or makes one")
    name, lora_name, level = (parameters.get(one, "") for one in ("operate", "lora_name", "level"))
    if name not in get_args(CallName):
        raise InvalidArgument(f"operate is {shown(name)}: one of {', '.join(get_args(CallName))} is needed")
    if unknown := sorted(set(parameters) - PARAMETERS):
        raise InvalidArgument(f"unknown parameter {shown(unknown[0])}: {name} has none of that name")
    if name.endswith("lora_adapter") and not (isinstance(lora_name, str) and lora_name):
        raise InvalidArgument(f"lora_name is {shown(lora_name)}: the name of an adapter is needed")
    if level != "" and level not in _LEVELS:
        raise InvalidArgument(f"level is {shown(level)}: 1 or 2 is needed")
    return OperatorCall(name, lora_name, level or 1)
