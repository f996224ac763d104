"""The containers' own commands serve with the rights of their pods, on a real tritonserver."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest

from tests.deploy.objects import ROOT, rendered

NAMESPACES = ["unshare", "--user", "--map-root-user", "--mount", "--net", "--pid", "--fork", "--mount-proc"]


@pytest.mark.e2e
@pytest.mark.slow
def test_server_and_gateway_load_serve_and_drain_with_the_rights_of_their_pods() -> None:
    """Read-only but for their mounts, behind keys, told by their probes, and ended within their grace."""
    if missing := [tool for tool in ("unshare", "setpriv", "ip", "mount") if not shutil.which(tool)]:
        pytest.skip(f"not installed: {', '.join(missing)}")
    if subprocess.run([*NAMESPACES, "true"], capture_output=True).returncode:
        pytest.skip("namespaces of a user are not allowed here")
    given = json.dumps(rendered(profile="cpu"))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TRIMODAL_")}
    command = [*NAMESPACES, sys.executable, "-m", "tests.deploy.pod"]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, input=given, stderr=subprocess.PIPE, text=True, timeout=170
    )
    assert done.returncode == 0, done.stderr[-3000:]
