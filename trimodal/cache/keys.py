"""Encodes a request as a scope and a question: all that changes an answer, so that no two are confused.

Every field is written with its length before it, so nothing inside one (separators,
NULs, JSON, marks that turn the writing direction) can pass for the border of another.
Confusable characters stay different: texts are brought to NFC, never to NFKC.
"""

from __future__ import annotations

import hashlib
import json
import struct
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from trimodal.cache.values import CacheScope, Question

# Raised when the encoding below changes: what was stored under the old one is then never found.
_VERSION = "trimodal-answer-1"
NO_PENALTIES = (0.0, 0.0, 1.0)
ANY_FORM = ("", "")


def question(
    fingerprint: str,
    *,
    tenant: str,
    namespace: str,
    prompt: str | None,
    messages: Sequence[Mapping[str, Any]] | None,
    temperature: float,
    top_p: float,
    top_k: int,
    seed: int | None,
    min_p: float = 0.0,
    penalties: tuple[float, float, float] = NO_PENALTIES,
    form: tuple[str, str] = ANY_FORM,
    stops: Sequence[str],
    max_tokens: int,
    verbatim: bool = False,
) -> Question:
    """Returns the question that a request asks, and the scope that it may be answered from.

    Args:
        fingerprint: 16 hex digits of the model and the settings that change its answers.
        prompt, messages: exactly one of the two; the prompt as it goes to the engine, so after trimming.
        penalties: presence, frequency and repetition: they change greedy answers, too.
        form: the grammar that the answer must follow, and the functions that the prompt tells of.
        verbatim: the prompt is continued as it stands (no chat template): not even a blank at its
            end is the same as none.
    """
    text, context = _chat(messages) if messages is not None else (prompt or "", b"prompt")
    # Greedy decoding uses none of the others.
    sampling = pack("greedy") if temperature == 0 else _sampling(temperature, top_p, top_k, seed)
    if temperature and min_p:
        sampling = join((b"min_p", sampling, struct.pack("<d", min_p)))
    if penalties != NO_PENALTIES:
        sampling = join((b"penalised", sampling, struct.pack("<ddd", *penalties)))
    if form != ANY_FORM:
        sampling = join((b"formed", sampling, pack(*form)))
    names = [_bytes(name) for name in (_VERSION, fingerprint, tenant, namespace)]
    shape = b"verbatim" if verbatim else b"normalised"
    digest = hashlib.sha256(join((*names, context, sampling, pack(*stops), shape))).hexdigest()
    scope = CacheScope(fingerprint, tenant, namespace, digest)
    return Question(scope, text if verbatim else normalised(text), max_tokens, temperature > 0, verbatim)


def normalised(text: str) -> str:
    """`text` in NFC, with line feeds for its line ends, and no whitespace around it.

    Whitespace inside stays: in code it has a meaning.
    """
    return unicodedata.normalize("NFC", text.replace("\r\n", "\n")).strip()


def _chat(messages: Sequence[Mapping[str, Any]]) -> tuple[str, bytes]:
    """Returns the last user message, and all around it as bytes; a chat without one is all context."""
    last = max((index for index, one in enumerate(messages) if one["role"] == "user"), default=-1)
    around = (
        join((b"asked",)) if index == last else join((b"said", pack(*_said(one))))
        for index, one in enumerate(messages)
    )
    return messages[last]["content"] if last >= 0 else "", join((b"chat", *around))


def _said(message: Mapping[str, Any]) -> list[str]:
    """Role and content, and what a message may have beside: calls of functions, and which one it answers."""
    more = {key: value for key, value in message.items() if key not in ("role", "content")}
    return [message["role"], message["content"], *([json.dumps(more, sort_keys=True)] if more else [])]


def _sampling(temperature: float, top_p: float, top_k: int, seed: int | None) -> bytes:
    floats = struct.pack("<dd", temperature, top_p)
    return join((b"sampled", floats, _bytes(str(top_k)), _bytes("none" if seed is None else str(seed))))


def pack(*texts: str) -> bytes:
    """As `join` of texts: no two lists of them are alike."""
    return join(tuple(_bytes(text) for text in texts))


def _bytes(text: str) -> bytes:
    # A lone surrogate is refused where requests are read; here it must only never meet another text.
    return text.encode(errors="surrogatepass")


def join(parts: Sequence[bytes]) -> bytes:
    """Encodes how many parts there are, then each after its length: it can be read in one way only."""
    head = len(parts).to_bytes(8, "big")
    return head + b"".join(len(part).to_bytes(8, "big") + part for part in parts)
