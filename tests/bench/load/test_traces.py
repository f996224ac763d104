from __future__ import annotations

from pathlib import Path

import pytest

from trimodal.bench.load.traces import Traced, read_trace
from trimodal.errors import SettingsError

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
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


def test_azures_columns_are_read_in_the_order_of_arrival(tmp_path: Path) -> None:
    first, second, third = read_trace(written(tmp_path, AZURE))
    assert (first.at, first.input_tokens, first.output_tokens) == (0.0, 374, 44)
    assert (second.input_tokens, third.input_tokens) == (91, 396)
    assert (second.at, third.at) == pytest.approx((0.1, 4.314579), abs=1e-6)


def test_mooncakes_lines_keep_the_blocks_that_prompts_share(tmp_path: Path) -> None:
    assert read_trace(written(tmp_path, MOONCAKE)) == [
        Traced(0.0, 6955, 52, (46, 47)),
        Traced(3.0, 6472, 26, (46, 2353)),
    ]


def test_a_trace_can_be_sped_up_and_made_smaller(tmp_path: Path) -> None:
    _, last = read_trace(written(tmp_path, MOONCAKE), speed=2.0, scale=0.01)
    assert (last.at, last.input_tokens, last.output_tokens) == (1.5, 65, 1)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "lacks TIMESTAMP"),
        ("a,b\n1,2\n", "lacks TIMESTAMP, ContextTokens"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n", "no request"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\nnoon,1,2\n", "line 2"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n1,2\n", "line 2"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n1,2,-3\n", "line 2: a length of -3"),
        ('{"timestamp": 1}\n', "line 1: lacks 'input_length'"),
        ('{"timestamp": 1, "input_length": 2, "output_length": 3}\n{"x"\n', "line 2"),
        ('{"timestamp": NaN, "input_length": 2, "output_length": 3}\n', "line 1: a time of nan"),
    ],
)
def test_what_is_no_trace_is_refused_with_its_line(text: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=told):
        read_trace(written(tmp_path, text))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="--trace .*none.csv: cannot be read"):
        read_trace(tmp_path / "none.csv")
