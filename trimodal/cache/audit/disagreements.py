"""Writes pairs whose answers disagree to files, one a tenant, for an operator who labels them.

A line is a pair as `build/judge/measure.py` reads it, but with "label" and "class" null, and with the
score and both answers.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from trimodal.cache.decision import Decision

MAX_BYTES = 4 << 20
"""Of one tenant's file; a full one takes no more until the operator has taken it away."""
MAX_FILES = 256
_ANSWER_CHARACTERS = 2_000


def digest(tenant: str) -> str:
    """How a tenant is named in metrics and file names: hex digits of its SHA-256, "none" for no name."""
    return hashlib.sha256(tenant.encode(errors="surrogatepass")).hexdigest()[:16] if tenant else "none"


class Disagreements:
    """Files in `folder`, which only the server's user can read. Called from one thread."""

    def __init__(self, folder: Path, max_bytes: int = MAX_BYTES) -> None:
        self._folder, self._max_bytes = folder, max_bytes

    def write(self, decision: Decision, fresh: str) -> bool:
        """Adds a pair with the beginnings of its stored and its fresh answer; False: there is no room.

        Raises:
            OSError: the file cannot be written.
        """
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._folder / f"{digest(decision.scope.tenant)}.jsonl"
        line = _line(decision, fresh)
        size = path.stat().st_size if path.exists() else None
        if size is None and sum(1 for _ in self._folder.glob("*.jsonl")) >= MAX_FILES:
            return False
        if (size or 0) + len(line) > self._max_bytes:
            return False
        # No link is followed: who may write into the folder must not choose another file.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
        with open(os.open(path, flags, 0o600), "ab") as file:
            file.write(line)
        return True


def _line(decision: Decision, fresh: str) -> bytes:
    scope, asked, stored = decision.scope, decision.asked, decision.stored
    pair = {
        "id": hashlib.sha256(f"{scope.digest}{asked}\0{stored}".encode(errors="replace")).hexdigest()[:16],
        "a": asked,
        "b": stored,
        "label": None,
        "class": None,
        "domain": scope.namespace,
        "score": round(decision.score, 6),
        "answers": [answer[:_ANSWER_CHARACTERS] for answer in (decision.entry.answer, fresh)],
    }
    return (json.dumps(pair, ensure_ascii=False) + "\n").encode(errors="replace")
