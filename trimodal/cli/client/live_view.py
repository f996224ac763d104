"""Sends audio at the speed of speech and shows the words on a terminal as they come."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncGenerator, Generator, Iterator
from typing import TYPE_CHECKING, Protocol

import typer

from trimodal.cli import common

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

    from trimodal.audio.values import Samples
    from trimodal.client import LiveStream, LiveUpdate


class View(Protocol):
    """Shows a stream while it runs."""

    def show(self, stream: LiveStream, update: LiveUpdate) -> None: ...


async def follow(
    stream: LiveStream, blocks: Generator[Samples, None, None], view: View, speed: float | None
) -> bool:
    """Sends all blocks and ends the stream; Ctrl-C ends it early. The second Ctrl-C waits for nothing.

    Args:
        speed: times the speed of speech; None: as the blocks come.

    Returns:
        Whether it was ended early.
    """
    from trimodal.client.async_iteration import pumped

    stop = asyncio.Event()
    with _on_interrupt(stop):
        source = pumped(blocks)
        if speed is not None:
            source = _paced(source, speed)
        async with contextlib.aclosing(_until(source, stop)) as coming:
            async for block in coming:
                view.show(stream, await stream.send(block))
        view.show(stream, await stream.end())
    return stop.is_set()


@contextlib.contextmanager
def viewing(console: Console) -> Iterator[View]:
    """A view on `console`: one that is redrawn on a terminal, else lines."""
    if not console.is_terminal:
        yield _Lines(to_stderr=console.stderr)
        return
    from rich.live import Live

    with Live(console=console, transient=True, refresh_per_second=10) as live:
        yield _Screen(console, live)


class _Lines:
    """A line for each update that committed something."""

    def __init__(self, *, to_stderr: bool) -> None:
        self._to_stderr = to_stderr

    def show(self, stream: LiveStream, update: LiveUpdate) -> None:
        if text := " ".join(common.plain(update.text).split()):
            at = f"[{update.received_s:5.1f} s, lag {update.lag_s:.1f} s]"
            typer.echo(f"{at} {text}", err=self._to_stderr)


class _Screen:
    """Committed words, tentative ones dim, and a line with how far it is."""

    def __init__(self, console: Console, live: Live) -> None:
        self._console = console
        self._live = live

    def show(self, stream: LiveStream, update: LiveUpdate) -> None:
        self._live.update(self.drawn(stream, update))

    def drawn(self, stream: LiveStream, update: LiveUpdate) -> RenderableType:
        """The picture of one moment. Of a long transcript only the end that fits."""
        from rich.console import Group
        from rich.text import Text

        room = max(1, self._console.width * (self._console.height - 4) - len(update.tentative))
        text = common.plain(stream.text)
        if len(text) > room:
            text = "…" + text[-room:].partition(" ")[2]
        words = Text(text)
        tentative = common.plain(update.tentative)
        words.append(tentative if text else tentative.lstrip(), style="dim")
        status = f"{update.received_s:.1f} s received · lag {update.lag_s:.1f} s · {len(stream.words)} words"
        return Group(words, Text(status, style="cyan"))


@contextlib.contextmanager
def _on_interrupt(stop: asyncio.Event) -> Iterator[None]:
    """Ctrl-C sets `stop`, once; after that it does what it always does."""
    loop = asyncio.get_running_loop()

    def release() -> None:
        with contextlib.suppress(NotImplementedError, RuntimeError):  # not on every platform or thread
            loop.remove_signal_handler(signal.SIGINT)

    def interrupt() -> None:
        stop.set()
        release()

    with contextlib.suppress(NotImplementedError, RuntimeError):
        loop.add_signal_handler(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        release()


async def _paced(source: AsyncGenerator[Samples, None], speed: float) -> AsyncGenerator[Samples, None]:
    """Each block when its last sample would have been spoken."""
    from trimodal.audio.values import SAMPLE_RATE

    began, spoken_s = time.monotonic(), 0.0
    async with contextlib.aclosing(source):
        async for block in source:
            spoken_s += len(block) / SAMPLE_RATE
            await asyncio.sleep(max(0.0, began + spoken_s / speed - time.monotonic()))
            yield block


async def _until(source: AsyncGenerator[Samples, None], stop: asyncio.Event) -> AsyncGenerator[Samples, None]:
    """The blocks that come before `stop` is set."""
    stopping = asyncio.ensure_future(stop.wait())
    try:
        async with contextlib.aclosing(source):
            while True:
                coming = asyncio.ensure_future(_next(source))
                await asyncio.wait({coming, stopping}, return_when=asyncio.FIRST_COMPLETED)
                if not coming.done():
                    coming.cancel()
                    await asyncio.wait({coming})
                    return
                if (block := coming.result()) is None:
                    return
                yield block
    finally:
        stopping.cancel()


async def _next(source: AsyncGenerator[Samples, None]) -> Samples | None:
    try:
        return await source.__anext__()
    except StopAsyncIteration:
        return None
