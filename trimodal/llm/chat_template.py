"""Renders a checkpoint's chat template, for the server and for build scripts, as transformers does."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

import jinja2
from jinja2 import meta, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from trimodal.errors import ArtefactError, InvalidArgument
from trimodal.llm.rendering import ANSWERED, Rendering
from trimodal.llm.structured.call_text import as_plain_chat
from trimodal.llm.structured.families import calls_of

CHAT_TEMPLATE = "chat_template.jinja"
# Stands after a message that is to be continued: what the template writes behind it is cut off.
_END = "<the message goes on here>"
_MISTRAL_ID = re.compile("[a-zA-Z0-9]{9}")
# A template is a program: it also adds text to a number, or asks for a key that a message has not.
_FAILURES = (jinja2.TemplateError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


class ChatTemplate:
    """A compiled template.

    Sandboxed: a checkpoint's template is data, not our code.

    Attributes:
        takes_tools: whether it has a place for functions; else they are written into the messages.
        is_dated: whether it may write the day.
    """

    def __init__(self, source: str) -> None:
        """Raises: ArtefactError: it is no template; the sentence names the line."""
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
        )
        environment.globals |= {"raise_exception": _refuse, "strftime_now": _now}
        environment.filters["tojson"] = _to_json
        self._short_ids = calls_of(source) == "mistral"
        self.is_dated = "strftime_now" in source
        try:
            self._template = environment.from_string(source)
            self.takes_tools = "tools" in meta.find_undeclared_variables(environment.parse(source))
        except jinja2.TemplateSyntaxError as error:
            raise ArtefactError(f"the chat template cannot be read: line {error.lineno}: {error}") from None

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        functions: Sequence[Mapping[str, Any]] = (),
        tokens: Mapping[str, Any] | None = None,
        rendering: Rendering = ANSWERED,
    ) -> str:
        """The prompt; `tokens` as `special_tokens` has them.

        Raises:
            InvalidArgument: the template does not take these messages.
        """
        if not self.takes_tools:
            messages, functions = as_plain_chat(messages, functions), ()
        elif self._short_ids:
            messages = [_with_short_ids(message) for message in messages]
        # transformers has both in any case: a template may ask whether they are none, not whether they are.
        beside = {"tools": list(functions) or None, "documents": None, **(tokens or {}), **rendering.kwargs}
        if rendering.continue_final_message:
            *before, last = messages
            messages = [*before, {**last, "content": f"{last['content']}{_END}"}]
        try:
            prompt = self._template.render(
                messages=messages, add_generation_prompt=rendering.add_generation_prompt, **beside
            )
        except _FAILURES as error:
            raise InvalidArgument(f"messages: the chat template refuses them: {error}") from None
        if not rendering.continue_final_message:
            return prompt
        end = prompt.rfind(_END)
        if end < 0:
            raise InvalidArgument("continue_final_message: the chat template leaves the last message out")
        return prompt[:end]


def template_source(directory: Path, config: Mapping[str, Any]) -> str | None:
    """The template of a checkpoint: a file of its own, or in `config`, its tokenizer_config.json."""
    path = directory / CHAT_TEMPLATE
    source: Any = path.read_text(encoding="utf-8") if path.is_file() else config.get("chat_template")
    if isinstance(source, list):  # several named templates: the chat is called "default"
        source = next((entry["template"] for entry in source if entry["name"] == "default"), None)
    return source or None


def read_template(directory: Path) -> str:
    """The template of an artefact; "": it has none."""
    path = directory / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return template_source(directory, config) or ""


def special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """What a template may write, bos_token, eos_token, …, as tokenizer_config.json names them."""
    named = {
        key: value["content"] if isinstance(value, dict) else value
        for key, value in config.items()
        if key.endswith("_token") and value
    }
    return {key: value for key, value in named.items() if isinstance(value, str)}


class _Generation(Extension):
    """{% generation %} … {% endgeneration %} marks for a trainer what the assistant says: kept as it is."""

    tags = {"generation"}  # noqa: RUF012  as jinja2 declares it

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        # A scope, as a block of its own: what is set inside is not seen outside.
        return nodes.Scope(body).set_lineno(line)


def _with_short_ids(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """The message with ids of calls that Mistral's templates take; they refuse all others."""
    if calls := message.get("tool_calls"):
        short = [{**call, "id": _short_id(call.get("id", ""))} for call in calls]
        return {**message, "tool_calls": short}
    if message["role"] == "tool":
        return {**message, "tool_call_id": _short_id(message.get("tool_call_id", ""))}
    return message


def _short_id(id: str) -> str:
    """9 letters and digits: the id itself if it is so, else a hash: a call and its answer have the same."""
    return id if _MISTRAL_ID.fullmatch(id) else hashlib.sha256(id.encode()).hexdigest()[:9]


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """jinja2's own filter writes &, <, > and ' as HTML wants them."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _now(form: str) -> str:
    return datetime.now().strftime(form)


def _refuse(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)
