"""Asks for text over HTTP: Triton's generate extension, or OpenAI's chat completions; both stream events.

Works with any server of those interfaces, not only this project's.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from trimodal.bench.load.records import Record
from trimodal.bench.targets.questions import Source
from trimodal.bench.targets.taking import taken
from trimodal.client.errors import ConnectError, ConnectionLost, ProtocolError, Timeout, from_message
from trimodal.errors import (
    InternalError,
    InvalidArgument,
    ServerError,
    SettingsError,
    TrimodalError,
    Unavailable,
)

if TYPE_CHECKING:
    import aiohttp

_MOST_ERROR = 400


@dataclass
class HttpLlm:
    """A server at `url`: …/v1/chat/completions (or …/v1) is OpenAI's API, all else generate_stream.

    Attributes:
        url: http or https; without a path that of generate_stream for the model.
        key: of OpenAI's API.
        keep_alive: False: a connection for each request. llama.cpp drops kept ones without a word.
        ignore_eos: asks servers that know it (vLLM, SGLang, llama.cpp) for answers of exactly max_tokens.

    Raises:
        SettingsError: it is no such address.
    """

    url: str
    questions: Source
    model: str = "llm"
    key: str = ""
    timeout: float = 60.0
    keep_alive: bool = True
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        self.url, self.openai = read_url(self.url, self.model)
        self._opened: aiohttp.ClientSession | None = None

    async def send(self, number: int) -> Record:
        question = self.questions(number)

        async def ask(record: Record) -> None:
            await self._ask(record, question.text, question.max_tokens)

        return await taken(ask)

    def asking(self, questions: Source) -> HttpLlm:
        """The same over the same connections, with other questions; the first one is to be closed last."""
        self._session()
        other = copy(self)
        other.questions = questions
        return other

    async def count(self, text: str) -> int:
        """Tokens of the prompt that the model makes of this text; 0: the server does not tell."""
        record = Record.begun()
        await self._ask(record, text, 1)
        return record.input_tokens

    async def choose_model(self) -> None:
        """Takes OpenAI's API's first model where it has none of this name. Raises: ServerError, Timeout."""
        import aiohttp

        if not self.openai:
            return
        url = self.url.removesuffix("/chat/completions") + "/models"
        try:
            async with self._session().get(url) as response:
                listed = [str(one["id"]) for one in json.loads(await response.text())["data"]]
        except asyncio.TimeoutError:
            raise Timeout(f"the server at {url} did not answer within {self.timeout:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise ServerError(f"no server at {url}: {error}") from None
        except (ValueError, KeyError, TypeError):
            return  # it lists none: it takes any name, or says why not
        if listed and self.model not in listed:
            self.model = listed[0]

    async def aclose(self) -> None:
        if self._opened:
            await self._opened.close()

    async def _ask(self, record: Record, text: str, max_tokens: int) -> None:
        import aiohttp

        read = _read_openai if self.openai else _read_triton
        try:
            async with self._session().post(self.url, json=self._body(text, max_tokens)) as response:
                if response.status != 200:
                    raise _refused(response.status, await response.text())
                async for event in events(response.content.iter_any()):
                    if read(event, record):
                        record.piece()
        except aiohttp.ClientConnectorError as error:
            raise ConnectError(f"no server at {self.url}: {error.os_error.strerror or error}") from None
        except asyncio.TimeoutError:
            raise Timeout(f"the server at {self.url} did not finish within {self.timeout:g} s") from None
        except aiohttp.ClientError as error:
            raise ConnectionLost(f"the server at {self.url} went away: {error}") from None
        if not record.output_tokens:
            record.output_tokens = len(record.pieces)  # a server that tells no usage: a token in each piece

    def _body(self, text: str, max_tokens: int) -> dict[str, Any]:
        more = {"ignore_eos": True} if self.ignore_eos else {}
        if not self.openai:
            return {"text_input": text, "max_tokens": max_tokens, **more}
        return {
            "model": self.model,
            "messages": [{"role": "user", "content": text}],
            "max_tokens": max_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
            **more,
        }

    def _session(self) -> aiohttp.ClientSession:
        import aiohttp

        if self._opened is None:
            headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
            self._opened = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, force_close=not self.keep_alive),
                timeout=aiohttp.ClientTimeout(total=self.timeout),
                headers=headers,
            )
        return self._opened


def read_url(url: str, model: str) -> tuple[str, bool]:
    """The address that requests go to, and whether it is OpenAI's API. Raises: SettingsError."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise SettingsError(f"{url}: http://host:port or, of gRPC, host:port is needed")
    path = parts.path.rstrip("/")
    if path.endswith("/v1"):
        path += "/chat/completions"
    if path.endswith("/completions"):
        if not path.endswith("/chat/completions"):
            raise SettingsError(f"{url}: of OpenAI's API only /v1/chat/completions is known")
        return parts._replace(path=path).geturl(), True
    return parts._replace(path=path or f"/v2/models/{model}/generate_stream").geturl(), False


async def events(chunks: AsyncIterator[bytes]) -> AsyncIterator[dict[str, Any]]:
    """Yields the JSON objects of a stream of server-sent events, up to its `[DONE]`.

    Raises:
        ProtocolError: one holds no JSON object, or none came: a page, or an answer that is not streamed.
    """
    rest, came = b"", False
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if not line.startswith(b"data:"):
                continue
            data, came = line[5:].strip(), True
            if data == b"[DONE]":
                return
            try:
                event = json.loads(data)
            except ValueError:
                event = None
            if not isinstance(event, dict):
                raise ProtocolError("an event of the stream holds no JSON object")
            yield event
    if not came:
        raise ProtocolError("the answer is no stream of events")


def _read_triton(event: Mapping[str, Any], record: Record) -> bool:
    """Takes an event of generate_stream in; whether it brought text, also of reasoning."""
    if error := event.get("error"):
        raise from_message(str(error), by_model=True)
    record.input_tokens = int(event.get("prompt_tokens", record.input_tokens))
    record.cached_tokens = int(event.get("cached_tokens", record.cached_tokens))
    record.output_tokens = int(event.get("completion_tokens", record.output_tokens))
    return bool(event.get("text_output") or event.get("reasoning"))


def _read_openai(event: Mapping[str, Any], record: Record) -> bool:
    """Takes a chunk of a chat completion in; whether it brought text, also of reasoning."""
    if error := event.get("error"):
        raise InternalError(str(error.get("message", error) if isinstance(error, dict) else error))
    if usage := event.get("usage"):
        record.input_tokens = int(usage.get("prompt_tokens") or 0)
        record.output_tokens = int(usage.get("completion_tokens") or 0)
        record.cached_tokens = int((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0)
    deltas = (choice.get("delta") or {} for choice in event.get("choices") or ())
    return any(delta.get("content") or delta.get("reasoning_content") for delta in deltas)


def _refused(status: int, body: str) -> TrimodalError:
    """The error of an HTTP status; its sentence from OpenAI's form or Triton's."""
    try:
        error = json.loads(body).get("error", body)
        text = str(error.get("message", error) if isinstance(error, dict) else error)
    except (ValueError, AttributeError):
        text = body.strip() or "no reason given"
    text = f"HTTP {status}: {text[:_MOST_ERROR]}"
    if status in (429, 503):
        return Unavailable(text)
    return InternalError(text) if status >= 500 else InvalidArgument(text)
