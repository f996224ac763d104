"""Descriptions of replicas and files of plans: what they mean, and what is said of wrong ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plan.fleet.given import replica
from trimodal.errors import SettingsError
from trimodal.plan.fleet.figures import read_replica
from trimodal.plan.fleet.plans import read_plans

REPLICA = "step_ms = [[1, 10.0], [9, 18.0]]\nprefill_us = 50\nnum_kv_blocks = 100\nmax_num_seqs = 12\n"


def test_step_times_lie_on_lines_between_those_measured() -> None:
    times = replica(step_ms=[[2, 10.0], [4, 14.0], [5, 20.0]], max_num_seqs=6).step_times()
    assert [round(1e3 * one, 6) for one in times] == [10.0, 10.0, 10.0, 12.0, 14.0, 20.0, 26.0]
    assert replica(step_ms=[[8, 5.0]]).step_times() == [0.005] * 5


def test_toml_and_json_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text(REPLICA)
    (tmp_path / "r.json").write_text(
        '{"step_ms": [[1, 10.0], [9, 18.0]], "prefill_us": 50, "num_kv_blocks": 100, "max_num_seqs": 12}'
    )
    assert read_replica(tmp_path / "r.toml") == read_replica(tmp_path / "r.json")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("oops\nx = 1\n", "r.toml: .*line 1"),
        (REPLICA + "speed = 3\n", r"r.toml: speed: unknown field \(known: step_ms, prefill_us"),
        ("prefill_us = 5\nnum_kv_blocks = 9\n", "r.toml: step_ms: is missing"),
        (
            REPLICA.replace("prefill_us = 50", "prefill_us = -1"),
            "r.toml: prefill_us: -1: Input should be greater",
        ),
        (REPLICA.replace("[9, 18.0]", "[1, 18.0]"), "step_ms needs batch sizes from 1 up"),
        (REPLICA.replace("18.0", "0"), "step_ms needs times above 0"),
        (
            REPLICA + "max_num_batched_tokens = 8\n",
            "max_num_batched_tokens 8 must be at least max_num_seqs 12",
        ),
        (
            REPLICA.replace("num_kv_blocks = 100", "num_kv_blocks = 3"),
            "r.toml: num_kv_blocks: 3: Input should be greater",
        ),
    ],
)
def test_what_is_wrong_with_a_replica_is_named(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "r.toml"
    file.write_text(text)
    with pytest.raises(SettingsError, match=sentence):
        read_replica(file)


def plans(tmp_path: Path, text: str) -> Path:
    (tmp_path / "r.toml").write_text(REPLICA)
    file = tmp_path / "plans.toml"
    file.write_text(text)
    return file


def test_plans_share_a_replica_and_change_single_fields(tmp_path: Path) -> None:
    file = plans(
        tmp_path,
        'replica = "r.toml"\n[[plan]]\nname = "a"\n[[plan]]\nname = "b"\nreplicas = 3\n'
        "[plan.change]\nmax_queue = 7\n[plan.autoscaler]\ntarget = 0.5\nmax = 5\n"
        '[[plan.failure]]\nkind = "dies"\nat = 3\n',
    )
    first, second = read_plans(file)
    assert (first.policy, first.replicas, first.replica.max_queue) == ("affinity", 1, 256)
    assert (second.replicas, second.replica.max_queue, second.replica.prefill_us) == (3, 7, 50)
    assert second.autoscaler
    assert second.autoscaler.max == 5
    assert second.failure[0].kind == "dies"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "plans.toml: plan: is missing"),
        ('[[plan]]\nname = "a"\n', r"plan\.0\.replica: is missing, and there is none for all plans"),
        ('replica = "none.toml"\n[[plan]]\nname = "a"\n', "none.toml: no such file"),
        (
            'replica = "r.toml"\n[[plan]]\nname = "a"\npolicy = "best"\n',
            r"plan\.0\.policy: 'best': Input should be",
        ),
        ('replica = "r.toml"\n[[plan]]\nname = "a"\nreplicas = 0\n', r"plan\.0\.replicas: 0: "),
        ('replica = "r.toml"\n[[plan]]\nname = "a"\n[[plan]]\nname = "a"\n', "plan.name: a is there twice"),
        (
            'replica = "r.toml"\n[[plan]]\nname = "a"\n[plan.autoscaler]\ntarget = 1\nmax = 3\nmin = 4\n',
            r"plan\.0\.autoscaler: .*min 4 exceeds max 3",
        ),
        (
            'replica = "r.toml"\n[[plan]]\nname = "a"\nreplicas = 9\n[plan.autoscaler]\ntarget = 1\nmax = 3',
            r"plan\.0: .*replicas 9 is not within min 1 and max 3",
        ),
        (
            'replica = "r.toml"\n[[plan]]\nname = "a"\n[[plan.failure]]\nkind = "burns"\nat = 1\n',
            r"plan\.0\.failure\.0\.kind: 'burns'",
        ),
        ('replica = "r.toml"\n[[plan]]\nname = "a"\nchange = 3\n', r"plan\.0\.change: a table is needed"),
        ('[[plan]]\nname = "a"\nreplica = 3\n', r"plan\.0\.replica: a file's name or a table is needed"),
    ],
)
def test_what_is_wrong_with_plans_is_named(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        read_plans(plans(tmp_path, text))
