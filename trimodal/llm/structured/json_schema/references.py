"""Follows the references of a schema, and makes one schema of several that hold at once."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from trimodal.llm.structured.json_schema.keywords import ANNOTATIONS, Unheld, constant_tags, frozen
from trimodal.llm.structured.json_schema.merging import merged
from trimodal.triton.fields import shown

_MOST_FOLLOWED = 32  # of references that lead to references
_INDEX = re.compile("0|[1-9][0-9]{0,4}")  # in a list; Python refuses to read thousands of digits
_NEVER = {"type", "enum", "const"}
"""Two of them that have nothing in common leave no value at all."""


class References:
    """The places of one schema."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema

    def resolved(self, target: Any) -> Any:
        """What a reference leads to. Raises Unheld: nowhere within the schema."""
        if not isinstance(target, str) or not (target == "#" or target.startswith("#/")):
            raise Unheld("$ref", f"is {shown(target)}: only references within the schema, #/…, are followed")
        place: Any = self._schema
        for part in target.split("/")[1:]:
            key = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(place, list) and _INDEX.fullmatch(key) and int(key) < len(place):
                place = place[int(key)]
            elif isinstance(place, dict) and key in place:
                place = place[key]
            else:
                raise Unheld("$ref", f"is {shown(target)}: there is no such place")
        return place

    def exclusive(self, schemas: Sequence[Any]) -> bool:
        """Whether no value can be valid against two of these, as far as types and constant texts tell."""
        branches = [self._followed(one, "oneOf") for one in schemas]
        if not all(isinstance(one, dict) for one in branches):
            return False
        kinds = [one.get("type") for one in branches]
        named = all(isinstance(kind, str) for kind in kinds)
        if named and len(set(kinds)) == len(kinds) and not {"number", "integer"} <= set(kinds):
            return True
        tags = [constant_tags(one) for one in branches]
        common = set.intersection(*map(set, tags))
        return any(len({tag[name] for tag in tags}) == len(tags) for name in common)

    def together(self, schemas: Sequence[Any], key: str) -> tuple[Any, set[str]]:
        """One schema of several, and the keywords that it does not say.

        Raises:
            Unheld: one of them, which `key` brings, is no schema.
        """
        telling = [one for one in schemas if not (isinstance(one, dict) and set(one) <= ANNOTATIONS)]
        telling = list({frozen(one): one for one in telling if one is not True}.values())
        if len(telling) == 1:
            return telling[0], set()
        result: dict[str, Any] = {}
        missing: set[str] = set()
        for one in telling:
            followed = self._followed(one, key)
            if followed is False:
                return False, set()
            if not isinstance(followed, dict):
                raise Unheld(key, f"holds {shown(followed)}: a schema (an object) is needed")
            try:
                result, more = merged(result, followed)
            except (TypeError, AttributeError):
                raise Unheld(key, "brings together schemas that cannot be read") from None
            if more & _NEVER:
                return False, set()
            missing |= more
        return result, missing

    def _followed(self, schema: Any, key: str) -> Any:
        """The schema that a lone reference leads to. Raises Unheld: of `key`, which brings it."""
        for _ in range(_MOST_FOLLOWED):
            if not isinstance(schema, dict) or set(schema) - ANNOTATIONS != {"$ref"}:
                break
            try:
                schema = self.resolved(schema["$ref"])
            except Unheld as unheld:
                raise Unheld(key, f"holds a $ref that {unheld}") from None
        return schema
