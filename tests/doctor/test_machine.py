from __future__ import annotations

import os
import platform
import resource
import shutil
import socket
from collections import namedtuple
from pathlib import Path

import pytest

from tests.doubles.http_server import answering
from trimodal import host
from trimodal.doctor.machine import check_machine
from trimodal.errors import ServerError
from trimodal.server import preflight
from trimodal.server.options import ServerOptions

Usage = namedtuple("Usage", "total used free")


def limit(monkeypatch, kind, value):
    """The only limit of this process."""
    none = resource.RLIM_INFINITY
    found = {kind: (value, value)}
    monkeypatch.setattr(resource, "getrlimit", lambda which: found.get(which, (none, none)))


@pytest.fixture
def look(tmp_path, monkeypatch):
    """`look(**options)`: name → check, of a machine with room for all."""
    monkeypatch.setenv("TRIMODAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(preflight, "SHM", tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**12, 0, 10**12))
    limit(monkeypatch, resource.RLIMIT_NOFILE, 65536)
    monkeypatch.setattr(host, "CGROUPS", tmp_path)

    def check(**options):
        ports = dict.fromkeys(("http_port", "grpc_port", "metrics_port", "health_port"), 0)
        options = {**ports, "repository": tmp_path} | options
        return {one.place.name: one for one in check_machine(ServerOptions(**options), [])}

    return check


def test_a_machine_with_room(look):
    checks = look()
    assert {name: check.severity for name, check in checks.items() if check.severity != "ok"} == {}
    assert list(checks) == ["system", "memory", "/dev/shm", "disk", "open files", "ports"]
    assert "engines, logs, temporary files" in checks["disk"].sentence


def test_another_system(look, monkeypatch):
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    (only,) = look().values()
    assert (only.severity, only.remedy[:9]) == ("error", "use Linux")


def test_another_processor(look, monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert look()["system"].severity == "warning"


def test_the_limit_of_a_container_counts(look, tmp_path):
    (tmp_path / "memory.max").write_text(f"{3 << 30}\n")
    (tmp_path / "memory.current").write_text(f"{2 << 30}\n")
    memory = look()["memory"]
    assert (memory.severity, memory.sentence) == ("warning", "1.0 GiB of 3.0 GiB are free")
    (tmp_path / "memory.max").write_text("max\n")
    assert "3.0 GiB" not in look()["memory"].sentence


def test_the_shared_memory_that_docker_gives(look, monkeypatch):
    block = 4096
    Status = namedtuple("Status", "f_blocks f_bavail f_frsize")
    monkeypatch.setattr("os.statvfs", lambda path: Status((64 << 20) // block, (60 << 20) // block, block))
    shm = look()["/dev/shm"]
    assert (shm.severity, shm.sentence) == ("warning", "60 MiB of 64 MiB are free")
    assert "--shm-size=1g" in shm.remedy
    monkeypatch.setattr(preflight, "SHM_PER_INSTANCE", 100 << 20)
    monkeypatch.setattr("os.statvfs", lambda path: Status(1, 0, block))
    monkeypatch.setattr(preflight, "check_shared_memory", _refuse("/dev/shm is full: enlarge it"))
    assert (look()["/dev/shm"].severity, look()["/dev/shm"].remedy) == ("error", "enlarge it")


@pytest.mark.parametrize(
    ("free", "profile", "level"),
    [
        (100 << 20, "cpu", "error"),
        (4 << 30, "cpu", "warning"),
        (6 << 30, "cpu", "ok"),
        (6 << 30, "cuda", "warning"),
        (50 << 30, "tensorrt", "warning"),
        (70 << 30, "tensorrt", "ok"),
    ],
)
def test_disk(look, monkeypatch, free, profile, level):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**12, 0, free))
    assert look(profile=profile)["disk"].severity == level


@pytest.mark.parametrize("error", [PermissionError(13, "denied"), OSError(36, "too long")])
def test_a_place_that_may_not_be_looked_at_keeps_no_other_check_from_being_told(look, monkeypatch, error):
    looked = os.stat

    def refuse(path, *args, **kwargs):
        if "secret" in str(path):
            raise error
        return looked(path, *args, **kwargs)

    monkeypatch.setattr(os, "stat", refuse)
    monkeypatch.setenv("TRIMODAL_CACHE", "/secret/cache")
    assert list(look()) == ["system", "memory", "/dev/shm", "disk", "open files", "ports"]


def test_a_place_that_is_not_there_yet_is_on_its_parents_disk(look):
    assert look(engines=Path("/nonexistent/engines"))["disk"].severity == "ok"


@pytest.mark.parametrize(("files", "level"), [(1024, "warning"), (resource.RLIM_INFINITY, "ok")])
def test_open_files(look, monkeypatch, files, level):
    limit(monkeypatch, resource.RLIMIT_NOFILE, files)
    assert look()["open files"].severity == level


def test_a_limit_that_no_server_starts_under(look, monkeypatch):
    limit(monkeypatch, resource.RLIMIT_NOFILE, 64)
    check = look()["limits"]
    assert (check.severity, check.sentence) == (
        "error",
        "the limit of open files is 64, but tritonserver needs 128",
    )
    assert check.remedy.startswith("set it by `ulimit -n 65536`")


def test_a_port_in_use_is_a_failure_unless_a_triton_is_ready_there(look):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        check = look(grpc_port=port)["ports"]
    assert (check.severity, check.sentence) == ("error", f"port {port} on 127.0.0.1 is in use")
    assert check.remedy.startswith("choose another with --grpc-port")
    with answering(lambda asked: (200 if asked.path == "/v2/health/ready" else 404, b"")) as port:
        check = look(http_port=port)["ports"]
    assert check.severity == "warning"
    assert "a Triton is ready there" in check.remedy


def _refuse(sentence: str):
    def check(models: object) -> None:
        raise ServerError(sentence)

    return check
