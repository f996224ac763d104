"""`trimodal regress` on the golden set of the samples: the starter set keeps every expectation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.e2e.gateway.calls.starter import SAMPLES, Starter
from trimodal.cli.app import app

pytestmark = [pytest.mark.e2e, pytest.mark.build, pytest.mark.slow]


def test_the_golden_set_is_kept(starter: Starter, tmp_path: Path) -> None:
    options = ["--record", "--repeat", "1", "--baseline", str(tmp_path / "kept.json"), "--json"]
    done = CliRunner().invoke(
        app, ["regress", str(SAMPLES / "golden.jsonl"), "--against", starter.grpc, *options]
    )
    assert json.loads(done.stdout)["broken"] == [], done.stderr
    assert "refused" not in done.stderr
