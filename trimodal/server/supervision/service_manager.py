"""Tells systemd how the server is: ready, alive, stopping (sd_notify; a unit of Type=notify).

https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Mapping


class ServiceManager:
    """The one that started this process, if it wants to be told. What it is told never fails.

    Args:
        environment: NOTIFY_SOCKET names its socket, WATCHDOG_USEC how often it wants a sign of life.
    """

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        path = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + path[1:] if path.startswith("@") else path
        try:
            # Twice as often as it wants it, as its manual says.
            self._every_s = int(environment.get("WATCHDOG_USEC", "0")) / 2e6
        except ValueError:
            self._every_s = 0.0
        self._next = 0.0

    def tell(self, **state: str) -> None:
        """Sends names and values, such as READY="1"."""
        if not self._address:
            return
        text = "\n".join(f"{name}={value}" for name, value in state.items())
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
            end.setblocking(False)  # one that reads nothing any more must not stop us
            end.sendto(text.encode(), self._address)

    def sign_of_life(self, alive: Callable[[], bool]) -> None:
        """Tells that the server lives when that is due and true; to be called several times a second."""
        if self._every_s and time.monotonic() >= self._next and alive():
            self._next = time.monotonic() + self._every_s
            self.tell(WATCHDOG="1")
