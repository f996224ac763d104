"""Descriptions of replicas: what they mean, and what is said of wrong ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plan.fleet.given import replica
from trimodal.errors import SettingsError
from trimodal.gateway.tables import read_tables
from trimodal.plan.fleet.replica import ReplicaFigures

REPLICA = "step_ms = [[1, 10.0], [9, 18.0]]\nprefill_us = 50\nnum_kv_blocks = 100\nmax_num_seqs = 12\n"


def test_step_times_lie_on_lines_between_those_measured() -> None:
    times = replica(step_ms=[[2, 10.0], [4, 14.0], [5, 20.0]], max_num_seqs=6).step_times()
    assert [round(1e3 * one, 6) for one in times] == [10.0, 10.0, 10.0, 12.0, 14.0, 20.0, 26.0]
    assert replica(step_ms=[[8, 5.0]]).step_times() == [0.005] * 5


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("oops\nx = 1\n", "r.toml: .*line 1"),
        (REPLICA + "speed = 3\n", r"r.toml: unknown parameter 'speed' \(known: step_ms, prefill_us"),
        ("prefill_us = 5\nnum_kv_blocks = 9\n", "r.toml: parameter 'step_ms'.*Field required"),
        (
            REPLICA.replace("prefill_us = 50", "prefill_us = -1"),
            "r.toml: parameter 'prefill_us' = -1: Input should be greater",
        ),
        (REPLICA.replace("[9, 18.0]", "[1, 18.0]"), "step_ms needs batch sizes from 1 up"),
        (REPLICA.replace("18.0", "0"), "step_ms needs times above 0"),
        (
            REPLICA + "max_num_batched_tokens = 8\n",
            "max_num_batched_tokens 8 must be at least max_num_seqs 12",
        ),
        (
            REPLICA.replace("num_kv_blocks = 100", "num_kv_blocks = 3"),
            "r.toml: parameter 'num_kv_blocks' = 3: Input should be greater",
        ),
    ],
)
def test_what_is_wrong_with_a_replica_is_named(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "r.toml"
    file.write_text(text)
    with pytest.raises(SettingsError, match=sentence):
        read_tables(file, ReplicaFigures, ReplicaFigures)
