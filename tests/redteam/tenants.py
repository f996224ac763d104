"""Tries to tell by what one tenant is answered whether another has sent something before.

A cell is a thing that tenants could learn of each other by. In each try anna sends a secret or something
else, by the fall of a coin; then bert asks about the secret, and guesses the coin by all that he was answered
but random ids, clocks and the words themselves. He learns from half of the tries what answer goes with which
side, and guesses the other half. Of one who knows nothing, half of the guesses are right.
"""

from __future__ import annotations

import base64
import math
import random
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.doubles.waiting import wait_until
from tests.redteam.stack import Stack, stack

Act = Callable[[Stack, str, str], object]
TENANTS = "anna", "bert"
# What is random, a clock, or the fake engine's words, which the prompt decides: all else is looked at.
_NOISE = re.compile(
    r'"(id|created|created_at|\w*_ms|content|text|delta)": ?("[^"]*"|[\d.e+-]+|null)'
    r"|(resp|req|chatcmpl|msg|cmpl)[-_]\w+"
)
_HEADERS = ("date", "x-request-id", "server-timing", "content-length")


@dataclass(frozen=True)
class Cell:
    """`send`: what anna does with a text; `probe`: what bert does about it, and all that he sees."""

    name: str
    send: Act
    probe: Act
    stores: bool = False  # what anna sends is written behind


@dataclass(frozen=True)
class Verdict:
    right: int
    guesses: int

    @property
    def bound(self) -> int:
        """More right guesses than so many come by chance once in a thousand times."""
        tail = 0.0
        for right in range(self.guesses, -1, -1):
            tail += math.comb(self.guesses, right) / 2**self.guesses
            if tail > 1e-3:
                return right
        return 0

    @property
    def holds(self) -> bool:
        return self.right <= self.bound


@dataclass(frozen=True)
class Trial:
    """`coin`: the secret was sent before; `found` and `seconds`: the answer when it is asked about."""

    coin: bool
    found: Hashable
    seconds: float


def seen(answer: httpx.Response) -> Hashable:
    """An answer without what is random."""
    headers = tuple((name, value) for name, value in answer.headers.items() if name not in _HEADERS)
    return answer.status_code, headers, _NOISE.sub("-", answer.text)


