"""A wire to a gateway that can be cut and mended: to the page, a gateway that is gone and comes back."""

from __future__ import annotations

import contextlib
import socket
import threading
from urllib.parse import urlsplit


class Wire:
    """Passes bytes on from a port of its own. `url` is for the page."""

    def __init__(self, gateway: str) -> None:
        self._gateway = ("127.0.0.1", urlsplit(gateway).port or 80)
        self._sockets: list[socket.socket] = []
        self._port = 0
        self.mend()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def mend(self) -> None:
        """Takes connections, at the same port as before."""
        listener = socket.create_server(("127.0.0.1", self._port))
        self._port = listener.getsockname()[1]
        self._sockets = [listener]
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def cut(self) -> None:
        """Ends all connections, and refuses new ones."""
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = listener.accept()
                server = socket.create_connection(self._gateway)
                self._sockets += [client, server]
                for pair in ((client, server), (server, client)):
                    threading.Thread(target=_copy, args=pair, daemon=True).start()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while block := source.recv(65_536):
            target.sendall(block)
        target.shutdown(socket.SHUT_WR)
