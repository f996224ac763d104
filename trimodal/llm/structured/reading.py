"""Reads JSON that describes how an answer must look, within bounds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from trimodal.errors import InvalidArgument
from trimodal.triton.fields import shown

MAX_BYTES = 65_536
MAX_NESTING = 64


def read_json(field: str, text: str) -> Any:
    """The value in `text`. Raises InvalidArgument: it is no JSON, no Unicode, or nested too deeply."""

    def refuse(name: str) -> NoReturn:
        raise InvalidArgument(f"{field} holds {name}, which is not JSON")

    too_deep = InvalidArgument(f"{field} is nested too deeply: at most {MAX_NESTING} levels are taken")
    try:
        value = json.loads(text, parse_constant=refuse)
    except RecursionError:
        raise too_deep from None
    except json.JSONDecodeError as error:
        raise InvalidArgument(f"{field} is not valid JSON: {error}") from None
    except ValueError:  # Python's own bound, which keeps the reading of a number from taking minutes
        raise InvalidArgument(f"{field} holds a number of more digits than can be read") from None
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # JSON has escapes for halves of a pair, tokenizers and grammars take none
        raise InvalidArgument(f"{field} holds a lone surrogate: it is not valid Unicode") from None
    except ValueError:  # 1e999 is read as infinity
        raise InvalidArgument(f"{field} holds a number that is too large") from None
    except RecursionError:
        raise too_deep from None
    if nested_beyond(value, MAX_NESTING):
        raise too_deep
    return value


def nested_beyond(value: Any, most: int) -> bool:
    """Whether there are more than so many levels of lists and objects in a JSON value."""
    level = [value]
    for _ in range(most + 1):
        inner = [one for one in level if isinstance(one, list | dict)]
        if not inner:
            return False
        level = [child for one in inner for child in (one.values() if isinstance(one, dict) else one)]
    return True


def is_strict(given: Mapping[str, Any], field: str) -> bool:
    """Whether a schema has to be kept whole. Raises InvalidArgument: `strict` is neither true nor false."""
    strict = given.get("strict")
    if not isinstance(strict, bool | None):
        raise InvalidArgument(f"{field}.strict is {shown(strict)}: true or false is needed")
    return bool(strict)
