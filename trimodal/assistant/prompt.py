"""Renders what was asked, heard and seen as the user's message, by a jinja2 file that operators may edit.

Sandboxed, and tried at load. What a recording or an image says only ever becomes part of the user's
message: the system message is a setting, and nothing that a client sends gets into it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trimodal.assistant.values import Label, Labels
from trimodal.errors import InternalError, SettingsError

_TRIED = (
    ("a question", "", ()),
    ("", "a spoken question", ()),
    ("a question", "what was said", (Label(label="a label", score=0.9), Label(label="another", score=0.1))),
)


class Prompt:
    """One template. Its names: `text`, `heard` (each may be empty) and `labels`, of {label, score}.

    Raises SettingsError: the file cannot be read, is no template, uses other names, or renders nothing.
    """

    def __init__(self, file: Path) -> None:
        import jinja2
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        environment = ImmutableSandboxedEnvironment(
            undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False
        )
        # What is quoted stays readable: jinja2's own filter escapes for HTML.
        environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
        try:
            self._template = environment.from_string(file.read_text(encoding="utf-8"))
            tried = [self._template.render(**_names(*one)).strip() for one in _TRIED]
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8"
            raise SettingsError(f"parameter 'template': {file} cannot be read: {reason}") from None
        except Exception as error:  # of the template: TemplateError, or whatever its expressions raise
            raise SettingsError(f"parameter 'template': {file}: {error}") from None
        if not all(tried):
            raise SettingsError(f"parameter 'template': {file} renders an empty prompt")

    def render(self, text: str, heard: str, saw: Labels) -> str:
        """Renders the user's message. Raises InternalError: the template fails on these values."""
        try:
            return self._template.render(**_names(text, heard, saw)).strip()
        except Exception as error:
            raise InternalError(f"the prompt template fails: {error}") from None


def _names(text: str, heard: str, saw: Labels) -> dict[str, Any]:
    return {"text": text, "heard": heard, "labels": [one.model_dump() for one in saw]}
