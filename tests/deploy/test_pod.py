"""The containers' own commands serve with the rights of their pods, on a real tritonserver."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import Any

import pytest

from tests.deploy.objects import ROOT, of_kind, rendered

pytestmark = pytest.mark.e2e
NAMESPACES = ["unshare", "--user", "--map-root-user", "--mount", "--net", "--pid", "--fork", "--mount-proc"]


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    """What tests/deploy/pod.py saw."""
    tools = ("unshare", "setpriv", "ip", "mount")
    if missing := [tool for tool in tools if not shutil.which(tool)]:
        pytest.skip(f"not installed: {', '.join(missing)}")
    if subprocess.run([*NAMESPACES, "true"], capture_output=True).returncode:
        pytest.skip("namespaces of a user are not allowed here")
    given = rendered(profile="cpu")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TRIMODAL_")}
    done = subprocess.run(
        [*NAMESPACES, sys.executable, "-m", "tests.deploy.pod"],
        cwd=ROOT,
        env=environment,
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=170,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_only_what_the_pod_mounts_can_be_written(seen: dict[str, Any]) -> None:
    writable = {name.removeprefix("writes to ") for name, done in seen.items() if done is True}
    assert writable == {"/tmp", "/dev/shm"}
    assert seen["writes to /"] is False


def test_probes_tell_when_a_server_loads_and_serves_and_drains(seen: dict[str, Any]) -> None:
    """It was ready, for the gateway too, by its name in the upstreams: or the run had failed."""
    assert seen["ready while loading"] == 503
    assert seen["live while it drains"] == 200
    assert seen["metrics"] == 200


def test_the_gateway_asks_for_a_key(seen: dict[str, Any]) -> None:
    assert (seen["without a key"], seen["with a key"]) == (401, 200)


def test_sigterm_ends_both_well_within_their_grace(seen: dict[str, Any]) -> None:
    for name, kind in (("server", "StatefulSet"), ("gateway", "Deployment")):
        (workload,) = of_kind(kind, rendered(profile="cpu"))
        assert seen[f"{name} ended with"] == 0
        assert (
            seen[f"{name} took"] < workload["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] - 35
        )
