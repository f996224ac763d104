"""Converts text to token ids and back and renders the model's chat template, without a model runtime.

The serving side reads the files that a checkpoint ships (tokenizer.json,
tokenizer_config.json, chat_template.jinja) with the `tokenizers` library.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimodal.errors import ArtefactError, InvalidArgument
from trimodal.llm.rendering import ANSWERED, Rendering
from trimodal.llm.structured.call_text import as_plain_chat
from trimodal.manifest import MANIFEST
from trimodal.runtimes.heap import give_back_freed

if TYPE_CHECKING:
    from trimodal.llm.chat_template import ChatTemplate

Message = dict[str, Any]
Function = Mapping[str, Any]
_LONG_CHARACTERS = 4096
_BYTE_PIECE = re.compile("<0x([0-9A-F]{2})>")


def _byte_characters() -> dict[str, int]:
    """The characters that stand for bytes in vocabularies of GPT-2's kind; visible ones are their own."""
    seen = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in seen]
    return {chr(byte): byte for byte in seen} | {chr(256 + at): byte for at, byte in enumerate(hidden)}


_BYTES = _byte_characters()


class CheckpointTokenizer:
    """The tokenizer of a built engine's directory.

    Attributes:
        ends: tokens that end an answer.
        is_dated: the chat template may write the day.
    """

    def __init__(self, directory: Path) -> None:
        import tokenizers

        path = directory / "tokenizer.json"
        if not path.is_file():
            raise ArtefactError(f"{directory} lacks tokenizer.json: build the engine again")
        self._tokenizer = tokenizers.Tokenizer.from_file(str(path))
        # The file may ask for both, as it was left by a training. A prompt is what its client sent.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        path = directory / "tokenizer_config.json"
        # Triton's stub takes ASCII for the files' encoding when a container sets no locale.
        text = path.read_text(encoding="utf-8") if path.is_file() else "{}"
        self._config: dict[str, Any] = json.loads(text)
        self._template = self._read_template(directory)
        self.ends = self._end_ids(directory)
        added = self._tokenizer.get_added_tokens_decoder()
        self._added: dict[int, bytes] = {id: token.content.encode() for id, token in added.items()}
        decoder = self._tokenizer.decoder
        # A decoder tells its kind only as what it would be written as.
        self._byte_level = decoder is not None and b'"ByteLevel"' in decoder.__getstate__()
        self.has_chat_template = self._template is not None
        self.is_dated = self._template is not None and self._template.is_dated
        give_back_freed()

    def encode(self, text: str) -> list[int]:
        """Ids of a rendered chat, which holds its special tokens as text.

        One that a message's content spells out counts as well, as in transformers and vLLM: take it out of
        text that is not trusted.
        """
        # A template writes its special tokens itself; adding them again would change the prompt.
        return self._ids(text, special=False)

    def encode_prompt(self, text: str) -> list[int]:
        """Ids of a raw prompt, with the special tokens that the checkpoint wants around it."""
        return self._ids(text, special=True)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of the ids without special tokens; an incomplete character ends in U+FFFD."""
        return str(self._tokenizer.decode(list(token_ids), skip_special_tokens=True))

    def decode_whole(self, token_ids: Sequence[int]) -> str:
        """The same with special tokens, but for those that end an answer.

        A grammar takes a special token for the text that it is made of: without it that would be missing.
        """
        ids = [id for id in token_ids if id not in self.ends]
        return str(self._tokenizer.decode(ids, skip_special_tokens=False))

    def token_bytes(self, token_id: int) -> bytes:
        """What one token adds to a text, as UTF-8, maybe part of a character; its name if it is special."""
        if token_id in self._added:
            return self._added[token_id]
        piece = self._tokenizer.id_to_token(token_id) or ""  # a vocabulary may be padded with nothing
        if self._byte_level:
            return bytes(_BYTES[character] for character in piece)
        if byte := _BYTE_PIECE.fullmatch(piece):
            return bytes.fromhex(byte[1])
        return piece.replace("\u2581", " ").encode()

    def render(
        self,
        messages: Sequence[Message],
        functions: Sequence[Function] = (),
        rendering: Rendering = ANSWERED,
    ) -> str:
        """The prompt of a chat; the assistant may call the functions."""
        if self._template is None:
            raise InvalidArgument("messages: this model has no chat template; send text_input")
        return self._template.render(messages, functions, self._special, rendering)

    def _read_template(self, directory: Path) -> ChatTemplate | None:
        # The engine's process imports this module, perhaps in an environment without jinja2.
        from trimodal.llm.chat_template import ChatTemplate, special_tokens, template_source

        self._special = special_tokens(self._config)
        source = template_source(directory, self._config)
        return ChatTemplate(source) if source else None

    def _end_ids(self, directory: Path) -> frozenset[int]:
        """Tokens that end an answer: those of the built engine, or the tokenizer's own."""
        path = directory / MANIFEST
        manifest = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        if ids := manifest.get("extra", {}).get("eos_token_ids"):
            return frozenset(map(int, ids))
        end = self._config.get("eos_token")
        id = self._tokenizer.token_to_id(end["content"] if isinstance(end, dict) else end) if end else None
        return frozenset() if id is None else frozenset({id})

    def _ids(self, text: str, *, special: bool) -> list[int]:
        if len(text) < _LONG_CHARACTERS:
            return list(self._tokenizer.encode(text, add_special_tokens=special).ids)
        # encode holds Python's global lock to its end: 0.4 s for 256 kB, in which no stream gets a delta.
        return list(self._tokenizer.encode_batch_fast([text], add_special_tokens=special)[0].ids)


class ByteTokenizer:
    """One token per UTF-8 byte: the fake engine's tokenizer, and a hard case for the detokenizer."""

    has_chat_template = True
    is_dated = False
    ends: frozenset[int] = frozenset()

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    encode_prompt = encode

    def decode(self, token_ids: Sequence[int]) -> str:
        return bytes(token_ids).decode(errors="replace")

    decode_whole = decode

    def token_bytes(self, token_id: int) -> bytes:
        return bytes([token_id])

    def render(
        self,
        messages: Sequence[Message],
        functions: Sequence[Function] = (),
        rendering: Rendering = ANSWERED,
    ) -> str:
        chat = as_plain_chat(messages, functions)
        told = "".join(f"{message['role']}: {message['content']}\n" for message in chat)
        if rendering.continue_final_message:
            return told.removesuffix("\n")
        return told + "assistant: " * rendering.add_generation_prompt


Tokenizer = CheckpointTokenizer | ByteTokenizer
