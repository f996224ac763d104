"""Files of plans and of replicas: what they mean, and what is said of wrong ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plan.fleet.given import replica
from trimodal.errors import SettingsError
from trimodal.plan.fleet.spec import read_specs

REPLICA = "step_ms = [[1, 10.0], [9, 18.0]]\nprefill_us = 50\nnum_kv_blocks = 100\nmax_num_seqs = 12\n"
PLANS = 'replica = "r.toml"\n[[plan]]\nname = "a"\n'


def plans(tmp_path: Path, text: str = PLANS, described: str = REPLICA) -> Path:
    (tmp_path / "r.toml").write_text(described)
    file = tmp_path / "plans.toml"
    file.write_text(text)
    return file


def test_plans_are_played_with_each_number_of_replicas(tmp_path: Path) -> None:
    more = '[[plan]]\nname = "b"\nreplicas = [3, 5]\npolicy = "round_robin"\n'
    first, *others = read_specs(plans(tmp_path, PLANS + more))
    assert (first.name, first.policy, first.replicas, first.replica.max_queue) == ("a", "affinity", 1, 256)
    assert [(one.name, one.replicas, one.policy) for one in others] == [
        ("b 3", 3, "round_robin"),
        ("b 5", 5, "round_robin"),
    ]


def test_step_times_lie_on_lines_between_those_measured() -> None:
    times = replica(step_ms=[[2, 10.0], [4, 14.0], [5, 20.0]], max_num_seqs=6).step_times()
    assert [round(1e3 * one, 6) for one in times] == [10.0, 10.0, 10.0, 12.0, 14.0, 20.0, 26.0]
    assert replica(step_ms=[[8, 5.0]]).step_times() == [0.005] * 5


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "plans.toml: parameter 'replica'.*Field required"),
        ('replica = "r.toml"\n', "plans.toml: parameter 'plan'.*Field required"),
        (PLANS.replace("r.toml", "none.toml"), "none.toml: no such file"),
        (f'{PLANS}policy = "best"\n', "plan 1: parameter 'policy' = 'best': Input should be"),
        (f"{PLANS}replicas = 0\n", "plan 1: parameter 'replicas' = 0: "),
        (f"{PLANS}replicas = [2, 0]\n", "plan 1: parameter 'replicas' = 0: "),
        (f"{PLANS}replicas = []\n", "plan 1: parameter 'replicas' = \\[\\]: "),
        (f"{PLANS}autoscaler = 3\n", "plan 1: unknown parameter 'autoscaler'"),
        (PLANS.replace('"a"', '""'), "plan 1: parameter 'name' = ''"),
    ],
)
def test_what_is_wrong_with_plans_is_named(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        read_specs(plans(tmp_path, text))


@pytest.mark.parametrize(
    ("described", "sentence"),
    [
        ("oops\nx = 1\n", "r.toml: .*line 1"),
        (REPLICA + "speed = 3\n", r"r.toml: unknown parameter 'speed' \(known: step_ms, prefill_us"),
        ("prefill_us = 5\nnum_kv_blocks = 9\n", "r.toml: parameter 'step_ms'.*Field required"),
        (REPLICA.replace("us = 50", "us = -1"), "r.toml: parameter 'prefill_us' = -1: Input should be"),
        (REPLICA.replace("[9, 18.0]", "[1, 18.0]"), "step_ms needs batch sizes from 1 up"),
        (REPLICA.replace("18.0", "0"), "step_ms needs times above 0"),
        (REPLICA + "max_num_batched_tokens = 8\n", "tokens 8 must be at least max_num_seqs 12"),
        (REPLICA.replace("blocks = 100", "blocks = 3"), "r.toml: parameter 'num_kv_blocks' = 3: Input"),
    ],
)
def test_what_is_wrong_with_a_replica_is_named(tmp_path: Path, described: str, sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        read_specs(plans(tmp_path, described=described))
