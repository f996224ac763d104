"""Holds connections: thousands that say nothing, and readers that read a byte a second."""

from __future__ import annotations

import json
import resource
import select
import socket
import threading
import time
from pathlib import Path

from tests.chaos.faults.base import CannotBeMade, Fault, Needs
from tests.chaos.load import STEADY
from tests.chaos.served import Served

IDLE = 2000  # to each port
CONNECTED_S = 20.0  # for all of one port


class IdleConnections(Fault):
    """2,000 connections to each port that send nothing."""

    name, holds_s = "idle-connections", 8.0
    each = {**STEADY, "new": 2}

    def __init__(self, count: int = IDLE) -> None:
        self._count = count
        self._open: list[socket.socket] = []

    def needs(self, directory: Path) -> Needs:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = 4 * self._count + 500
        if hard != resource.RLIM_INFINITY and hard < wanted:
            raise CannotBeMade(f"{hard} descriptors are allowed here, {wanted} are needed")
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
        return Needs()

    def inject(self, served: Served) -> None:
        for port in (served.http_port, served.grpc_port, served.health_port, served.gateway_port):
            began = time.monotonic()
            for _ in range(self._count):
                self._open.append(socket.create_connection(("127.0.0.1", port), timeout=10))
            if (took := time.monotonic() - began) > CONNECTED_S:
                raise TimeoutError(f"port {port} took {self._count} connections in {took:.1f} s")

    def close(self) -> None:
        for one in self._open:
            one.close()


class SlowReaders(Fault):
    """Streams over the gateway and over Triton's HTTP whose clients read a byte a second."""

    name, holds_s = "slow-readers", 10.0

    def __init__(self, count: int = 10) -> None:
        self._count = count
        self._open: list[socket.socket] = []
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def needs(self, directory: Path) -> Needs:
        return Needs(changes={"llm": {"max_num_seqs": "64", "max_output_tokens": "4096"}})

    def inject(self, served: Served) -> None:
        chat = {"model": "llm", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2000}
        chat |= {"stream": True, "logprobs": True, "top_logprobs": 5}  # a kilobyte an event
        generate = {"text_input": "hi", "max_tokens": 2000, "top_logprobs": 5}
        for _ in range(self._count):
            self._ask(served.gateway_port, "/v1/chat/completions", chat)
            self._ask(served.http_port, "/v2/models/llm/generate_stream", generate)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def heal(self, served: Served) -> None:
        self._over.set()
        if self._thread:
            self._thread.join(5.0)
        for one in self._open:
            one.close()

    def close(self) -> None:
        self._over.set()

    def _ask(self, port: int, path: str, body: object) -> None:
        data = json.dumps(body).encode()
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        one.settimeout(10)
        one.connect(("127.0.0.1", port))
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        one.sendall(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        self._open.append(one)

    def _read(self) -> None:
        while not self._over.wait(1.0):
            for one in select.select(self._open, [], [], 0)[0]:
                one.recv(1)
