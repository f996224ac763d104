from __future__ import annotations

from pathlib import Path

import pytest

from trimodal.check.checks.security import check_deployment
from trimodal.check.findings import Target

RESTRICT = "--{}=model-repository,shared-memory:operator=secret"
BOTH = f"{RESTRICT.format('http-restricted-api')} {RESTRICT.format('grpc-restricted-protocol')}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tritonserver --model-control-mode=explicit", ["TRI120", "TRI121"]),
        ("tritonserver --model-control-mode none", ["TRI121"]),
        ("command: ['tritonserver', '--model-control-mode=explicit']", ["TRI120", "TRI121"]),
        (f"tritonserver --model-control-mode=explicit {BOTH}", []),
        (f"tritonserver {RESTRICT.format('http-restricted-api')}", ["TRI121"]),  # gRPC is open
        # Two servers, and both leave gRPC open.
        (f"tritonserver {RESTRICT.format('http-restricted-api')}; " * 2, ["TRI121", "TRI121"]),
        ("tritonserver --http-address=127.0.0.1; " * 2, ["TRI121", "TRI121"]),
        # One server's options close no other.
        (f"tritonserver {BOTH}; tritonserver --model-control-mode=explicit", ["TRI120", "TRI121"]),
        (f"tritonserver --model-control-mode=explicit; tritonserver {BOTH}", ["TRI120", "TRI121"]),
        (f"args='{BOTH}'; tritonserver --model-store=a $args; tritonserver --model-store=b $args", []),
        (f"container_name: tritonserver, command: tritonserver {BOTH}", []),
        ("tritonserver --http-address=127.0.0.1 --grpc-address 127.0.0.1", []),
        ("# tritonserver --model-control-mode=explicit", []),
        ("image: nvcr.io/nvidia/tritonserver:25.06-py3", ["TRI122"]),
        ("FROM nvcr.io/nvidia/tritonserver:26.07-trtllm-python-py3", []),
        ("trimodal serve", []),
    ],
)
def test_a_command_line(text: str, expected: list[str], tmp_path: Path) -> None:
    file = tmp_path / "compose.yaml"
    file.write_text(f"\n{text}\n")
    found = list(check_deployment(Target((24, 10), deployment=(file,))))
    assert [one.rule for one in found] == expected
    assert {one.place.line for one in found} <= {2}
