"""Runs the bare side of a bench in a process of its own, as the served model has.

In the client's process its threads and the interpreter lock would slow the work down.
"""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any

from trimodal.bench.common.closed_loop import LoopRound, run_alone
from trimodal.errors import OperatorError

# Kind of work → the call that does number n of it with a batch of this size.
Works = Mapping[str, Callable[[int, int], object]]
_START_S = 120.0
_GRACE_S = 60.0


class BareProcess:
    """Opens the works in a new process and runs rounds of them.

    Args:
        opener: makes the works; called in the process with `arguments`, so both are pickled.
    """

    def __init__(self, opener: Callable[..., Works], *arguments: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(other, opener, arguments), daemon=True)
        self._process.start()
        other.close()

    async def run(self, kind: str, *, batch: int, seconds: float) -> LoopRound:
        """Runs a round of `kind` in batches of `batch` items.

        Raises:
            OperatorError: the works cannot be opened or failed; says why.
        """
        return await asyncio.to_thread(self._run, kind, batch, seconds)

    def _run(self, kind: str, batch: int, seconds: float) -> LoopRound:
        try:
            self._pipe.send((kind, batch, seconds))
            if not self._pipe.poll(_START_S + seconds + _GRACE_S):
                raise OperatorError("the bare engine's process does not answer")
            answer = self._pipe.recv()
        except (EOFError, OSError):
            raise OperatorError("the bare engine's process died") from None
        if isinstance(answer, LoopRound):
            return answer
        raise OperatorError(f"the bare engine failed: {answer}")

    def __enter__(self) -> BareProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.close()
        self._process.join(5.0)
        if self._process.is_alive():
            self._process.kill()
            self._process.join(5.0)


def _serve(pipe: Connection, opener: Callable[..., Works], arguments: tuple[Any, ...]) -> None:
    works: Works | None = None
    while True:
        try:
            kind, batch, seconds = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            works = opener(*arguments) if works is None else works
            work = works[kind]
            answer: LoopRound | str = run_alone(
                lambda number, work=work, batch=batch: work(batch, number),  # type: ignore[misc]
                items=batch,
                seconds=seconds,
            )
        except Exception as error:
            answer = f"{type(error).__name__}: {error}"
        pipe.send(answer)
