"""Writes pairs whose answers disagree to a file, for an operator who labels them."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from trimodal.cache.decision import Decision

MAX_BYTES = 64 << 20
"""A full file takes no more until the operator has taken it away."""
_ANSWER_CHARACTERS = 2_000


def write_pair(file: Path, decision: Decision, fresh: str) -> bool:
    """Adds a pair with the beginnings of its stored and its fresh answer; False: there is no room.

    A line is a pair as `build/judge/measure.py` reads it, but with "label" and "class" null, and with the
    score and both answers. Only the server's user can read the file.

    Raises:
        OSError: the file cannot be written.
    """
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    line = _line(decision, fresh)
    if (file.stat().st_size if file.exists() else 0) + len(line) > MAX_BYTES:
        return False
    # No link is followed: who may write into the folder must not choose another file.
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
    with open(os.open(file, flags, 0o600), "ab") as opened:
        opened.write(line)
    return True


def _line(decision: Decision, fresh: str) -> bytes:
    scope, question, stored = decision.scope, decision.question, decision.stored
    pair = {
        "id": hashlib.sha256(f"{scope.digest}{question}\0{stored}".encode(errors="replace")).hexdigest()[:16],
        "a": question,
        "b": stored,
        "label": None,
        "class": None,
        "domain": scope.namespace,
        "score": round(decision.score, 6),
        "answers": [answer[:_ANSWER_CHARACTERS] for answer in (decision.entry.answer, fresh)],
    }
    return (json.dumps(pair, ensure_ascii=False) + "\n").encode(errors="replace")
