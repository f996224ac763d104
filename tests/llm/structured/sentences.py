"""Draws sentences of a grammar, as a model without sense would write them."""

from __future__ import annotations

import random
import re
from typing import Any

_TOKEN = re.compile(
    r'\s*(?:(?P<text>"(?:\\.|[^"\\])*")|(?P<klass>\[(?:\\.|[^\]\\])*\])|(?P<name>\w+)'
    r"|(?P<repeat>\{\d+(?:,\d+)?\}|[*?+])|(?P<mark>[()|]))"
)
_ESCAPE = re.compile(r"\\(?:u([0-9A-F]{4})|U([0-9A-F]{8})|x([0-9A-F]{2})|(.))", re.DOTALL)
_MOST_MORE = 3  # of what may come any number of times
_DEEP = 40


class Sentences:
    """The grammar of a text, read; raises ValueError where a rule is missing or cannot be read."""

    def __init__(self, grammar: str) -> None:
        self._draw = random.Random()
        self._ways: dict[int, list[float]] = {}
        self._rules: dict[str, Any] = {}
        for line in grammar.splitlines():
            name, _, body = line.partition(" ::= ")
            self._rules[name] = self._read(body)
        self._costs: dict[str, float] = dict.fromkeys(self._rules, float("inf"))
        for _ in self._rules:
            new = {name: 1 + self._cost(rule) for name, rule in self._rules.items()}
            if new == self._costs:
                break
            self._costs = new

    def draw(self, seed: int) -> str:
        self._draw.seed(seed)
        return self._write(self._rules["root"], 0)

    def _read(self, body: str) -> Any:
        tokens = []
        at = 0
        while at < len(body):
            match = _TOKEN.match(body, at)
            if not match or match.end() == at:
                raise ValueError(f"not to be read: {body[at : at + 40]}")
            tokens.append((match.lastgroup, match[match.lastgroup or 0]))
            at = match.end()
        expression, rest = self._alternatives(tokens)
        if rest:
            raise ValueError(f"not to be read: {rest[:3]}")
        return expression

    def _alternatives(self, tokens: list[Any]) -> tuple[Any, list[Any]]:
        ways: list[list[Any]] = [[]]
        while tokens and tokens[0] != ("mark", ")"):
            kind, text = tokens.pop(0)
            if (kind, text) == ("mark", "|"):
                ways.append([])
                continue
            if (kind, text) == ("mark", "("):
                inner, tokens = self._alternatives(tokens)
                if not tokens:
                    raise ValueError("a bracket is open")
                tokens.pop(0)
                ways[-1].append(inner)
            elif kind == "repeat":
                least, most = {"*": (0, None), "?": (0, 1), "+": (1, None)}.get(text) or (
                    int(text[1:-1].split(",")[0]), int(text[1:-1].split(",")[-1])
                )  # fmt: skip
                ways[-1][-1] = ("repeat", least, most, ways[-1][-1])
            elif kind == "klass":
                ways[-1].append(("class", self._ranges(text[1:-1])))
            else:
                ways[-1].append((kind, _plain(text[1:-1]) if kind == "text" else text))
        return ("or", ways), tokens

    def _ranges(self, text: str) -> list[tuple[int, int]]:
        codes = [
            _plain(one) for one in re.findall(r"\\u[0-9A-F]{4}|\\U[0-9A-F]{8}|\\x[0-9A-F]{2}|\\.|.", text)
        ]
        ranges, at = [], 0
        while at < len(codes):
            if codes[at + 1 : at + 2] == ["-"] and at + 2 < len(codes):
                ranges.append((ord(codes[at]), ord(codes[at + 2])))
                at += 3
            else:
                ranges.append((ord(codes[at]), ord(codes[at])))
                at += 1
        return ranges

    def _cost(self, one: Any) -> float:
        """How deep the shortest sentence is."""
        match one:
            case ("or", ways):
                return min(max((self._cost(part) for part in way), default=0.0) for way in ways)
            case ("repeat", least, _, inner):
                return self._cost(inner) if least else 0
            case ("name", name):
                if name not in self._rules:
                    raise ValueError(f"there is no rule {name}")
                return self._costs[name]
        return 0

    def _write(self, one: Any, depth: int) -> str:
        match one:
            case ("or", ways):
                costs = self._ways.get(id(ways)) or [
                    max((self._cost(part) for part in way), default=0.0) for way in ways
                ]
                self._ways[id(ways)] = costs
                usable = [way for way, cost in zip(ways, costs, strict=True) if cost < float("inf")]
                way = self._draw.choice(usable) if depth < _DEEP else ways[costs.index(min(costs))]
                return "".join(self._write(part, depth + 1) for part in way)
            case ("repeat", least, most, inner):
                most = least + _MOST_MORE if most is None else most
                # The ends of a range are what is easily wrong.
                count = (
                    self._draw.choice([least, most, self._draw.randint(least, most)])
                    if depth < _DEEP
                    else least
                )
                return "".join(self._write(inner, depth + 1) for _ in range(count))
            case ("name", name):
                return self._write(self._rules[name], depth + 1)
            case ("class", ranges):
                first, last = self._draw.choice(ranges)
                return chr(self._draw.choice([first, last, self._draw.randint(first, last)]))
        return str(one[1])


def _plain(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        code = match[1] or match[2] or match[3]
        return chr(int(code, 16)) if code else match[4]

    return _ESCAPE.sub(one, text)
