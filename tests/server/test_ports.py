import errno
import socket

import pytest

from trimodal.errors import ServerError
from trimodal.server.ports import RANGE, PortInUse, choose, listen

HOST = "127.0.0.1"


def test_zero_picks_distinct_free_ports_below_the_ephemeral_range():
    chosen = choose(HOST, {"--http-port": 0, "--grpc-port": 0, "--metrics-port": 0})
    assert len(set(chosen.values())) == 3
    low = int(RANGE.read_text().split()[0])
    for port in chosen.values():
        assert 1024 <= port < low
        with socket.create_server((HOST, port)):
            pass


def test_asked_ports_are_kept_in_order():
    free = choose(HOST, {"a": 0, "b": 0})
    wanted = {"--http-port": 0, "--grpc-port": free["a"], "--metrics-port": free["b"]}
    chosen = choose(HOST, wanted)
    assert list(chosen) == list(wanted)
    assert (chosen["--grpc-port"], chosen["--metrics-port"]) == (free["a"], free["b"])


@pytest.fixture
def taken():
    """A port that somebody listens at."""
    with socket.create_server((HOST, 0)) as server:
        yield server.getsockname()[1]


def test_port_in_use_names_port_and_flag(taken):
    with pytest.raises(ServerError, match=rf"port {taken} on {HOST} is in use: .* --grpc-port"):
        choose(HOST, {"--http-port": 0, "--grpc-port": taken})


@pytest.mark.parametrize(
    ("host", "ports", "sentence"),
    [
        (HOST, {"--http-port": 70000}, "--http-port 70000 is out of range"),
        (HOST, {"--http-port": -1}, "--http-port -1 is out of range"),
        (HOST, {"--http-port": 18123, "--grpc-port": 18123}, "port 18123 is given twice: --grpc-port"),
        ("192.0.2.1", {"--http-port": 0}, "--host 192.0.2.1, port .*: cannot assign"),
        ("no host", {"--http-port": 18123}, "--host no host, port 18123: name or service not known"),
    ],
)
def test_refusals(host, ports, sentence):
    with pytest.raises(ServerError, match=sentence):
        choose(host, ports)


def test_a_host_that_nobody_has(taken):
    with pytest.raises(ServerError, match=f"^cannot listen on nowhere.invalid:{taken}: "):
        listen("nowhere.invalid", taken)


def test_a_taken_port_names_the_option_that_chooses_another(taken):
    problem = f"cannot listen on {HOST}:{taken}: address already in use"
    told = rf"^{problem}: choose another with --gateway-port \(0 picks a free one\)$"
    with pytest.raises(PortInUse, match=told) as raised:
        listen(HOST, taken, "--gateway-port")
    assert raised.value.problem == problem


def test_a_port_that_only_the_administrator_may_have(monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(socket, "create_server", refuse)
    monkeypatch.setattr(socket.socket, "bind", refuse)
    told = "permission denied: low ports are the administrator's; choose a higher one with --http-port$"
    with pytest.raises(ServerError, match=f"^cannot listen on {HOST}:80: {told}"):
        listen(HOST, 80, "--http-port")
    with pytest.raises(ServerError, match=f"^--host {HOST}, port 80: {told}"):
        choose(HOST, {"--http-port": 80})
