"""Arrivals that are made, with shared beginnings, and those of a trace."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.plan.fleet.given import Exactly
from trimodal.errors import SettingsError
from trimodal.plan.fleet.workload import Prefixes, generate, read_trace


def test_shared_beginnings_follow_zipf() -> None:
    made = generate(500, 40, Exactly(30), Exactly(1), prefixes=Prefixes(10, 100, 0.6, 1.0))
    shared = [one for one in made if one.prefix is not None]
    assert len(shared) / len(made) == pytest.approx(0.6, abs=0.02)
    assert all((one.prompt, one.shared) == (130, 100) for one in shared)
    counts = Counter(one.prefix for one in shared)
    assert counts[0] / counts[4] == pytest.approx(5.0, rel=0.15)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"rate": 0}, "--rate 0: above 0"),
        ({"seconds": -1}, "--seconds -1"),
        ({"rate": 1e5, "seconds": 1e6}, "10000000 requests at most"),
        ({"rate": float("nan")}, "--rate nan"),
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, float], sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        generate(**{"rate": 50, "seconds": 400, "prompt": Exactly(1), "output": Exactly(1), **fields})  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="SHARE 0 to 1"):
        Prefixes(5, 10, 2.0)


HEAD = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
AZURE = f"""{HEAD}2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
2023-11-16 18:15:46.7805900,91,1
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "trace.csv"
    file.write_text(text)
    return file


@pytest.mark.parametrize("zone", ["", "+00:00"])
def test_azures_columns_are_read_in_the_order_of_arrival(zone: str, tmp_path: Path) -> None:
    first, second, third = read_trace(written(tmp_path, AZURE.replace("00,", f"00{zone},")))
    assert (first.at, first.prompt, first.output) == (0.0, 374, 44)
    assert (second.prompt, third.prompt) == (91, 396)
    assert (second.at, third.at) == pytest.approx((0.1, 4.314579), abs=1e-6)
    seconds = read_trace(written(tmp_path, f"{HEAD}0,1,0\n2.5,1,2\n"))
    assert [(one.at, one.output) for one in seconds] == [(0.0, 1), (2.5, 2)]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "no request in it: a CSV with the columns TIMESTAMP, "),
        (HEAD, "no request"),
        ("a,b\n1,2\n", "line 2: TIMESTAMP Field required"),
        (f"{HEAD}noon,1,2\n", "line 2: TIMESTAMP"),
        (f"{HEAD}1,2\n", "line 2: GeneratedTokens"),
        (f"{HEAD}1,2,3\n1,2,-3\n", "line 3: GeneratedTokens .*greater than or equal to 0"),
    ],
)
def test_what_is_no_trace_is_refused_with_its_line(text: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=sentence):
        read_trace(written(tmp_path, text))


def test_a_trace_without_end_is_refused() -> None:
    with pytest.raises(SettingsError, match="--trace /dev/zero: "):
        read_trace(Path("/dev/zero"))
