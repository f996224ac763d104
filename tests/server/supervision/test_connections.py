"""Connections of a process, seen and ended from outside."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trimodal.server.supervision import connections
from trimodal.server.supervision.connections import end_silent, silence_s

SERVER = """
import socket, sys
listening = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
print(*(one.getsockname()[1] for one in listening), flush=True)
taken = [one.accept()[0] for one in listening for _ in range(2)]
print("taken", flush=True)
sys.stdin.read()
"""
CLIENT = """
import socket, sys
ends = [socket.create_connection(("127.0.0.1", int(port))) for port in sys.argv[1:]]
for line in sys.stdin:  # a number: whether that end was shut
    end = ends[int(line)]
    end.setblocking(False)
    try:
        print(end.recv(1) == b"", flush=True)
    except BlockingIOError:
        print(False, flush=True)
"""


class Pair:
    """A process with two connections to each of its two ports, and the process that has their other ends."""

    def __init__(self, start: Callable[..., subprocess.Popen[str]]) -> None:
        server = start(SERVER)
        assert server.stdout
        self.pid, self.ports = server.pid, server.stdout.readline().split()
        self._client = start(CLIENT, *(port for port in self.ports for _ in range(2)))
        assert server.stdout.readline() == "taken\n"

    @property
    def ended(self) -> list[bool]:
        assert self._client.stdin
        assert self._client.stdout
        self._client.stdin.write("0\n1\n2\n3\n")
        self._client.stdin.flush()
        return [self._client.stdout.readline() == "True\n" for _ in range(4)]


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    with contextlib.ExitStack() as stack:

        def run(code: str, *arguments: str) -> subprocess.Popen[str]:
            process = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", code, *arguments],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            stack.callback(process.kill)
            return process

        yield run


@pytest.fixture
def pair(start: Callable[..., subprocess.Popen[str]]) -> Pair:
    return Pair(start)


def test_only_what_is_silent_for_so_long_is_ended(pair, monkeypatch):
    silences = iter((0.2, 5.0))
    monkeypatch.setattr(connections, "silence_s", lambda connection: next(silences))
    assert end_silent(pair.pid, int(pair.ports[0]), 1.0) == 1
    assert sorted(pair.ended) == [False, False, False, True]


def test_other_ports_are_left_alone(pair):
    assert end_silent(pair.pid, int(pair.ports[0]), 1e6) == 0
    assert end_silent(pair.pid, int(pair.ports[0]), 0.0) == 2
    assert pair.ended == [True, True, False, False]


def test_connections_of_this_process_are_left_alone(start):
    """The launcher's own to Triton's repository API: it says nothing while a model loads."""
    server = start(SERVER)
    port = int(server.stdout.readline().split()[0])
    with socket.create_connection(("127.0.0.1", port), 20) as own:
        assert end_silent(server.pid, port, 0.0) == 0
        own.send(b"x")


def test_what_closes_meanwhile_hides_no_other(pair, monkeypatch):
    """Between the looks at its descriptor a client, or the server, may close a connection."""
    copied, calls = connections._copied, []

    def closed_at_first(process: int, descriptor: int) -> socket.socket:
        calls.append(descriptor)
        copy = copied(process, 1 << 20 if len(calls) == 1 else descriptor)
        if len(calls) == 2:
            copy.shutdown(socket.SHUT_RDWR)
        return copy

    port = int(pair.ports[0])
    monkeypatch.setattr(connections, "_copied", closed_at_first)
    assert end_silent(pair.pid, port, 0.0) in (0, 1)
    assert len(calls) == 2


def test_a_number_that_stands_for_another_by_now_is_left_alone(pair, monkeypatch):
    """As for the launcher's own call to the same port."""
    copied, port = connections._copied, int(pair.ports[0])
    one, other = connections._established(pair.pid, port)
    descriptors = {os.readlink(entry): int(entry.name) for entry in Path(f"/proc/{pair.pid}/fd").iterdir()}
    monkeypatch.setattr(connections, "_established", lambda pid, port: [one])
    monkeypatch.setattr(connections, "_copied", lambda process, _: copied(process, descriptors[other]))
    assert end_silent(pair.pid, port, 0.0) == 0
    assert pair.ended == [False] * 4


def test_a_number_that_is_no_sockets_by_now_hides_no_other(pair, monkeypatch):
    """Its copy was kept open, too."""
    copied, close, calls, closed = connections._copied, os.close, [], []

    def pipe_at_first(process: int, descriptor: int) -> socket.socket:
        calls.append(descriptor)
        return copied(process, 0 if len(calls) == 1 else descriptor)

    monkeypatch.setattr(connections, "_copied", pipe_at_first)
    monkeypatch.setattr(connections.os, "close", lambda handle: closed.append(handle) or close(handle))
    assert end_silent(pair.pid, int(pair.ports[0]), 0.0) == 1
    assert len(closed) == 2, "the copy, and the process"


def test_sockets_of_this_process_that_close_meanwhile_are_no_error(pair, monkeypatch):
    """The gateway beside it opens and closes connections all the time."""
    readlink = os.readlink
    with socket.socket() as own:

        def gone(entry: str | os.PathLike[str]) -> str:
            if str(entry) == f"/proc/self/fd/{own.fileno()}":
                raise FileNotFoundError(2, "No such file or directory")
            return readlink(entry)

        monkeypatch.setattr(connections.os, "readlink", gone)
        assert end_silent(pair.pid, int(pair.ports[0]), 0.0) == 2


def test_silence_ends_with_a_byte_from_either_side():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        ours = socket.create_connection(listening.getsockname(), 20)
        theirs = listening.accept()[0]
        with ours, theirs:
            for one, other in ((ours, theirs), (theirs, ours)):
                while silence_s(one) < 0.02 or silence_s(other) < 0.02:
                    pass
                before = silence_s(one), silence_s(other)
                one.send(b"x")
                other.recv(1)
                after = silence_s(one), silence_s(other)
                assert after < before


def test_a_process_that_has_ended_or_is_anothers_is_an_error():
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    with pytest.raises(OSError, match="No such process|No such file"):
        end_silent(process.pid, 1, 0.0)
    with pytest.raises(OSError, match="Bad file descriptor"):
        connections._copied(os.pidfd_open(os.getpid()), 1 << 20)
