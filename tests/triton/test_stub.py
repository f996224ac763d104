"""The process of a model, as it begins."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from trimodal.errors import SettingsError
from trimodal.triton.stub import begin, ended_if_stalled

BEGIN = "from trimodal.triton.stub import begin; begin({'model_name': 'turn', 'model_config': '{}'})"


def test_a_model_that_keeps_what_its_requests_share_is_alone() -> None:
    def begun(group: str) -> None:
        begin({"model_name": "llm", "model_config": f'{{"instance_group": [{group}]}}'}, alone=True)

    begun('{"count": 1, "gpus": []}')
    begun('{"count": 1, "kind": "KIND_GPU", "gpus": [0]}')
    for several in ('{"count": 2}', '{"count": 1, "gpus": [0, 1]}', '{"count": 1}, {"count": 1}'):
        with pytest.raises(SettingsError, match="llm: instance_group makes 2 instances, but one process"):
            begun(several)


def test_a_model_has_batches_as_its_clients_send_them() -> None:
    """Triton loaded it with any max_batch_size, was ready, and refused each request for its shape."""

    def begun(most: int, *, alone: bool) -> None:
        begin({"model_name": "m", "model_config": f'{{"max_batch_size": {most}}}'}, alone=alone)

    begun(0, alone=True)
    begun(1, alone=False)
    with pytest.raises(SettingsError, match="m: max_batch_size is 4, but its requests come one by one: set"):
        begun(4, alone=True)
    with pytest.raises(SettingsError, match="m: max_batch_size is 0, but its requests are batches: set 1 or"):
        begun(0, alone=False)


CONNECTIONS = """
import os, socket
from trimodal.triton.stub import begin
connection = socket.create_connection(("127.0.0.1", {port}))
pair = socket.socketpair()
begin({{"model_name": "turn", "model_config": "{{}}"}})
pair[0].send(b"x"), pair[1].recv(1)
try:
    os.fstat(connection.fileno())
    print("open")
except OSError:
    print("closed")
"""


@pytest.mark.parametrize(
    ("name", "told"), [("/backends/python/triton_python_backend_stub", "closed"), ("python", "open")]
)
def test_a_stub_keeps_no_connection_of_a_client(tmp_path: Path, name: str, told: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        (tmp_path / "model.py").write_text(CONNECTIONS.format(port=server.getsockname()[1]))
        done = subprocess.run(
            [name, str(tmp_path / "model.py")],
            executable=sys.executable, capture_output=True, text=True, timeout=60,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )  # fmt: skip
    assert done.stdout.split() == [told], done.stderr


@pytest.fixture
def regions() -> Iterator[list[Path]]:
    """Two files in shared memory that everybody may read."""
    files = [Path("/dev/shm") / f"trimodal-test-{uuid4().hex}" for _ in range(2)]
    for file in files:
        file.touch(0o644)
        file.chmod(0o644)
    yield files
    for file in files:
        file.unlink()


@pytest.mark.parametrize("slash", ["", "/"])
def test_its_region_is_closed_and_no_other(regions: list[Path], slash: str) -> None:
    own, other = regions
    arguments = ["model.py", f"{slash}{own.name}", "1048576", "", "..", "/"]
    subprocess.run([sys.executable, "-c", BEGIN, *arguments], check=True, timeout=60)
    assert [file.stat().st_mode & 0o777 for file in (own, other)] == [0o600, 0o644]


STALLS = """
import ctypes
from trimodal.triton.stub import begin, ended_if_stalled
begin({"model_name": "vision", "model_config": "{}"})
with ended_if_stalled(10.0):
    pass
with ended_if_stalled(0.2):
    ctypes.PyDLL(None).sleep(30)  # as it keeps Python's lock, nothing of Python runs meanwhile
"""


def test_a_process_whose_library_hangs_ends_and_says_where(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(STALLS)
    done = subprocess.run(
        ["/backends/python/triton_python_backend_stub", str(tmp_path / "model.py")],
        executable=sys.executable, capture_output=True, text=True, timeout=20,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    assert done.returncode == -signal.SIGALRM
    assert 'model.py", line 8 in <module>' in done.stderr


def test_a_batch_in_time_leaves_the_timer_as_it_was() -> None:
    before, _ = signal.getitimer(signal.ITIMER_REAL)
    with ended_if_stalled(5.0):
        assert 4 < signal.getitimer(signal.ITIMER_REAL)[0] <= 5
    with ended_if_stalled(0.0):
        assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
    assert signal.getitimer(signal.ITIMER_REAL)[0] == pytest.approx(before, abs=1.0)
