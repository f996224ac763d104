"""What each call gets: the demo server's gateways, and clients of OpenAI's package."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai

from tests.e2e.conftest import BOUND
from trimodal.demo.assistant import topics

DEMO = Path(__file__).parents[4] / "build" / "demo"
TOPICS = topics(DEMO)  # what the demo's language model was trained to recite
LAMBDA = [{"role": "user", "content": "what is a lambda?"}]
TRUTH = TOPICS["lambda"]
# Long on purpose: its KV blocks are what a second question finds in the prefix cache.
HANDBOOK = (
    "You are a pocket reference of the Python language. Answer with the first sentences of the "
    "documentation and nothing else. The language reference describes the syntax and the core semantics. "
    "It is terse, but attempts to be exact and complete. The semantics of non-essential built-in object "
    "types and of the built-in functions and modules are described in the library reference. For an informal "
    "introduction to the language, see the tutorial. "
)
# Equal prompts shall be computed, but for the row that asks for the cache.
FRESH = {"cache-control": "no-cache, no-store"}


@dataclass(frozen=True)
class Demo:
    """Three gateways, each a URL without /v1, and clients of the first, which retry nothing.

    Attributes:
        url: of `trimodal serve --gateway`, which asks for no keys.
        keyed: the same Triton behind the keys of `file`; `keys` has them by name.
        down: behind it is nothing.
        client: holds every answer to the package's own types.
        lenient: does not. The package (3.54) checks an embedding before it decodes it, and has no type for
            the null finish_reason in chunks of text.
    """

    url: str
    keyed: str
    file: Path
    keys: Mapping[str, str]
    down: str
    client: openai.OpenAI
    lenient: openai.OpenAI

    def asynchronous(self, *, strict: bool = True) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(
            base_url=f"{self.url}/v1",
            api_key="none",
            max_retries=0,
            timeout=BOUND,
            default_headers=FRESH,
            _strict_response_validation=strict,
        )

    def known(self, name: str, **options: Any) -> openai.OpenAI:
        """A client of `keyed` with the key of this name."""
        return opened(self.keyed, api_key=self.keys[name], **options)

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a family of the gateway's /metrics over the series with these labels."""
        lines = httpx.get(f"{self.url}/metrics", timeout=BOUND).text.splitlines()
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        series = [line for line in lines if line.startswith(f"trimodal_gateway_{name}")]
        return sum(float(line.rsplit(" ", 1)[1]) for line in series if all(one in line for one in wanted))


def opened(url: str, **options: Any) -> openai.OpenAI:
    """A client that retries nothing, unless it is told to."""
    settings = {"api_key": "none", "max_retries": 0, "timeout": BOUND, "default_headers": FRESH, **options}
    return openai.OpenAI(base_url=f"{url}/v1", **settings)


@contextmanager
def counted(url: str, **options: Any) -> Iterator[tuple[openai.OpenAI, list[str]]]:
    """A client, and the path of every request that it sends."""
    sent: list[str] = []
    hooks = {"request": [lambda request: sent.append(request.url.path)]}
    with ExitStack() as stack:
        http = stack.enter_context(openai.DefaultHttpxClient(event_hooks=hooks))
        yield stack.enter_context(opened(url, http_client=http, **options)), sent


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def said(answer: openai.types.chat.ChatCompletion) -> str:
    return answer.choices[0].message.content or ""
