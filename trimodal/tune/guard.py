"""Puts a server back when the process that tunes it is gone before it could: `python -m trimodal.tune.guard`.

The guard has a session of its own, so that Ctrl-C at the terminal does not end it. It gets what was
there as one line of JSON, waits for the end of its input, and restores unless `done` came before.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from trimodal.errors import ServerError
from trimodal.tune.live import LiveServer, Snapshot

DONE = "done\n"


class Guard:
    """A guard over one server, while the block lasts."""

    def __init__(self, server: LiveServer, snapshot: Snapshot) -> None:
        task = {"url": server.url, "key": server.operator_key, "models": snapshot.dump()}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "trimodal.tune.guard"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            text=True,
        )
        assert self._process.stdin
        self._input = self._process.stdin
        self._input.write(json.dumps(task) + "\n")
        self._input.flush()

    def release(self) -> None:
        """All is as it was: the guard has nothing to do any more."""
        try:
            self._input.write(DONE)
            self._input.close()
        except OSError:
            pass
        self._process.wait(10.0)


def watch(task: dict[str, Any], rest: str) -> str:
    """Restores unless `rest` of the input says that it was done. Returns a sentence for the terminal."""
    if rest == DONE:
        return ""
    server = LiveServer(task["url"], task["key"])
    try:
        names = Snapshot.of_dump(server, task["models"]).restore()
    except ServerError as error:
        return f"trimodal tune ended early, and {task['url']} is {error}"
    finally:
        server.close()
    return (
        f"trimodal tune ended early; put back at {task['url']}: {', '.join(names) or 'nothing had changed'}"
    )


if __name__ == "__main__":
    first = sys.stdin.readline()
    if first:
        sentence = watch(json.loads(first), sys.stdin.read())
        if sentence:
            sys.stderr.write(f"{sentence}\n")
