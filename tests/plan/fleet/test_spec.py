"""Files of plans: what they mean, and what is said of wrong ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimodal.errors import SettingsError
from trimodal.plan.fleet.spec import read_specs

REPLICA = "step_ms = [[1, 10.0], [9, 18.0]]\nprefill_us = 50\nnum_kv_blocks = 100\nmax_num_seqs = 12\n"


def plans(tmp_path: Path, text: str) -> Path:
    (tmp_path / "r.toml").write_text(REPLICA)
    (tmp_path / "other.toml").write_text(REPLICA + "max_queue = 7\n")
    file = tmp_path / "plans.toml"
    file.write_text(text)
    return file


def test_plans_share_a_replica_or_name_their_own_and_are_played_with_each_number(tmp_path: Path) -> None:
    file = plans(
        tmp_path,
        'replica = "r.toml"\n[[plan]]\nname = "a"\n'
        '[[plan]]\nname = "b"\nreplica = "other.toml"\nreplicas = [3, 5]\npolicy = "round_robin"\n',
    )
    first, *others = read_specs(file)
    assert (first.name, first.policy, first.replicas, first.replica.max_queue) == ("a", "affinity", 1, 256)
    assert [(one.name, one.replicas, one.replica.max_queue) for one in others] == [
        ("b 3", 3, 7),
        ("b 5", 5, 7),
    ]


ONE = 'replica = "r.toml"\n[[plan]]\nname = "a"\n'


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "plans.toml: parameter 'plan'.*Field required"),
        ('[[plan]]\nname = "a"\n', 'plan 1: replica = "FILE" is needed, here or for all plans'),
        ('[[plan]]\nname = "a"\nreplica = 3\n', 'plan 1: replica = "FILE" is needed'),
        (ONE.replace("r.toml", "none.toml"), "none.toml: no such file"),
        (f'{ONE}policy = "best"\n', "plan 1: parameter 'policy' = 'best': Input should be"),
        (f"{ONE}replicas = 0\n", "plan 1: parameter 'replicas' = 0: "),
        (f"{ONE}replicas = [2, 0]\n", "plan 1: parameter 'replicas' = 0: "),
        (f"{ONE}autoscaler = 3\n", "plan 1: unknown parameter 'autoscaler'"),
        (ONE.replace('"a"', '""'), "plan 1: parameter 'name' = ''"),
    ],
)
def test_what_is_wrong_with_plans_is_named(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        read_specs(plans(tmp_path, text))
