"""Sends audio at the speed of speech and shows the words on a terminal as they come."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from typing import TYPE_CHECKING

import typer

from trimodal.cli import common

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from trimodal.audio.values import Samples
    from trimodal.client import LiveStream, LiveUpdate


Show = Callable[["LiveStream", "LiveUpdate"], None]


async def follow(
    stream: LiveStream, blocks: Generator[Samples, None, None], show: Show, speed: float
) -> bool:
    """Sends all blocks at `speed` times that of speech and ends the stream; whether Ctrl-C ended it early."""
    from trimodal.client.async_iteration import pumped

    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def interrupt() -> None:
        stop.set()
        loop.remove_signal_handler(signal.SIGINT)

    with common.on_interrupt(loop, interrupt):
        async with contextlib.aclosing(_until(_paced(pumped(blocks), speed), stop)) as coming:
            async for block in coming:
                show(stream, await stream.send(block))
        show(stream, await stream.end())
    return stop.is_set()


@contextlib.contextmanager
def viewing(console: Console) -> Iterator[Show]:
    """Shows a stream on `console`: redrawn on a terminal, else a line for each update with new words."""
    if not console.is_terminal:
        yield lambda stream, update: _print_line(update, to_stderr=console.stderr)
        return
    from rich.live import Live

    with Live(console=console, transient=True, refresh_per_second=10) as live:
        yield lambda stream, update: live.update(drawn(console, stream, update))


def _print_line(update: LiveUpdate, *, to_stderr: bool) -> None:
    if text := " ".join(common.plain(update.text).split()):
        at = f"[{update.received_s:5.1f} s, lag {update.lag_s:.1f} s]"
        typer.echo(f"{at} {text}", err=to_stderr)


def drawn(console: Console, stream: LiveStream, update: LiveUpdate) -> RenderableType:
    """Committed words, tentative ones dim, and how far it is. Of a long transcript only the end that fits."""
    from rich.console import Group
    from rich.text import Text

    room = max(1, console.width * (console.height - 4) - len(update.tentative))
    text = common.plain(stream.text)
    if len(text) > room:
        text = "…" + text[-room:].partition(" ")[2]
    words = Text(text)
    tentative = common.plain(update.tentative)
    words.append(tentative if text else tentative.lstrip(), style="dim")
    status = f"{update.received_s:.1f} s received · lag {update.lag_s:.1f} s · {len(stream.words)} words"
    return Group(words, Text(status, style="cyan"))


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
                coming = asyncio.ensure_future(anext(source, None))
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
