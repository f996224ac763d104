"""What each call gets: a gateway in front of the starter set, and clients of OpenAI's package."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai

from tests.e2e.conftest import BOUND
from trimodal.audio.word_errors import word_error_rate

SAMPLES = Path(__file__).parents[4] / "samples"
# Question → a word that a right answer has in it.
FACTS = {
    "What is the capital of Japan?": "Tokyo",
    "What is the capital of Egypt?": "Cairo",
    "What is the capital of Germany?": "Berlin",
    "What is the capital of China?": "Beijing",
    "What is the capital of Greece?": "Athens",
    "What is the capital of Russia?": "Moscow",
    "What is the capital of Austria?": "Vienna",
    "What is the capital of Poland?": "Warsaw",
    "What is the capital of Cuba?": "Havana",
    "What is the capital of Peru?": "Lima",
    "What is the capital of Norway?": "Oslo",
    "In which country is Berlin?": "Germany",
    "What is 2 plus 2?": "4",
    "Which animal says meow?": "cat",
    "What is the first month of the year?": "January",
}
JAPAN = [{"role": "user", "content": "What is the capital of Japan?"}]
GREECE = "What is the capital of Greece?"
# Long on purpose: its KV blocks are what a second question finds in the prefix cache.
HANDBOOK = (
    "You are a pocket atlas of the world. Answer each question about countries and cities in one short "
    "sentence and nothing else. An atlas is a collection of maps. It shows where countries, cities, rivers "
    "and mountains lie, which languages are spoken there and how many people live there. A capital is the "
    "city in which the government of a country has its seat. Most of them are also the largest city of "
    "their country, but not all: Ankara, Canberra and Brasilia are not. "
)
# Equal prompts shall be computed, but for the row that asks for the cache.
FRESH = {"cache-control": "no-cache, no-store"}


@dataclass(frozen=True)
class Starter:
    """A gateway, and clients of it which retry nothing.

    Attributes:
        url: of `trimodal serve --gateway`, without /v1; `grpc` is the address of its Triton.
        client: holds every answer to the package's own types.
        lenient: does not. The package (3.54) checks an embedding before it decodes it, and has no type for
            the null finish_reason in chunks of text.
    """

    url: str
    grpc: str
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

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a family of the gateway's /metrics over the series with these labels."""
        lines = httpx.get(f"{self.url}/metrics", timeout=BOUND).text.splitlines()
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        series = [line for line in lines if line.startswith(f"trimodal_gateway_{name}")]
        return sum(float(line.rsplit(" ", 1)[1]) for line in series if all(one in line for one in wanted))


def opened(url: str, **options: Any) -> openai.OpenAI:
    """A client that retries nothing."""
    settings = {"api_key": "none", "max_retries": 0, "timeout": BOUND, "default_headers": FRESH, **options}
    return openai.OpenAI(base_url=f"{url}/v1", **settings)


def same(heard: str, text: str) -> bool:
    """Whether what was heard is what was said, but for one word in ten."""
    return word_error_rate([text], [heard]) <= 0.1


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def said(answer: openai.types.chat.ChatCompletion) -> str:
    return answer.choices[0].message.content or ""
