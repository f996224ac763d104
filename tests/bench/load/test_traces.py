from __future__ import annotations

from pathlib import Path

import pytest

from trimodal.bench.load.traces import Traced, read_trace
from trimodal.errors import SettingsError

HEAD = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
AZURE = f"""{HEAD}2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
2023-11-16 18:15:46.7805900,91,1
"""
MOONCAKE = """{"timestamp": 27000, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47]}
{"timestamp": 30000, "input_length": 6472, "output_length": 26, "hash_ids": [46, 2353]}
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "trace"
    file.write_text(text)
    return file


@pytest.mark.parametrize("zone", ["", "+00:00"])
def test_azures_columns_are_read_in_the_order_of_arrival(zone: str, tmp_path: Path) -> None:
    first, second, third = read_trace(written(tmp_path, AZURE.replace("00,", f"00{zone},")))
    assert (first.at, first.input_tokens, first.output_tokens) == (0.0, 374, 44)
    assert (second.input_tokens, third.input_tokens) == (91, 396)
    assert (second.at, third.at) == pytest.approx((0.1, 4.314579), abs=1e-6)


def test_azures_times_may_be_seconds(tmp_path: Path) -> None:
    assert [one.at for one in read_trace(written(tmp_path, f"{HEAD}0,1,2\n2.5,1,2\n"))] == [0.0, 2.5]


def test_mooncakes_lines_keep_the_blocks_that_prompts_share(tmp_path: Path) -> None:
    assert read_trace(written(tmp_path, MOONCAKE)) == [
        Traced(0.0, 6955, 52, (46, 47)),
        Traced(3.0, 6472, 26, (46, 2353)),
    ]


def test_a_trace_can_be_sped_up_and_made_smaller(tmp_path: Path) -> None:
    _, last = read_trace(written(tmp_path, MOONCAKE), speed=2.0, scale=0.01)
    assert (last.at, last.input_tokens, last.output_tokens) == (1.5, 65, 1)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "no request in it: a CSV with the columns TIMESTAMP, "),
        (HEAD, "no request"),
        ("a,b\n1,2\n", "line 2: TIMESTAMP Field required"),
        (f"{HEAD}noon,1,2\n", "line 2: TIMESTAMP"),
        (f"{HEAD}1,2\n", "line 2: GeneratedTokens"),
        (f"{HEAD}1,2,3\n1,2,-3\n", "line 3: GeneratedTokens .*greater than or equal to 0"),
        ('{"timestamp": 1}\n', "line 1: input_length Field required"),
        ('{"timestamp": 1, "input_length": 2, "output_length": 3}\n\n{"x"\n', "line 3: .*JSON"),
        ('{"timestamp": NaN, "input_length": 2, "output_length": 3}\n', "line 1: timestamp"),
    ],
)
def test_what_is_no_trace_is_refused_with_its_line(text: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=sentence):
        read_trace(written(tmp_path, text))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="--trace .*none.csv: cannot be read"):
        read_trace(tmp_path / "none.csv")
