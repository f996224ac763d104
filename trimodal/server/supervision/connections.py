"""Ends HTTP connections of another process on which nothing goes either way any more."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

_PIDFD_GETFD = 438  # of every architecture, Linux 5.6; Python has no function for it
# struct tcp_info: milliseconds since data was last sent, and since it last came.
_LAST = struct.Struct("=44xI4xI")
_ESTABLISHED = "01"
# Meanwhile, by one of its sides; perhaps its number is a file's by now.
_CLOSED = (errno.ENOENT, errno.EBADF, errno.ENOTCONN, errno.ENOTSOCK)


def end_silent(pid: int, port: int, seconds: float) -> int:
    """Shuts others' connections to `port` of process `pid` that were silent for so long; how many there were.

    Raises: OSError: the process has ended, or may not be looked into (a container without SYS_PTRACE).
    """
    ended = 0
    inodes = set(_established(pid, port))
    process = os.pidfd_open(pid)
    try:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            try:
                if os.readlink(entry) not in inodes:
                    continue
                with _copied(process, int(entry.name)) as connection:
                    # The number may stand for another one by now.
                    is_the_same = os.readlink(f"/proc/self/fd/{connection.fileno()}") in inodes
                    if is_the_same and silence_s(connection) >= seconds:
                        connection.shutdown(socket.SHUT_RDWR)
                        ended += 1
            except OSError as error:
                if error.errno not in _CLOSED:
                    raise
    finally:
        os.close(process)
    return ended


def silence_s(connection: socket.socket) -> float:
    """Seconds since anything came or was sent."""
    told = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LAST.size)
    return float(min(_LAST.unpack(told))) / 1e3


def _established(pid: int, port: int) -> Iterator[str]:
    """What descriptors of the connections to a port are links to; without those of this process."""
    own = set(_links(Path("/proc/self/fd")))
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(FileNotFoundError):
            rows = [line.split() for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]]
            ends = [(row[1], row[2], f"socket:[{row[9]}]") for row in rows if row[3] == _ESTABLISHED]
            ours = {local for local, _, link in ends if link in own}
            for local, peer, link in ends:
                if peer not in ours and int(local.rpartition(":")[2], 16) == port:
                    yield link


def _links(descriptors: Path) -> Iterator[str]:
    for entry in descriptors.iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile, as by another thread
            yield os.readlink(entry)


def _copied(process: int, descriptor: int) -> socket.socket:
    """Another process' socket as one of ours. Raises: OSError."""
    copy = ctypes.CDLL(None, use_errno=True).syscall(_PIDFD_GETFD, process, descriptor, 0)
    if copy < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    try:
        return socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        raise
