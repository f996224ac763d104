"""Half a minute of the soak on fake engines: every kind asked, every model reloaded, every process seen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.soak.__main__ import main
from tests.soak.run import LOOK_S, RELOADED
from tests.soak.slopes import LIMITS

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
MINUTES = 0.5


def test_a_short_soak(tmp_path: Path) -> None:
    told = tmp_path / "soak.json"
    # Too short to be called flat.
    main(["--fake", "--minutes", str(MINUTES), "--rate", "3", "--json", str(told)])
    found = json.loads(told.read_text())
    assert (found["wrong"], found["not idle"], found["stopped"]) == ({}, {}, "")
    assert all(found["requests"].values()), "a kind that was never asked"
    # Triton 2.51 may keep a model that is unloaded at UNLOADING, which is waited for 20 s.
    reloaded = [one["model"] for one in found["reloads"]][: len(RELOADED)]
    assert reloaded == list(RELOADED[: len(reloaded)])
    assert len(reloaded) > 3
    assert not any(one["error"] for one in found["reloads"])
    seen = {one["name"] for one in found["series"] if one["kind"] == "memory"}
    assert {"launcher #1", "guard #1", "tritonserver #1", "llm engine #2"} <= seen
    in_time = [one["model"] for one in found["reloads"] if one["ended"] < 60 * MINUTES - 2 * LOOK_S]
    assert {f"{model} #2" for model in in_time[: len(RELOADED)]} <= seen, "a replaced process is a new series"
    assert in_time
    assert LIMITS.keys() - {"p95", "p99"} <= {one["kind"] for one in found["series"]}