def judge(served: Stack, cell: Cell, tries: int, names: tuple[str, str] = TENANTS, seed: int = 0) -> Verdict:
    """How often the second of `names` guesses by the answers what the first has done."""
    trials = tried(served, cell, tries, names, seed)
    learned: dict[Hashable, Counter[bool]] = defaultdict(Counter)
    for trial in trials[: tries // 2]:
        learned[trial.found][trial.coin] += 1
    guessed = trials[tries // 2 :]
    right = sum(
        trial.coin == (learned[trial.found].most_common(1)[0][0] if trial.found in learned else True)
        for trial in guessed
    )
    return Verdict(right, len(guessed))


def tried(
    served: Stack, cell: Cell, tries: int, names: tuple[str, str] = TENANTS, seed: int = 0
) -> list[Trial]:
    """What the second of `names` sees when the first sends a secret or something else. 4 divides them."""
    draw = random.Random(f"{cell.name} {seed}")
    half = [True, False] * (tries // 4)  # those that teach, and those that are guessed, have as many of both
    coins = [coin for _ in range(2) for coin in draw.sample(half, len(half))]
    trials = []
    for coin in coins:
        secret, other = (f"a PIN {draw.getrandbits(64):020d}, {'word ' * 20}" for _ in range(2))
        stored = served.cache.stored_in_all()
        cell.send(served, names[0], secret if coin else other)
        if cell.stores:
            wait_until(lambda before=stored: served.cache.stored_in_all() > before, "it is stored")  # type: ignore[misc]
        began = time.perf_counter()
        found = cell.probe(served, names[1], secret)
        seconds = time.perf_counter() - began
        assert isinstance(found, Hashable)
        trials.append(Trial(coin, found, seconds))
    return trials


def chat(text: str, **fields: object) -> dict[str, object]:
    return {"model": "llm", "max_tokens": 4, "messages": [{"role": "user", "content": text}], **fields}


def asking(path: str, body: Callable[[str], object], **headers: str) -> Act:
    """Posts what a text makes; what was answered."""

    def ask(served: Stack, name: str, text: str) -> object:
        return seen(served.post(name, path, body(text), **headers))

    return ask


def _picture(text: str) -> dict[str, object]:
    url = f"data:image/png;base64,{base64.b64encode(text.encode()).decode()}"
    return {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}


def _sees(served: Stack, name: str, text: str) -> object:
    """Asks about a picture of an earlier message; what had to be looked at for it is seen, as by a clock."""
    before = len(served.triton.requests)
    messages = [
        _picture(text),
        {"role": "assistant", "content": "A seven."},
        {"role": "user", "content": "?"},
    ]
    answer = served.post(name, "/v1/chat/completions", {"model": "assistant", "messages": messages})
    return seen(answer), tuple(one.model for one in served.triton.requests[before:])


def _keeps(served: Stack, name: str, text: str) -> object:
    body = {"model": "llm", "input": text, "max_output_tokens": 4}
    _ids[text] = served.post(name, "/v1/responses", body).json()["id"]
    return None


_ids: dict[str, str] = {}


def _fetches(served: Stack, name: str, text: str) -> object:
    id = _ids.get(text, "resp_" + "0" * 32)
    got = seen(served.clients[name].get(f"/v1/responses/{id}"))
    goes_on = {"model": "llm", "input": "?", "previous_response_id": id, "max_output_tokens": 1}
    return (
        got,
        seen(served.clients[name].delete(f"/v1/responses/{id}")),
        seen(served.post(name, "/v1/responses", goes_on)),
    )


def _looks(served: Stack, name: str, text: str) -> object:
    """What everybody may read, and what only an operator."""
    pages = ("/v1/models", "/v1/models/llm", "/ready", "/health", "/metrics", "/openapi.json")
    return tuple(seen(served.clients[name].get(page)) for page in pages)


def _same_id(served: Stack, name: str, text: str) -> object:
    identity = text.split()[2].strip(",")
    bodies: list[object] = [chat("hi " + "there " * 9), chat("hi", nonsense=1, n=0), {"model": "nobody"}]
    return tuple(
        seen(served.post(name, "/v1/chat/completions", body, **{"x-request-id": identity})) for body in bodies
    )


_open: list[ExitStack] = []


def coalescing(max_tokens: int) -> Cell:
    """Asks for what anna is being answered."""

    def begins(served: Stack, name: str, text: str) -> object:
        """Has an answer under way until the next probe."""
        body = chat(text, max_tokens=max_tokens, stream=True)
        _open.append(ExitStack())
        stream = served.clients[name].stream("POST", "/v1/chat/completions", json=body)
        lines = _open[-1].enter_context(stream).iter_lines()
        _open[-1].callback(lines.close)  # type: ignore[attr-defined]  # a generator that is gone ends the answer
        while "content" not in next(lines):
            pass
        return None

    def joins(served: Stack, name: str, text: str) -> object:
        body = chat(text, max_tokens=max_tokens, stream=True)
        answer = served.post(name, "/v1/chat/completions", body)
        _open.pop().close()
        # How the words come in chunks is the clock's.
        return answer.status_code, tuple(re.findall(r'"(?:cache|cached_tokens)": ?\S+?[,}]', answer.text))

    return Cell("coalescing", begins, joins)


FRESH = {"cache-control": "no-cache, no-store"}
_chat = asking("/v1/chat/completions", chat)
_fresh = asking("/v1/chat/completions", chat, **FRESH)
_embed = asking("/v1/embeddings", lambda text: {"model": "embedding", "input": text})
CELLS = (
    Cell("exact cache", _chat, _chat, stores=True),
    Cell("semantic cache", _chat, asking("/v1/chat/completions", lambda text: chat(f"{text}please")),
         stores=True),
    coalescing(200),
    Cell("prefix cache", _fresh, _fresh),
    Cell("prefix cache, prompts as they stand", *[
        asking("/v1/completions", lambda text: {"model": "llm", "prompt": text, "max_tokens": 4}, **FRESH)
    ] * 2),
    Cell("prefix cache, in streams", *[
        asking("/v1/chat/completions",
               lambda text: chat(text, stream=True, stream_options={"include_usage": True}), **FRESH)
    ] * 2),
    Cell("findings in files", _sees, _sees),
    Cell("kept responses", _keeps, _fetches),
    Cell("embeddings", _embed, _embed),
    Cell("pages, models and metrics", _chat, _looks),
    Cell("request ids and errors", _same_id, _same_id),
)  # fmt: skip
# What those of one tenant do share, by which the distinguisher shows that it can tell.
SHARED = {
    "coalescing",
    "exact cache",
    "semantic cache",
    "prefix cache",
    "findings in files",
    "kept responses",
}


def table(folder: Path, tries: int) -> Iterator[tuple[str, bool]]:
    """A line for each cell, and whether it held."""
    with stack(folder) as served:
        for cell in CELLS:
            one = judge(served, cell, tries)
            told = f"{one.right} of {one.guesses} guesses were right, at most {one.bound} by chance"
            yield f"{cell.name:40} {told}{'' if one.holds else '  LEAKS'}", one.holds
