"""No process's command line has a secret."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.e2e.conftest import BOUND, Command, own_processes
from trimodal.server.launch import OPERATOR_HEADER
from trimodal.server.process import TritonServer
from trimodal.server.process_guard import HIDDEN

pytestmark = pytest.mark.e2e

KEY = "the-operators-own-key"


@pytest.mark.slow
def test_no_command_line_and_no_model_has_the_operators_key(command: Callable[..., Command]) -> None:
    key = {"TRIMODAL_OPERATOR_KEY": KEY}
    run = command("--model", "echo", "--gateway", "--gateway-port", "0", environment=key)
    run.wait_for("Ready.")
    found = own_processes()
    assert [line for line in found.values() if "tritonserver" in line]
    stubs = [pid for pid, line in found.items() if "triton_python_backend_stub" in line]
    assert stubs
    assert not {line for line in found.values() if KEY in line}
    for pid in stubs:
        assert KEY.encode() not in Path(f"/proc/{pid}/environ").read_bytes()
    index = f"http://127.0.0.1:{run.http_port}/v2/repository/index"
    assert httpx.post(index, json={}, headers={OPERATOR_HEADER: KEY}, timeout=BOUND).is_success
    assert httpx.post(index, json={}, timeout=BOUND).status_code == 403
    run.process.terminate()
    run.finish()
    assert KEY not in run.output


def test_the_default_key_is_on_no_command_line(fakes: TritonServer) -> None:
    lines = own_processes().values()
    assert [line for line in lines if f"{OPERATOR_HEADER}={HIDDEN}" in line]
    assert not {line for line in lines if fakes.operator_key in line}
